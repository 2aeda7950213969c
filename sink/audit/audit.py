"""Audits a table against its checkpoints and the Kafka log: every record exactly once.

Guarantee: a report that `held` proves that the checkpoints form one chain without hole or overlap; that every committed
range has as many rows as its write status counted, and no offset twice; that the files are those that the commits name;
and, if the topics could be read, that no record that the log still delivers is missing, and that the sink has read the
same keys and values. The audit shares no code with the writer but `sink.storage`, which opens files: hudi-rs and DuckDB
read the rows, readers of its own the timeline, the checkpoints and the log. `docs/audit.md` says what voids it. Raises
what is in `sink.audit.failures`: `CannotAudit` (no checkpoint of the sink, a damaged log), `OtherFormat` (a checkpoint
of another release), `TryAgain` (Kafka, or a table that changes during every look). What `sink.storage` raises passes
through (no table), and KafkaException for settings that librdkafka refuses.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from sink.audit.beside_rows import BesideRows
from sink.audit.chain import Chain, check_chain
from sink.audit.checkpoints import AuditedCheckpoint, LogPartition
from sink.audit.compare import (
    LogCheck,
    RangeGroup,
    check_changed,
    check_duplicates,
    check_log,
    check_outside,
    check_ranges,
    check_totals,
    partition_rows,
    range_groups,
)
from sink.audit.content.bad_rows import COLUMNS as BAD_COLUMNS
from sink.audit.content.changes import Ordering
from sink.audit.content.comparison import ContentAudit
from sink.audit.coverage import WHOLE, Coverage
from sink.audit.errors import add_errors, errors_of
from sink.audit.failures import CannotAudit, TryAgain
from sink.audit.files import check_storage, check_uncommitted, check_view, named_files
from sink.audit.keys import HUDIS, check_keys
from sink.audit.log import LogReader, TopicAccess
from sink.audit.progress import Progress, silent
from sink.audit.readers import ReaderComparison
from sink.audit.report import AuditFindings, ContentCount, FindingKind, Report
from sink.audit.rows import PROVENANCE, OffsetLedger, provenance_of
from sink.audit.slices import NamedStream, Slices, SparkRows
from sink.audit.state import TableState, read_table_state
from sink.audit.timeline import AuditedTimeline
from sink.audit.topics import LogComparison, note_unread
from sink.storage.access import NO_ACCESS, Access
from sink.storage.faults import fault_in
from sink.storage.table_files import open_table

__all__ = ["Report", "TopicAccess", "audit"]


@dataclass(frozen=True, slots=True)
class _Asked:
    """The arguments of `audit`."""

    access: TopicAccess | None
    errors_path: str
    global_keys: bool
    content: bool
    coverage: Coverage
    progress: Progress
    spark: SparkRows | None
    readers: Sequence[str]


def audit(
    base_path: str,
    sink: str | None = None,
    access: TopicAccess | None = None,
    errors: str | None = None,
    storage: Access = NO_ACCESS,
    global_keys: bool = False,
    content: bool = False,
    coverage: Coverage = WHOLE,
    progress: Progress = silent,
    spark: SparkRows | None = None,
    readers: Sequence[str] = (),
) -> Report:
    """Audits the table at `base_path`. `sink` may be omitted if the table has only one. `errors` is the base path of
    the errors table, if not the default; the audit reads it only if a commit counts bad records. With `global_keys` a
    record key has one row in the whole table, without in each of its partitions.

    Without `access` the audit does not read the log, and compares the rows with the checkpoints only. With `content` it
    compares each cell with the log. `coverage` is the part of the log, and of the contents, that is compared; table and
    checkpoints are read as a whole. `spark` reads rows that hudi-rs does not; the rows that `readers` return, which are
    those of `READERS`, are compared with those of the files.
    """
    started = time.monotonic()
    with _available(base_path, storage):
        state = read_table_state(open_table(base_path, storage))
        asked = _Asked(
            access, errors or f"{base_path}_errors", global_keys, content, coverage, progress, spark, readers
        )
        report = _audit(state, sink, asked)
    return replace(report, seconds=time.monotonic() - started)


@contextmanager
def _available(base_path: str, storage: Access) -> Iterator[None]:
    """Raises TryAgain for an error of the store."""
    try:
        yield
    except OSError as error:
        fault = fault_in(str(error), base_path, storage)
        reason = f"{base_path} cannot be read: {str(error)[:300]}. Try again."
        raise TryAgain(fault.sentence if fault else reason) from error


def _audit(state: TableState, sink: str | None, asked: _Asked) -> Report:
    base_path = state.files.base_path
    timeline = state.timeline
    findings = AuditFindings()
    if not timeline.commits and not timeline.problems:
        report = Report(base_path, sink)
        _note_empty(state, asked.access, findings)
    else:
        name = _choose(base_path, sink, timeline)
        findings.extend(timeline.problems)
        chain = check_chain(name, timeline.commits)
        findings.extend(chain.findings)
        others = sum(commit.by_others for commit in timeline.commits)
        through = max((commit.instant for commit in timeline.commits if name in commit.checkpoints), default="")
        report = Report(base_path, name, commits=chain.links, others=others, files=len(state.slices), through=through)
        if chain.newest is None:
            findings.add(FindingKind.NO_CHECKPOINT, f"no checkpoint of sink {name} is readable: nothing can be proven")
        elif timeline.active:
            with (
                tempfile.TemporaryDirectory(prefix="sink-audit-") as scratch,
                closing(OffsetLedger(Path(scratch))) as ledger,
                ThreadPoolExecutor(1) as thread,
            ):
                comparison = _Comparison(state, chain, chain.newest, asked, ledger, Path(scratch), findings, thread)
                report = comparison.complete(report)
    return replace(report, findings=findings.all(), repair=findings.repairs())


@dataclass(frozen=True, slots=True)
class _FilesRead:
    """The number of rows, and of those without an offset; visible files that hudi-rs does not show."""

    rows: int
    unplaced: int
    unshown: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Collects rows, errors table and log in the ledger, and compares them with the chain's ranges."""

    state: TableState
    chain: Chain
    newest: AuditedCheckpoint
    asked: _Asked
    ledger: OffsetLedger
    scratch: Path
    findings: AuditFindings
    thread: ThreadPoolExecutor
    later: list[Future[AuditFindings]] = field(default_factory=list)
    """Findings of the thread."""

    def complete(self, report: Report) -> Report:
        """Returns the report with what the comparison counted."""
        state, asked, ledger, findings = self.state, self.asked, self.ledger, self.findings
        chosen = asked.coverage.partitions
        if chosen and chosen.isdisjoint(self.newest.ends):
            names = ", ".join(map(str, sorted(chosen)))
            raise CannotAudit(f"{state.files.base_path}: no checkpoint of sink {self.newest.sink} names {names}")
        commits = state.timeline.commits
        commit_files = named_files(commits)
        for gap in self.newest.gaps:
            sentence = f"{gap.topic}-{gap.partition}[{gap.start}, {gap.end}) was lost by the log and skipped"
            findings.add(FindingKind.GAP, sentence)
        others = [name for name in state.timeline.sinks if name != self.newest.sink]
        by_sink = {self.newest.sink: self.chain.ranges}
        by_sink |= {name: check_chain(name, commits).ranges for name in others}
        ranges = [entry for sink_ranges in by_sink.values() for entry in sink_ranges]
        ledger.add_ranges((r.source, r.result.slice.start, r.result.slice.end) for r in ranges)
        changed = any(commit.changes_rows for commit in commits)
        provenance = provenance_of(state.table) and not changed
        slices = Slices(state, commit_files, self.scratch, findings, asked.spark)
        read = self._read_files(slices, changed, provenance)
        if asked.readers:
            ReaderComparison(slices, read.unshown, findings).run(asked.readers, asked.progress)
        errors, replayed = add_errors(asked.errors_path, by_sink, commits, ledger, findings, state.files.access)
        groups = range_groups(ranges)
        log = content = None
        if asked.access is None:
            findings.add(FindingKind.UNPROVEN, "the log was not read: rows are compared with the checkpoints only")
            ledger.sweep()
        else:
            log, content = self._read_log(asked.access, slices, read, groups, errors.total() + replayed)
        for found in self.later:
            findings.extend(found.result().all())
        missing: dict[LogPartition, int] = {}
        if changed:
            check_changed(ledger, groups, log, content, findings)
        elif provenance:
            check_duplicates(ledger, findings)
            check_outside(ledger, read.unplaced, commits, findings)
            missing = check_ranges(ledger, groups, log, commit_files, findings)
            if log is not None:
                check_log(ledger, log, findings)
        else:
            check_totals(ledger, groups, read.rows + errors.total(), log, commits, commit_files, findings)
        return replace(
            report,
            partitions=partition_rows(ledger, self.newest, missing, groups, provenance, errors),
            rows=read.rows,
            provenance=provenance,
            log_checked=log is not None and bool(log.spans),
            digests=None if log is None else log.digests,
            errors=errors.total(),
            replayed=replayed,
            changed=changed,
            content=content or self._without_contents(read.rows),
            coverage="" if log is None else str(asked.coverage),
        )

    def _read_log(
        self,
        access: TopicAccess,
        slices: Slices,
        read: _FilesRead,
        groups: Sequence[RangeGroup],
        bad: int,
    ) -> tuple[LogCheck, ContentCount | None]:
        """Compares with the log, and with it the contents, if anybody asked. `bad` counts rows of the errors table."""
        state, asked, findings = self.state, self.asked, self.findings
        changed = any(commit.changes_rows for commit in state.timeline.commits)
        has_provenance = provenance_of(state.table)
        with self._contents(has_provenance, changed) as contents:
            receive = None
            if contents is not None:
                streams = list(slices.streams(contents.columns, read.unshown, self._touched()))
                contents.read_table(self._told("files", streams), findings)
                if bad:
                    contents.bad_rows.read(errors_of(asked.errors_path, BAD_COLUMNS, state.files.access))
                receive = contents.receive
            log = LogComparison(
                self.chain,
                self.newest,
                groups,
                has_provenance and not changed,
                self.ledger,
                findings,
                receive,
                asked.coverage,
                asked.progress,
            ).run(access)
            removed = slices.files.removed_beside(self.newest.sink)
            return log, None if contents is None else contents.compare(log, removed, findings)

    def _touched(self) -> Collection[tuple[str, str]] | None:
        """Returns the file groups, by table partition and id, that have rows of the coverage; None for all."""
        since = self.asked.coverage.since
        if not since:
            return None
        commits = [commit for commit in self.state.timeline.commits if commit.instant >= since]
        return {(file.partition_path, file.file_id) for commit in commits for file in commit.files}

    def _told(self, step: str, streams: Sequence[NamedStream]) -> Iterator[NamedStream]:
        for number, stream in enumerate(streams, 1):
            yield stream
            self.asked.progress(step, number, len(streams))

    @contextmanager
    def _contents(self, provenance: bool, changed: bool) -> Iterator[ContentAudit | None]:
        """Yields what compares contents; None if nobody asked, or the table has nothing to compare by."""
        if not self.asked.content or not provenance:
            yield None
            return
        fields = self.state.files.properties.get("hoodie.table.ordering.fields", "")
        ordering = Ordering(tuple(filter(None, fields.split(","))), self.asked.global_keys) if changed else None
        contents = ContentAudit(
            self.newest.sink,
            self.state.files,
            self.state.table.get_schema(),
            self.state.timeline.commits,
            self.chain.ranges,
            self.newest.topics,
            ordering,
            self.scratch,
            self.asked.coverage,
        )
        with closing(contents):
            yield contents

    def _without_contents(self, rows: int) -> ContentCount | None:
        if not self.asked.content:
            return None
        return ContentCount(
            rows, 0, 0, 0, 0, not_compared={"rows without offsets, or of a log that was not read": rows}
        )

    def _read_files(self, slices: Slices, changed: bool, provenance: bool) -> _FilesRead:
        """Checks the files that the commits name. Reads every row that a reader can see, in files that hudi-rs shows
        and in visible files that it does not; only the keys if rows are changed by key.
        """
        state, commit_files = self.state, slices.files
        storage = check_storage(state.files, state.timeline, commit_files)
        self.findings.extend(storage.findings)
        beside_rows = BesideRows(state, commit_files, storage, self.newest.sink, changed)
        beside_rows.check(self.findings)
        if self.asked.content:
            # Arrow reads files without Python: the log is decoded meanwhile.
            self.later.append(self.thread.submit(beside_rows.check_rows, self._touched()))
        shown = {piece.base_file_relative_path() for piece in state.slices if piece.base_file_name}
        if not changed or state.files.properties.get("hoodie.table.type") != "MERGE_ON_READ":
            self.findings.extend(check_view(commit_files, shown))
        if changed:
            own = PROVENANCE if provenance_of(state.table) else ()
            streams = self._told("files", list(slices.streams((*HUDIS, *own))))
            commits, findings = state.timeline.commits, self.findings
            rows = check_keys(streams, storage.broken, commits, self.scratch, findings, self.asked.global_keys)
            return _FilesRead(rows, 0, ())
        unshown = [path for path in storage.visible if path not in shown]
        columns = PROVENANCE if provenance else (state.table.get_schema().names[0],)
        streams = slices.streams(columns, unshown)
        named = self._told("files", list(streams))
        file_rows = [self.ledger.add(path, stream, provenance) for _, path, stream in named]
        for file in file_rows:
            if file.error and file.path not in storage.broken:
                self.findings.add(FindingKind.FILE_UNREADABLE, f"{file.path}: {file.error}")
        rows, unplaced = (sum(getattr(file, name) for file in file_rows) for name in ("rows", "unplaced"))
        return _FilesRead(rows, unplaced, unshown)


def _choose(base_path: str, sink: str | None, timeline: AuditedTimeline) -> str:
    if sink is not None and sink in timeline.sinks:
        return sink
    sinks = ", ".join(timeline.sinks) or "none"
    if sink is not None:
        raise CannotAudit(f"{base_path}: no commit carries a checkpoint of sink {sink} (found: {sinks})")
    if len(timeline.sinks) != 1:
        raise CannotAudit(f"{base_path}: several sinks have checkpoints in this table. Name one: {sinks}.")
    return timeline.sinks[0]


def _note_empty(state: TableState, access: TopicAccess | None, findings: AuditFindings) -> None:
    findings.add(FindingKind.EMPTY, "the table has no commit yet: nothing to prove")
    findings.extend(check_uncommitted(state.files, state.timeline))
    if access is not None:
        with closing(LogReader(access)) as reader:
            note_unread(reader, reader.topics(access.topics), None, findings)
