"""The comparison of contents as a whole: from commits and the log's records to what was compared.

Guarantee: that of `sink.audit.content.cells`. Raises what hudi-rs raises.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from sink.audit.chain import CommittedRange
from sink.audit.checkpoints import LogPartition
from sink.audit.compare import LogCheck
from sink.audit.content.bad_rows import DecodedRanges, ErrorsTableRows
from sink.audit.content.cells import META_COLUMNS, Comparison, TableRows, Unread
from sink.audit.content.changes import Ordering
from sink.audit.content.expected import ExpectedForm, ExpectedRows, Range
from sink.audit.content.owners import NO_COMMIT, Coordinates, OwnedRange, numbers_beside, owned_beside
from sink.audit.content.places import Places
from sink.audit.content.repairs import repaired
from sink.audit.content.specification import NotComparable, Specification, specification_of
from sink.audit.content.widening import widened
from sink.audit.coverage import Coverage
from sink.audit.failures import CannotAudit
from sink.audit.log import Cleanup
from sink.audit.log_records import LogRecords
from sink.audit.report import EDITED, AuditFindings, ContentCount, FindingKind
from sink.audit.rows import Stream
from sink.audit.timeline import Commit
from sink.storage.hudi_rs import raised_by_hudi
from sink.storage.table_files import TableFiles

_HUDIS = frozenset(
    f"_hoodie_{name}"
    for name in ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name", "operation")
)
"""The columns that Hudi fills by itself."""
_OTHER_TOPIC = "another topic id"
_GONE = "no longer in Kafka"


class ContentAudit:
    """Compares the rows of one sink. Call `read_table`, `receive` with the log's records, `compare`, and `close`."""

    def __init__(
        self,
        sink: str,
        files: TableFiles,
        schema: pa.Schema,
        commits: Sequence[Commit],
        ranges: Sequence[CommittedRange],
        topic_ids: Mapping[str, str],
        ordering: Ordering | None,
        scratch: Path,
        coverage: Coverage,
    ) -> None:
        """`schema` has the table's columns, `topic_ids` are those of the newest checkpoint. `ordering` is that of a
        table whose rows are changed."""
        self._scratch, self._coverage = scratch, coverage
        own = [name for name in schema.names if name not in _HUDIS]
        self._target = ExpectedForm(
            pa.schema([schema.field(name) for name in own]), Places.of(files.properties), ordering
        )
        self._has_meta = files.properties.get("hoodie.populate.meta.fields", "true") == "true"
        self._require_commits(files.base_path)
        specifications = _Specifications(sink, commits)
        found = _Compared(sink, commits, topic_ids, coverage, specifications)
        found.collect(ranges)
        self._coordinates = _coordinates(sink, commits, found)
        sources = self._coordinates.sources
        self._reasons = {(sources[source], number): why for (source, number), why in found.reasons.items()}
        self._left_out = {(sources[source], number) for source, number in found.left_out}
        self._specification_of, self._ranges = found.specification_of, found.by_source
        self.bad_rows = ErrorsTableRows(sink, ranges, topic_ids, self._coordinates, coverage)
        read = specifications.read(files)
        floats = widened(self._target.columns, {number: read[spec] for number, spec in found.specification_of.items()})
        # Rows that do not name their commits are of any.
        self._floats = floats if self._has_meta else {name: [NO_COMMIT] for name in floats}
        self._expected = ExpectedRows(scratch, self._target, sources, found.by_source, read)
        self._rows = TableRows(scratch, self._target, self._coordinates, self._has_meta)

    def _require_commits(self, base_path: str) -> None:
        """Raises CannotAudit for a part of a table whose rows do not name their commits."""
        if not (self._has_meta or self._coverage.is_whole):
            raise CannotAudit(
                f"{base_path}: its rows do not name their commits (hoodie.populate.meta.fields=false): compare"
                " all of the contents"
            )

    @property
    def columns(self) -> list[str]:
        """The columns of the table that are read."""
        return [*(META_COLUMNS if self._has_meta else ()), *self._target.columns.names]

    def receive(self, source: LogPartition, records: LogRecords) -> None:
        self._expected.add(source, records)
        self.bad_rows.receive(source, records)

    def read_table(self, streams: Iterable[tuple[str, str, Stream]], findings: AuditFindings) -> None:
        """`streams` are table partition, file and rows. Before the log: a cleaner takes files away meanwhile."""
        for partition, path, stream in streams:
            try:
                self._rows.add(partition, path, stream)
            except Exception as error:
                if not raised_by_hudi(error):
                    raise
                findings.add(FindingKind.FILE_UNREADABLE, f"{path}: {str(error)[:300]}")

    def compare(self, check: LogCheck, removed: int, findings: AuditFindings) -> ContentCount:
        """`removed` is how many rows other writers can have deleted."""
        self._expected.finish()
        unread = self._unread(check)
        decoded = DecodedRanges(self._expected.folder, self._ranges, self._expected.reasons, self._specification_of)
        errors_not_compared = self.bad_rows.compare(decoded, unread, findings)
        comparison = Comparison(
            self._scratch,
            self._target,
            self._rows,
            self._expected.folder,
            self._coordinates,
            self._has_meta,
            findings,
            removed,
            self._coverage.is_suffix,
            self._floats,
        )
        return replace(comparison.run(unread), errors_not_compared=errors_not_compared)

    def _unread(self, check: LogCheck) -> Unread:
        sources = self._coordinates.sources
        firsts = {number: check.spans[source].start for source, number in sources.items() if source in check.spans}
        topics = {number: source.topic for source, number in sources.items()}

        def reason(source: int, commit: int) -> str:
            if (why := self._reasons.get((source, commit))) is not None:
                return why
            if (why := self._expected.reasons.get(self._specification_of.get(commit, -1))) is not None:
                return why
            if source not in firsts:
                return _GONE
            compacts = check.cleanup.get(topics[source]) is Cleanup.COMPACT
            return "compacted away" if compacts else "records missing in the log"

        return Unread(firsts, reason, self._left_out)

    def close(self) -> None:
        self._expected.close()


