"""Compares rows, committed ranges and the log in the ledger, and reports findings.

Guarantee: counts are exact; sentences name partition, offsets and files. Rows that other writers added or deleted are
recognised only by their number: a difference that their commits can explain is a note.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sink.audit.chain import CommittedRange
from sink.audit.checkpoints import AuditedCheckpoint, LogPartition
from sink.audit.files import NamedFiles
from sink.audit.log import Cleanup, LogRange
from sink.audit.report import (
    COUNTED_REPAIRS,
    SHOWN_OF_A_KIND,
    AuditFindings,
    ContentCount,
    DigestCount,
    FindingKind,
    PartitionRow,
)
from sink.audit.rows import OffsetLedger, Segment, SourceCounts
from sink.audit.timeline import Commit

NOTHING = SourceCounts(0, None, None, 0, 0)


@dataclass(frozen=True, slots=True)
class RangeGroup:
    """Ranges of one partition that overlap (after a reset); nearly always a single range."""

    source: LogPartition
    low: int
    high: int
    ranges: tuple[CommittedRange, ...]

    @property
    def records(self) -> int:
        """Records of the ranges, in the table or in the errors table."""
        return sum(entry.result.records + entry.result.errors for entry in self.ranges)

    @property
    def gaps(self) -> int:
        """Offsets that no write status counted as a record."""
        return max(0, self.high - self.low - max(e.result.records + e.result.errors for e in self.ranges))

    def __str__(self) -> str:
        listed = "; ".join(map(str, self.ranges[:3]))
        return f"{listed} and {len(self.ranges) - 3} more" if len(self.ranges) > 3 else listed


@dataclass(frozen=True, slots=True)
class LogCheck:
    """The comparison with the log: spans by partition, and the topics' ids and cleanup policies."""

    spans: Mapping[LogPartition, LogRange]
    topic_ids: Mapping[str, str | None]
    """None for a topic that is not in Kafka."""
    cleanup: Mapping[str, Cleanup]
    digests: DigestCount = field(default_factory=DigestCount)

    def compares(self, group: RangeGroup) -> bool:
        """Returns whether the log still has all offsets of this group, so that counts can be compared. The log of a
        topic that was created again has none of those before."""
        span = self.spans.get(group.source)
        if span is None or group.low < span.start or group.high > span.end or len(group.ranges) > 1:
            return False
        return group.ranges[0].result.slice.topic_id == self.topic_ids.get(group.source.topic)

    def hole_reason(self, topic: str) -> str:
        """Tells why the log may have holes where the table has rows."""
        match self.cleanup.get(topic, Cleanup.UNKNOWN):
            case Cleanup.COMPACT:
                return "compacted away since"
            case Cleanup.DELETE:
                return "compacted away by an earlier cleanup policy (it is delete now), or never records"
            case _:
                return "compacted away, or never records: the topic's cleanup policy cannot be read"


def range_groups(ranges: Iterable[CommittedRange]) -> list[RangeGroup]:
    groups: list[RangeGroup] = []
    ordered = sorted(ranges, key=lambda r: (r.source, r.result.slice.start, r.number))
    open_ranges: list[CommittedRange] = []
    high = -1
    for entry in ordered:
        if open_ranges and (entry.source != open_ranges[0].source or entry.result.slice.start >= high):
            groups.append(_group(open_ranges))
            open_ranges, high = [], -1
        open_ranges.append(entry)
        high = max(high, entry.result.slice.end)
    if open_ranges:
        groups.append(_group(open_ranges))
    return groups


def _group(ranges: Sequence[CommittedRange]) -> RangeGroup:
    slices = [entry.result.slice for entry in ranges]
    return RangeGroup(ranges[0].source, slices[0].start, max(s.end for s in slices), tuple(ranges))


def check_duplicates(ledger: OffsetLedger, findings: AuditFindings) -> None:
    def duplicate(segment: Segment) -> str:
        files = ledger.files_of(segment)
        locations = ", ".join(files[:4]) + (f" and {len(files) - 4} more" if len(files) > 4 else "")
        allowed = f" where {segment.covered} ranges cover it" if segment.covered > 1 else ""
        return f"{segment} is in the table {segment.landed} times{allowed}: {locations}"

    _add_segments(findings, ledger, FindingKind.DUPLICATE, "landed > greatest(covered, 1)", duplicate)
    _note_repairs(findings, ledger, "landed > covered AND covered > 0")
    replayed = "{0} was committed {0.covered} times, in generations of its own"
    _add_segments(findings, ledger, FindingKind.REPLAYED, "covered > 1", replayed.format, limit=3)


