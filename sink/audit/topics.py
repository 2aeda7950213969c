"""Compares the log with the table: the records of committed ranges, and records in no range.

Guarantee: every partition of the sink's topics is compared, or named in a finding with the reason, and so is the digest
of every slice, or counted with the reason. Findings also name
offsets of the log before a partition's first range, and of partitions that no checkpoint names. Raises `TryAgain`
like the log's reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from sink.audit.chain import Beginning, Chain, CommittedRange
from sink.audit.checkpoints import AuditedCheckpoint, LogPartition
from sink.audit.compare import LogCheck, RangeGroup, holes_in_log
from sink.audit.coverage import WHOLE, Coverage
from sink.audit.digests import LogDigests
from sink.audit.log import Cleanup, LogRange, LogReader, Receiver, TopicAccess, TopicState
from sink.audit.log_records import LogRecords
from sink.audit.progress import Progress, silent
from sink.audit.report import AuditFindings, FindingKind
from sink.audit.rows import OffsetLedger


@dataclass(frozen=True, slots=True)
class LogComparison:
    """Adds the log's records to the ledger, which has the table's rows and ranges."""

    chain: Chain
    newest: AuditedCheckpoint
    groups: Sequence[RangeGroup]
    provenance: bool
    ledger: OffsetLedger
    findings: AuditFindings
    content: Receiver | None = None
    """Gets the records, too."""
    coverage: Coverage = WHOLE
    progress: Progress = silent
    log_ranges: dict[LogPartition, LogRange] = field(default_factory=dict)

    def run(self, access: TopicAccess) -> LogCheck:
        """Reads the log, sweeps the ledger to find the holes of the log, and reads those with aborted records."""
        ranges = self.coverage.ranges(self.chain.ranges)
        firsts = self._first_offsets(ranges)
        with closing(LogReader(access)) as reader:
            states = reader.topics({*access.topics, *(source.topic for source in self.newest.ends)})
            for source in sorted(self.newest.ends):
                if source in firsts:
                    self._add_range(reader, source, states[source.topic], firsts[source])
            note_unread(reader, states, self.newest, self.findings)
            digests = LogDigests(ranges, len(self.chain.ranges) - len(ranges))
            read, total = 0, sum(span.end - span.start for span in self.log_ranges.values())

            def receive(source: LogPartition, records: LogRecords) -> None:
                nonlocal read
                self.ledger.add_records(source, records.offsets)
                digests.add(source, records)
                if self.content is not None:
                    self.content(source, records)
                read += len(records.offsets)
                self.progress("records of the log", read, total)

            for source, position in sorted(reader.read(self.log_ranges, receive).items()):
                self.findings.add(
                    FindingKind.NOT_IN_LOG,
                    f"{source}: the checkpoint ends at {self.log_ranges[source].end}, the log at {position}",
                )
            spans = {
                source: self._remaining_span(reader, source, span, firsts[source])
                for source, span in self.log_ranges.items()
            }
            self.ledger.sweep()
            cleanup = {name: state.cleanup for name, state in states.items()}
            topic_ids = {name: state.topic_id for name, state in states.items()}
            compared = digests.compare(spans, topic_ids, cleanup, self.findings)
            check = LogCheck(spans, topic_ids, cleanup, compared)
            holes = holes_in_log(self.ledger, check, self.groups, self.provenance)
            reader.read_uncommitted(holes, lambda source, records: self.ledger.add_stored(source, records.offsets))
        self._note_unknown_policies(states)
        return check

    def _first_offsets(self, ranges: Sequence[CommittedRange]) -> Mapping[LogPartition, int]:
        """Returns the first offset of each partition whose log is read: its first one, if all of it is."""
        if self.coverage.is_whole:
            return {source: beginning.offset for source, beginning in self.chain.beginnings.items()}
        firsts: dict[LogPartition, int] = {}
        for entry in ranges:
            start = entry.result.slice.start
            firsts[entry.source] = min(start, firsts.get(entry.source, start))
        return firsts

    def _add_range(self, reader: LogReader, source: LogPartition, state: TopicState, first: int) -> None:
        recorded = self.newest.topics.get(source.topic)
        if state.topic_id is None or source.partition not in state.partitions:
            if state.topic_id == recorded and self.newest.ends[source].end == 0:
                return  # the sink read nothing of it: the topic was created again with fewer partitions
            self.findings.add(FindingKind.UNPROVEN, f"{source} is no longer in Kafka: nothing to compare with")
        elif state.topic_id != recorded:
            self.findings.add(
                FindingKind.TOPIC_ID,
                f"{source}: the checkpoint has topic id {recorded}, Kafka {state.topic_id}: the topic "
                "was created again, so its log cannot be compared with the table",
            )
        else:
            end, beginning = self.newest.ends[source].end, self.chain.beginnings[source]
            start = reader.span(source).start
            if start < beginning.offset:
                self._report_skipped(source, start, beginning)
            self.log_ranges[source] = LogRange(min(max(start, first), end), end)

    def _report_skipped(self, source: LogPartition, start: int, beginning: Beginning) -> None:
        """Reports offsets before the first range. A log's start only rises, so the log had them when the sink began."""
        unread = f"{source}[{start}, {beginning.offset}) is in the log, but before the partition's first range"
        if beginning.added:
            self.findings.add(
                FindingKind.SKIPPED,
                f"{unread}: it was added to a topic that the sink was reading, which should have read all of it",
            )
        else:
            self.findings.add(
                FindingKind.BEFORE,
                f"{unread}: {beginning.offset - start:,} offsets. The sink skipped them on purpose if it began with "
                "auto.offset.reset=latest or `sink reset` moved it there; else they are lost",
            )

    def _remaining_span(self, reader: LogReader, source: LogPartition, span: LogRange, first: int) -> LogRange:
        """Returns the part of the span that the log had both before and after the read."""
        start = min(max(reader.span(source).start, span.start), span.end)
        if first < start:
            self.findings.add(
                FindingKind.EXPIRED,
                f"{source}[{first}, {start}) is no longer in the log: compared with the checkpoints only",
            )
        return LogRange(start, span.end)

    def _note_unknown_policies(self, states: Mapping[str, TopicState]) -> None:
        for name in sorted({source.topic for source in self.log_ranges}):
            if states[name].cleanup is Cleanup.UNKNOWN:
                self.findings.add(
                    FindingKind.UNPROVEN,
                    f"{name}: its cleanup policy cannot be read (that needs DESCRIBE_CONFIGS): for holes in the log "
                    "the audit cannot tell compaction from rows that never were records",
                )


def note_unread(
    reader: LogReader, states: Mapping[str, TopicState], newest: AuditedCheckpoint | None, findings: AuditFindings
) -> None:
    """Notes partitions that no checkpoint names: the sink has not read them yet."""
    ends = newest.ends if newest else {}
    recorded = newest.topics if newest else {}
    for name, state in sorted(states.items()):
        if state.topic_id is None:
            if name not in recorded:
                findings.add(FindingKind.UNPROVEN, f"topic {name} is not in Kafka, and no checkpoint names it")
            continue
        # The partitions of a topic that was created again have findings of their own.
        if recorded.get(name, state.topic_id) != state.topic_id:
            continue
        for partition in sorted(state.partitions):
            source = LogPartition(name, partition)
            if source in ends:
                continue
            span = reader.span(source)
            if span.end:
                findings.add(
                    FindingKind.UNREAD,
                    f"{source} is in no checkpoint: none of its {span.end - span.start:,} offsets "
                    f"[{span.start}, {span.end}) has landed yet",
                )
