"""Audits a table against its checkpoints and the Kafka log: every record exactly once.

Guarantee: a report that `held` proves that the checkpoints form one chain without hole or overlap; that every committed
range has as many rows as its write status counted, and no offset twice; that the files are those that the commits name;
and, if the topics could be read, that no record that the log still delivers is missing. The audit shares no code with
the writer: hudi-rs and DuckDB read the rows, a reader in this package reads the timeline. `docs/audit.md` says what
voids it. Raises `TableError` (no table, or no checkpoint of the sink), `Unavailable` (Kafka, or a table that changes
during every look).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from hudi import HudiFileSlice, HudiReadOptions, HudiTable

from coordination.errors import TableError, Unavailable
from coordination.state.model import Checkpoint, TopicPartition
from sink.audit.chain import Chain, CommittedRange, check_chain
from sink.audit.compare import (
    check_changed,
    check_duplicates,
    check_log,
    check_outside,
    check_ranges,
    check_totals,
    partition_rows,
    range_groups,
)
from sink.audit.errors import ErrorCounts, add_errors
from sink.audit.files import NamedFiles, check_storage, check_uncommitted, check_view, named_files
from sink.audit.keys import check_keys
from sink.audit.log import LogReader, TopicAccess
from sink.audit.mirror import MirroredTable
from sink.audit.report import AuditFindings, FindingKind, PartitionRow, Report
from sink.audit.rows import PROVENANCE, FileRows, OffsetLedger, provenance_of, raised_by_hudi, rust_table
from sink.audit.timeline import (
    AuditedTimeline,
    TableFiles,
    active_names,
    any_commit,
    completed_names,
    open_table,
    read_timeline,
)
from sink.audit.topics import LogComparison, note_unread
from sink.storage.access import NO_ACCESS, Access
from sink.storage.faults import fault_in

__all__ = ["Report", "TopicAccess", "audit"]

LOOKS = 20


@dataclass(frozen=True, slots=True)
class _TableState:
    """A consistent snapshot of the table: its timeline, and the file slices that hudi-rs shows."""

    timeline: AuditedTimeline
    table: HudiTable | MirroredTable
    slices: Sequence[HudiFileSlice]


def audit(
    base_path: str,
    sink: str | None = None,
    access: TopicAccess | None = None,
    errors: str | None = None,
    storage: Access = NO_ACCESS,
) -> Report:
    """Audits the table at `base_path`. `sink` may be omitted if the table has only one. `errors` is the base path of
    the errors table, if not the default; the audit reads it only if a commit counts bad records.

    Without `access` the audit does not read the log, and compares the rows with the checkpoints only.
    """
    started = time.monotonic()
    files = open_table(base_path, storage)
    table_state = _read_table_state(files)
    if not table_state.timeline.commits and not table_state.timeline.problems:
        return _empty(files, table_state.timeline, sink, access, started)
    name = _choose(base_path, sink, table_state.timeline)
    findings = AuditFindings()
    findings.extend(table_state.timeline.problems)
    chain = check_chain(name, table_state.timeline.commits)
    findings.extend(chain.findings)
    counts = _Counts()
    if chain.newest is None:
        findings.add(FindingKind.NO_CHECKPOINT, f"no checkpoint of sink {name} is readable: nothing can be proven")
    elif table_state.timeline.active:
        with (
            tempfile.TemporaryDirectory(prefix="sink-audit-") as scratch,
            closing(OffsetLedger(Path(scratch))) as ledger,
        ):
            errors_path = errors or f"{base_path}_errors"
            comparison = _Comparison(
                files, errors_path, table_state, chain, chain.newest, name, ledger, Path(scratch), findings
            )
            counts = comparison.run(access)
    return Report(
        base_path=base_path,
        sink=name,
        findings=findings.all(),
        partitions=counts.partitions,
        rows=counts.rows,
        commits=chain.links,
        others=sum(commit.by_others for commit in table_state.timeline.commits),
        files=len(table_state.slices),
        provenance=counts.provenance,
        log_checked=counts.log_checked,
        changed=counts.changed,
        seconds=time.monotonic() - started,
        errors=counts.errors.by_source.total(),
        replayed=counts.errors.replayed,
    )


@dataclass(frozen=True, slots=True)
class _Counts:
    partitions: tuple[PartitionRow, ...] = ()
    rows: int = 0
    provenance: bool = True
    log_checked: bool = False
    errors: ErrorCounts = field(default_factory=ErrorCounts)
    changed: bool = False


@dataclass(frozen=True, slots=True)
class _Comparison:
    files: TableFiles
    errors_path: str
    table_state: _TableState
    chain: Chain
    newest: Checkpoint
    sink: str
    ledger: OffsetLedger
    scratch: Path
    findings: AuditFindings

    def run(self, access: TopicAccess | None) -> _Counts:
        commits = self.table_state.timeline.commits
        commit_files = named_files(commits)
        for gap in self.newest.gaps:
            sentence = f"{gap.topic}-{gap.partition}[{gap.start}, {gap.end}) was lost by the log and skipped"
            self.findings.add(FindingKind.GAP, sentence)
        ranges = [*self.chain.ranges, *self._ranges_of_other_sinks()]
        self.ledger.add_ranges((r.source, r.result.slice.start, r.result.slice.end) for r in ranges)
        changed = any(commit.changes_rows for commit in commits)
        provenance = provenance_of(self.table_state.table) and not changed
        file_rows = [] if changed else self._read_rows(commit_files, provenance)
        errors = add_errors(self.errors_path, ranges, commits, self.ledger, self.findings, self.files.access)
        groups = range_groups(ranges)
        log = None
        if access is None:
            self.findings.add(FindingKind.UNPROVEN, "the log was not read: rows are compared with the checkpoints only")
            self.ledger.sweep()
        else:
            compared = LogComparison(self.chain, self.newest, groups, provenance, self.ledger, self.findings)
            log = compared.run(access)
        rows = sum(file.rows for file in file_rows)
        missing: dict[TopicPartition, int] = {}
        if changed:
            rows = self._check_changed_rows(commit_files)
            check_changed(self.ledger, groups, log, self.findings)
        elif provenance:
            check_duplicates(self.ledger, self.findings)
            check_outside(self.ledger, sum(file.unplaced for file in file_rows), commits, self.findings)
            missing = check_ranges(self.ledger, groups, log, commit_files, self.findings)
            if log is not None:
                check_log(self.ledger, log, self.findings)
        else:
            landed = rows + errors.by_source.total()
            check_totals(self.ledger, groups, landed, log, commits, commit_files, self.findings)
        partitions = partition_rows(self.ledger, self.newest, missing, groups, provenance, errors.by_source)
        return _Counts(partitions, rows, provenance, log is not None and bool(log.spans), errors, changed)

    def _check_changed_rows(self, commit_files: NamedFiles) -> int:
        """Checks the files that the commits name, and the keys of the rows in them. Returns the number of rows."""
        state = self.table_state
        storage = check_storage(self.files, state.timeline, commit_files)
        self.findings.extend(storage.findings)
        if self.files.properties.get("hoodie.table.type") != "MERGE_ON_READ":
            self.findings.extend(check_view(commit_files, (piece.base_file_relative_path() for piece in state.slices)))
        commits = state.timeline.commits
        return check_keys(state.table, state.slices, storage.broken, commits, self.scratch, self.findings)

    def _ranges_of_other_sinks(self) -> list[CommittedRange]:
        other_sinks = (name for name in self.table_state.timeline.sinks if name != self.sink)
        return [entry for name in other_sinks for entry in check_chain(name, self.table_state.timeline.commits).ranges]

    def _read_rows(self, commit_files: NamedFiles, provenance: bool) -> list[FileRows]:
        """Reads every row that a reader can see: in files that hudi-rs shows, and in visible files that it does not."""
        storage = check_storage(self.files, self.table_state.timeline, commit_files)
        self.findings.extend(storage.findings)
        visible_slices = {piece.base_file_relative_path(): piece for piece in self.table_state.slices}
        self.findings.extend(check_view(commit_files, visible_slices))
        reader = self.table_state.table.create_file_group_reader_with_options(HudiReadOptions())
        columns = PROVENANCE if provenance else (self.table_state.table.get_schema().names[0],)
        by_instant = sorted(self.table_state.slices, key=lambda piece: (piece.creation_instant_time, piece.file_id))
        file_rows = [self.ledger.add_slice(reader, piece, columns) for piece in by_instant]
        file_rows += [
            self.ledger.add_file(reader, path, columns) for path in storage.visible if path not in visible_slices
        ]
        for file in file_rows:
            if file.error and file.path not in storage.broken:
                self.findings.add(FindingKind.FILE_UNREADABLE, f"{file.path}: {file.error}")
        return file_rows


def _read_table_state(files: TableFiles) -> _TableState:
    """Reads timeline and file slices of one state, although writers may commit meanwhile."""
    for _ in range(LOOKS):
        names = active_names(files)
        completed_before = completed_names(names)
        try:
            table = rust_table(files)
            slices = table.get_file_slices(HudiReadOptions()) if any_commit(completed_before) else []
        except Exception as error:
            if not raised_by_hudi(error):
                raise
            if completed_names(active_names(files)) == completed_before:
                reason = str(error)[:300]
                fault = fault_in(str(error), files.base_path, files.access)
                sentence = fault.sentence if fault else reason
                raise TableError(f"{files.base_path}: hudi-rs cannot read the table: {sentence}") from error
            continue
        if completed_names(active_names(files)) == completed_before:
            return _TableState(read_timeline(files, names), table, slices)
    raise Unavailable(f"{files.base_path} changed during each of {LOOKS} reads. Try again.")


def _choose(base_path: str, sink: str | None, timeline: AuditedTimeline) -> str:
    if sink is not None and sink in timeline.sinks:
        return sink
    sinks = ", ".join(timeline.sinks) or "none"
    if sink is not None:
        raise TableError(f"{base_path}: no commit carries a checkpoint of sink {sink} (found: {sinks})")
    if len(timeline.sinks) != 1:
        raise TableError(f"{base_path}: several sinks have checkpoints in this table. Name one: {sinks}.")
    return timeline.sinks[0]


def _empty(
    files: TableFiles, timeline: AuditedTimeline, sink: str | None, access: TopicAccess | None, started: float
) -> Report:
    findings = AuditFindings()
    findings.add(FindingKind.EMPTY, "the table has no commit yet: nothing to prove")
    findings.extend(check_uncommitted(files, timeline))
    if access is not None:
        with closing(LogReader(access)) as reader:
            note_unread(reader, reader.topics(access.topics), None, findings)
    return Report(
        base_path=files.base_path,
        sink=sink,
        findings=findings.all(),
        partitions=(),
        rows=0,
        commits=0,
        others=0,
        files=0,
        provenance=True,
        log_checked=False,
        seconds=time.monotonic() - started,
    )
