"""Runs the audit's checks of everything but the rows: columns, metadata table, indexes and specifications.

Guarantee: those of `check_columns`, `check_metadata_table`, `IndexCheck` and `check_specifications`. Raises what the
store raises.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from sink.audit.columns import check_columns
from sink.audit.content.indexes import IndexCheck
from sink.audit.content.specification import check_specifications
from sink.audit.files import Group, NamedFiles, StorageCheck
from sink.audit.metadata_table import MetadataTable, check_metadata_table
from sink.audit.report import AuditFindings, FindingKind
from sink.audit.state import TableState

_MODE, _ORDERING = "hoodie.record.merge.mode", "hoodie.table.ordering.fields"


@dataclass(frozen=True)
class BesideRows:
    """`changed`: rows are changed by key."""

    state: TableState
    files: NamedFiles
    storage: StorageCheck
    sink: str
    changed: bool

    def check(self, findings: AuditFindings) -> None:
        """Checks what can be checked without reading rows."""
        timeline = self.state.timeline
        check_metadata_table(self._metadata, self.files, self.storage.stored, findings)
        check_columns(self.sink, timeline.commits, self.state.table.get_schema().names, findings)
        if self.changed:
            check_merging(self.state.files.properties, findings)
        check_specifications(timeline.commits, findings)

    def check_rows(self, groups: Collection[Group] | None) -> AuditFindings:
        """Compares with the rows of the files of these file groups, or of all, which are read for it."""
        findings = AuditFindings()
        check = IndexCheck(self.state.files, self._metadata, self.state.table.get_schema(), self.changed, findings)
        check.run(self.files, self.storage.broken, groups)
        return findings

    @cached_property
    def _metadata(self) -> MetadataTable:
        return MetadataTable(self.state.files, self.state.timeline)


def check_merging(properties: Mapping[str, str], findings: AuditFindings) -> None:
    """Compares how readers and compactions choose among the rows of a key with how the sink orders them."""
    mode = "EVENT_TIME_ORDERING" if properties.get(_ORDERING) else "COMMIT_TIME_ORDERING"
    found = properties.get(_MODE, mode)
    if found != mode:
        sentence = f"{_MODE} is {found}, and the rows are ordered by {mode}: another row of a key may count"
        findings.add(FindingKind.READERS, sentence)