def check_outside(ledger: OffsetLedger, unplaced: int, commits: Sequence[Commit], findings: AuditFindings) -> None:
    """Checks rows in no committed range, or without coordinates: other writers may have inserted them."""
    condition = "landed > 0 AND covered = 0"
    outside = sum(ledger.offsets_by_source(condition, "landed").values()) + unplaced
    if not outside:
        return
    foreign_commits = [commit for commit in commits if commit.by_others and commit.inserted]
    inserted = sum(commit.inserted for commit in foreign_commits)
    if outside <= inserted:
        commit_texts = ", ".join(map(str, foreign_commits[:5]))
        sentence = f"{outside:,} rows belong to no range; other writers inserted {inserted:,}: {commit_texts}"
        findings.add(FindingKind.OTHERS, sentence)
        return

    def outside_ranges(segment: Segment) -> str:
        return f"{segment} is in the table, but in no committed range: {', '.join(ledger.files_of(segment)[:3])}"

    _add_segments(findings, ledger, FindingKind.OUTSIDE, condition, outside_ranges)
    if unplaced:
        findings.add(FindingKind.OUTSIDE, f"{unplaced:,} rows have no topic, partition or offset")


def check_ranges(
    ledger: OffsetLedger, groups: Sequence[RangeGroup], log: LogCheck | None, files: NamedFiles, findings: AuditFindings
) -> dict[LogPartition, int]:
    """Returns the missing rows of each partition, by the counts of the write statuses and, if it was read, the log."""
    missing_findings = AuditFindings()
    missing_repairs: list[RangeGroup] = []
    short: dict[LogPartition, int] = defaultdict(int)
    for group, rows in zip(groups, ledger.landed_in([(g.source, g.low, g.high) for g in groups]), strict=True):
        if rows != group.records and log is None:
            missing_repairs.append(group)
        if rows < group.records:
            short[group.source] += group.records - rows
            missing_findings.add(
                FindingKind.MISSING,
                f"{group}: {group.records:,} records by the write status, {rows:,} rows in the table",
            )
        elif rows > group.records:
            findings.add(
                FindingKind.SURPLUS,
                f"{group}: {group.records:,} records by the write status, {rows:,} rows in the table",
            )
    missing = dict(short)
    if log is not None:
        condition = "logged > 0 AND covered > 0 AND landed = 0"
        sentence = "{} is in the log and in a committed range, but not in the table"
        _add_segments(missing_findings, ledger, FindingKind.MISSING, condition, sentence.format)
        for source, count in ledger.offsets_by_source(condition).items():
            missing[source] = max(missing.get(source, 0), count)
    missing_total, removed = sum(missing.values()), sum(count for _, count in files.removals)
    if missing_total and missing_total <= removed:
        removal_texts = ", ".join(f"{commit} up to {count:,}" for commit, count in files.removals[:5])
        findings.add(
            FindingKind.OTHERS,
            f"{missing_total:,} rows are gone; commits of other writers deleted them: {removal_texts}",
        )
        return {}
    findings.extend(missing_findings.all())
    if log is not None:
        _note_repairs(findings, ledger, "logged > 0 AND covered > 0 AND landed = 0")
    for group in missing_repairs:
        # Without the log nobody knows which of them.
        findings.repair(group.source.topic, group.source.partition, group.low, group.high)
    return missing


def holes_in_log(
    ledger: OffsetLedger, log: LogCheck, groups: Sequence[RangeGroup], provenance: bool
) -> dict[LogPartition, LogRange]:
    """Returns the offsets of rows (or counted records) that the log does not deliver. The audit reads them again with
    aborted records, to see which were aborted."""
    if provenance:
        source_holes = {source: ledger.holes(source, span.start, span.end) for source, span in log.spans.items()}
        return {source: LogRange(holes.low, holes.high) for source, holes in source_holes.items() if holes}
    ranges: dict[LogPartition, LogRange] = {}
    for group, logged in _logged(ledger, groups):
        if log.compares(group) and logged < group.records:
            range_so_far = ranges.get(group.source, LogRange(group.low, group.high))
            ranges[group.source] = LogRange(min(range_so_far.start, group.low), max(range_so_far.end, group.high))
    return ranges


def check_log(ledger: OffsetLedger, log: LogCheck, findings: AuditFindings) -> None:
    """Checks rows that the log does not deliver. Aborted records must not be in the table. Other holes are only notes:
    compaction leaves holes, and Kafka does not tell whether a topic was ever compacted."""
    for source, span in sorted(log.spans.items(), key=lambda item: item[0]):
        holes = ledger.holes(source, span.start, span.end)
        if holes is None:
            continue
        condition = f"source = {ledger.source(source)} AND landed > 0 AND covered > 0"
        sentence = "{} is in the table, but the log does not deliver it: its transaction was aborted"
        aborted = _add_segments(findings, ledger, FindingKind.NOT_IN_LOG, condition, sentence.format, 3, "aborted")
        _note_hole(source, holes.offsets - aborted, log, findings)


def _note_hole(source: LogPartition, offsets: int, log: LogCheck, findings: AuditFindings) -> None:
    if offsets > 0:
        compacted = log.cleanup.get(source.topic) is Cleanup.COMPACT
        findings.add(
            FindingKind.COMPACTED if compacted else FindingKind.HOLE,
            f"{source}: {offsets:,} offsets of the table are not in the log: {log.hole_reason(source.topic)}; compared "
            "with the checkpoints only",
        )


