"""Checks what the table has beside rows, by which readers and writers find them: columns, metadata table and indexes.

Guarantee: that of the three. Raises what the store raises.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sink.audit.columns import check_columns
from sink.audit.content.indexes import IndexCheck
from sink.audit.files import Group, NamedFiles, StorageCheck
from sink.audit.metadata_table import MetadataTable, check_metadata_table
from sink.audit.report import AuditFindings
from sink.audit.state import TableState


@dataclass(frozen=True, slots=True)
class BesideRows:
    """`changed`: rows are changed by key."""

    state: TableState
    files: NamedFiles
    storage: StorageCheck
    sink: str
    changed: bool

    def check(self, with_rows: bool, groups: Collection[Group] | None, findings: AuditFindings) -> None:
        """`with_rows` compares with the rows of the files of these file groups, or of all, which are read for it."""
        table, timeline = self.state.files, self.state.timeline
        schema = self.state.table.get_schema()
        metadata = MetadataTable(table, timeline)
        check_metadata_table(metadata, self.files, self.storage.stored, findings)
        check_columns(self.sink, timeline.commits, schema.names, findings)
        if with_rows:
            IndexCheck(table, metadata, schema, self.changed, findings).run(self.files, self.storage.broken, groups)