@dataclass
class _Compared:
    """The ranges of a sink that are compared, by partition, and those that are not. Commits are numbered."""

    sink: str
    commits: Sequence[Commit]
    topic_ids: Mapping[str, str]
    coverage: Coverage
    specifications: _Specifications
    by_source: dict[LogPartition, list[Range]] = field(default_factory=lambda: defaultdict(list))
    numbers: dict[str, int] = field(default_factory=dict)
    reasons: dict[tuple[LogPartition, int], str] = field(default_factory=dict)
    """Why the rows of a partition and commit have nothing to be compared with."""
    left_out: set[tuple[LogPartition, int]] = field(default_factory=set)
    again: dict[str, list[tuple[LogPartition, int, int, int]]] = field(default_factory=lambda: defaultdict(list))
    """By the instant of a repair: offsets that it has landed again, with the number of their first commit."""
    owned: list[OwnedRange] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._by_instant = {commit.instant: commit for commit in self.commits}

    def collect(self, ranges: Iterable[CommittedRange]) -> None:
        for entry in ranges:
            piece = entry.result.slice
            for low, high, repair in repaired(self.sink, self.commits, piece):
                self._add(entry.source, piece.topic_id, low, high, entry.instant, repair or entry.instant)
                if repair:
                    self.again[repair].append((entry.source, low, high, self.numbers[entry.instant]))
        for commit in self.commits:
            for run in commit.replayed.get(self.sink, ()):
                source = LogPartition(run.topic, run.partition)
                self._add(source, run.topic_id, run.low, run.high, commit.instant, commit.instant)

    def _add(self, source: LogPartition, topic_id: str, low: int, high: int, instant: str, decoded_by: str) -> None:
        number = self.numbers.setdefault(instant, len(self.numbers))
        found = self.by_source[source]
        self.owned.append(OwnedRange(source, number, low, high))
        if not self.coverage.has_contents(source, instant):
            self.left_out.add((source, number))
        elif self.sink in self._by_instant[instant].edited:
            self.reasons[source, number] = EDITED
        elif self.topic_ids.get(source.topic) == topic_id:
            found.append(Range(low, high, number, self.specifications.number(self._by_instant[decoded_by])))
        else:
            self.reasons[source, number] = _OTHER_TOPIC

    @property
    def specification_of(self) -> dict[int, int]:
        """Returns the number of the specification of each commit, by number."""
        return {number: self.specifications.number(self._by_instant[name]) for name, number in self.numbers.items()}


def _coordinates(sink: str, commits: Sequence[Commit], found: _Compared) -> Coordinates:
    order = {commit.instant: position for position, commit in enumerate(commits)}
    numbers = numbers_beside(sink, commits) | found.numbers
    owned = [*found.owned, *owned_beside(sink, commits, numbers)]
    sources = sorted({each.source for each in owned})
    return Coordinates(
        {source: number for number, source in enumerate(sources)},
        numbers,
        {number: order[instant] for instant, number in found.numbers.items()},
        found.again,
        owned,
        {numbers[commit.instant]: commit.written for commit in commits if commit.by_others},
    )


class _Specifications:
    """The different specifications of a sink's commits, by number."""

    def __init__(self, sink: str, commits: Iterable[Commit]) -> None:
        self._sink = sink
        self._numbers: dict[tuple[str | None, str], int] = {}
        self._ids: dict[int, dict[str, str]] = {}
        for commit in commits:
            checkpoint = commit.checkpoints.get(sink)
            if checkpoint is not None or sink in commit.replayed:
                known = self._ids.setdefault(self.number(commit), {})
                known |= checkpoint.schemas if checkpoint else {}

    def number(self, commit: Commit) -> int:
        key = commit.specifications.get(self._sink), commit.schema
        return self._numbers.setdefault(key, len(self._numbers))

    def read(self, files: TableFiles) -> dict[int, Specification | str]:
        """Returns each, or why rows cannot be compared by it."""
        found: dict[int, Specification | str] = {}
        for (text, schema), number in self._numbers.items():
            try:
                found[number] = specification_of(text, schema, self._ids.get(number, {}), files)
            except NotComparable as error:
                found[number] = str(error)
        return found