def _logged(ledger: OffsetLedger, groups: Sequence[RangeGroup]) -> Iterator[tuple[RangeGroup, int]]:
    return zip(groups, ledger.logged_in([(g.source, g.low, g.high) for g in groups]), strict=True)


def check_changed(
    ledger: OffsetLedger,
    groups: Sequence[RangeGroup],
    log: LogCheck | None,
    content: ContentCount | None,
    findings: AuditFindings,
) -> None:
    """Checks an upsert table: without contents only the number of records in its commits can be compared."""
    if content is None:
        findings.add(
            FindingKind.UNPROVEN,
            "rows of this table are changed and deleted by key, so its rows are not its records: proven are the chain"
            " of checkpoints, the files that it names, the number of records in each range, and that no key has two"
            " rows in a table partition; not that each record took effect, which --content proves",
        )
    if log is not None:
        _check_counts(ledger, groups, log, findings)


def check_totals(
    ledger: OffsetLedger,
    groups: Sequence[RangeGroup],
    rows: int,
    log: LogCheck | None,
    commits: Sequence[Commit],
    files: NamedFiles,
    findings: AuditFindings,
) -> None:
    """Checks a table without provenance columns: only counts can be compared."""
    findings.add(
        FindingKind.UNPROVEN,
        "the table has no provenance columns: only counts are compared; a missing record and a duplicate "
        "would cancel out",
    )
    records = sum(group.records for group in groups)
    inserted = sum(commit.inserted for commit in commits if commit.by_others)
    removed = sum(count for _, count in files.removals)
    if rows < records + inserted - removed:
        findings.add(FindingKind.MISSING, f"{records:,} records were committed, the table has {rows:,} rows")
    elif rows > records + inserted:
        findings.add(FindingKind.SURPLUS, f"{records:,} records were committed, the table has {rows:,} rows")
    if log is not None:
        _check_counts(ledger, groups, log, findings)


def _check_counts(ledger: OffsetLedger, groups: Sequence[RangeGroup], log: LogCheck, findings: AuditFindings) -> None:
    for group, logged in _logged(ledger, groups):
        if not log.compares(group) or logged == group.records:
            continue
        counts = f"{group}: {logged:,} records in the log, {group.records:,} were committed"
        if logged > group.records:
            findings.add(FindingKind.MISSING, counts)
            continue
        # An offset that the log lacks may have been a record; an aborted one never was.
        holes = group.high - group.low - ledger.stored_in(group.source, group.low, group.high)
        if group.records > logged + holes:
            findings.add(FindingKind.NOT_IN_LOG, f"{counts}, and only {holes:,} offsets can have been compacted away")
        else:
            _note_hole(group.source, group.records - logged, log, findings)


def partition_rows(
    ledger: OffsetLedger,
    newest: AuditedCheckpoint,
    missing: Mapping[LogPartition, int],
    groups: Sequence[RangeGroup],
    provenance: bool,
    errors: Mapping[LogPartition, int],
) -> tuple[PartitionRow, ...]:
    """Returns a row for each partition: with provenance the rows found, else the records counted."""
    gaps: dict[LogPartition, int] = defaultdict(int)
    records: dict[LogPartition, int] = defaultdict(int)
    for group in groups:
        gaps[group.source] += group.gaps
        records[group.source] += group.records
    counts = ledger.counts()
    rows = []
    for source in sorted(newest.ends.keys() | {source for source, count in counts.items() if count.outside}):
        count = counts.get(source, NOTHING)
        rows.append(
            PartitionRow(
                topic=source.topic,
                partition=source.partition,
                rows=(count.rows if provenance else records[source]) - errors.get(source, 0),
                first=count.first,
                last=count.last,
                end=newest.ends[source].end if source in newest.ends else 0,
                duplicates=count.duplicates,
                missing=missing.get(source, 0),
                outside=count.outside,
                gaps=gaps[source],
                errors=errors.get(source, 0),
            )
        )
    return tuple(rows)


def _note_repairs(findings: AuditFindings, ledger: OffsetLedger, condition: str) -> None:
    for segment in ledger.segments(condition, COUNTED_REPAIRS)[0]:
        findings.repair(segment.source.topic, segment.source.partition, segment.low, segment.high)


def _add_segments(
    findings: AuditFindings,
    ledger: OffsetLedger,
    kind: FindingKind,
    condition: str,
    sentence: Callable[[Segment], str],
    limit: int = SHOWN_OF_A_KIND,
    table: str = "segments",
) -> int:
    """Adds a finding for each of the first segments that fulfil an SQL `condition`, and the number of further ones.
    Returns the number of all their offsets.
    """
    segments, total, offsets = ledger.segments(condition, limit, table)
    for segment in segments:
        findings.add(kind, sentence(segment))
    if total > len(segments):
        findings.add(kind, f"and {total - len(segments):,} more runs of offsets")
    return offsets
