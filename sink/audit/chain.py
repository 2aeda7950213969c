"""Checks a sink's checkpoints against one another. Pure: reads no table and no log.

Guarantee: without a finding, the ranges of successive commits are adjacent for each partition and generation, from the
first checkpoint to the newest. It cannot see that the newest commits were deleted from the timeline; the checks of
files and log do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sink.audit.checkpoints import (
    NO_TRANSACTION,
    AuditedCheckpoint,
    AuditedEnd,
    AuditedGap,
    AuditedResult,
    LogPartition,
)
from sink.audit.report import AuditFinding, FindingKind
from sink.audit.timeline import Commit, ReplayedRun


@dataclass(frozen=True, slots=True)
class CommittedRange:
    """A slice that a commit added, with the commit's transaction number and instant."""

    result: AuditedResult
    number: int
    instant: str

    @property
    def source(self) -> LogPartition:
        return self.result.slice.source

    def __str__(self) -> str:
        return f"{self.result.slice} of transaction {self.number} (commit {self.instant})"


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first offset that the sink had to read of a partition.

    `added`: the partition was added to a topic that the sink was reading. The sink reads it from its first offset on,
    whatever `auto.offset.reset` says, unless an operator moved it, which raises its generation.
    """

    offset: int
    added: bool


@dataclass(frozen=True, slots=True)
class Chain:
    """The chain of a sink's checkpoints. `newest` has the highest number."""

    findings: tuple[AuditFinding, ...]
    ranges: tuple[CommittedRange, ...]
    newest: AuditedCheckpoint | None
    links: int
    beginnings: Mapping[LogPartition, Beginning]


def check_chain(sink: str, commits: Sequence[Commit]) -> Chain:
    """Checks the checkpoints of `sink` in `commits`, which are in order of completion."""
    findings: list[AuditFinding] = []
    links: list[tuple[Commit, AuditedCheckpoint]] = []
    first_by_number: dict[int, tuple[Commit, AuditedCheckpoint]] = {}
    for commit in commits:
        checkpoint = commit.checkpoints.get(sink)
        if checkpoint is None:
            continue
        earlier = first_by_number.get(checkpoint.number)
        if earlier is None:
            first_by_number[checkpoint.number] = (commit, checkpoint)
            links.append((commit, checkpoint))
        elif not _published_again(earlier[1], checkpoint, commit):
            commit_pair = f"commits {earlier[0].instant} and {commit.instant}"
            sentence = f"number {checkpoint.number} is in {commit_pair}: one transaction was committed twice"
            findings.append(AuditFinding(FindingKind.REPEATED_NUMBER, sentence))
    by_number = sorted(links, key=lambda link: link[1].number)
    again = [run for commit, _ in links if sink in commit.relanded for run in commit.relanded[sink].runs]
    previous: tuple[Commit, AuditedCheckpoint] | None = None
    for link in by_number:
        findings += _check_link(previous, link, again)
        previous = link
    ranges = tuple(
        CommittedRange(result, checkpoint.number, commit.instant)
        for commit, checkpoint in by_number
        for result in checkpoint.results
    )
    beginnings = _beginnings([checkpoint for _, checkpoint in by_number])
    return Chain(tuple(findings), ranges, previous[1] if previous else None, len(by_number), beginnings)


def _beginnings(checkpoints: Sequence[AuditedCheckpoint]) -> dict[LogPartition, Beginning]:
    """Returns the first offset of each partition. `checkpoints` are in order of their numbers."""
    beginnings: dict[LogPartition, Beginning] = {}
    topics: set[str] = set()
    for checkpoint in checkpoints:
        starts = {source: end.end for source, end in checkpoint.ends.items()}
        for result in checkpoint.results:
            source = result.slice.source
            starts[source] = min(result.slice.start, starts.get(source, result.slice.start))
        for source, start in starts.items():
            beginning = beginnings.get(source)
            if beginning is None:
                end = checkpoint.ends.get(source)
                moved = end is None or end.generation > 0
                beginnings[source] = Beginning(start, source.topic in topics and not moved)
            elif start < beginning.offset:
                beginnings[source] = replace(beginning, offset=start)
        topics.update(source.topic for source in checkpoint.ends)
    return beginnings


def _published_again(original: AuditedCheckpoint, repeated: AuditedCheckpoint, commit: Commit) -> bool:
    """Returns whether a commit repeats a checkpoint without rows, as the sink does before archiving passes it."""
    return (
        commit.inserted == 0
        and not commit.replayed
        and not commit.relanded
        and replace(repeated, results=()) == replace(original, results=())
    )


def _check_link(
    previous: tuple[Commit, AuditedCheckpoint] | None,
    link: tuple[Commit, AuditedCheckpoint],
    again: Sequence[ReplayedRun],
) -> Iterator[AuditFinding]:
    """`again` are the offsets that repairs have landed again: there the rows count, not what was once written."""
    commit, checkpoint = link
    subject = f"transaction {checkpoint.number} (commit {commit.instant})"
    previous_checkpoint = previous[1] if previous else None
    expected = previous_checkpoint.number if previous_checkpoint else NO_TRANSACTION
    if checkpoint.base != expected:
        on_timeline = f"number {expected}" if previous_checkpoint else "nothing"
        yield AuditFinding(
            FindingKind.BROKEN_CHAIN,
            f"{subject} extends number {checkpoint.base}, but the timeline has {on_timeline} before it: "
            "a commit was deleted, or its checkpoint was changed",
        )
    if previous and previous_checkpoint:
        if commit.completed <= previous[0].completed:
            yield AuditFinding(
                FindingKind.COMPLETED_OUT_OF_ORDER,
                f"{subject} completed at {commit.completed}, before transaction {previous_checkpoint.number} "
                f"(commit {previous[0].instant}) did at {previous[0].completed}",
            )
        if checkpoint.epoch < previous_checkpoint.epoch:
            yield AuditFinding(
                FindingKind.EPOCH_FELL,
                f"{subject} has epoch {checkpoint.epoch} after epoch {previous_checkpoint.epoch}",
            )
        yield from _check_identity(previous_checkpoint, checkpoint, subject)
        for gap in sorted(set(previous_checkpoint.gaps) - set(checkpoint.gaps), key=_gap_order):
            if any(declared.covers(gap) for declared in checkpoint.gaps):
                continue
            range_text = f"{gap.topic}-{gap.partition}[{gap.start}, {gap.end})"
            yield AuditFinding(FindingKind.GAP_DROPPED, f"{subject} no longer declares the gap {range_text}")
    yield from _check_partitions(previous_checkpoint, checkpoint, subject)
    records = sum(result.records for result in checkpoint.results)
    records += sum(run.high - run.low for run in commit.replayed.get(checkpoint.sink, ()))
    records += commit.relanded[checkpoint.sink].records if checkpoint.sink in commit.relanded else 0
    is_repaired = any(run.covers_part_of(result.slice) for result in checkpoint.results for run in again)
    if records != commit.inserted and not commit.changes_rows and not is_repaired:
        yield AuditFinding(
            FindingKind.COMMIT_COUNT,
            f"{subject}: its checkpoint counts {records:,} records, its write stats {commit.inserted:,}",
        )


def _check_identity(previous: AuditedCheckpoint, current: AuditedCheckpoint, subject: str) -> Iterator[AuditFinding]:
    """Checks that topic id and cluster only change with the generation: otherwise offsets mean other records."""
    for source in previous.ends.keys() & current.ends.keys():
        if current.ends[source].generation > previous.ends[source].generation:
            continue
        ids = previous.topics.get(source.topic), current.topics.get(source.topic)
        if ids[0] != ids[1]:
            yield AuditFinding(
                FindingKind.TOPIC_ID,
                f"{subject}: {source} goes from topic id {ids[0]} to {ids[1]}, generation as before",
            )
        if previous.cluster and current.cluster and previous.cluster != current.cluster:
            yield AuditFinding(
                FindingKind.CLUSTER,
                f"{subject}: {source} goes from cluster {previous.cluster} to {current.cluster}, same generation",
            )


def _check_partitions(
    previous: AuditedCheckpoint | None, current: AuditedCheckpoint, subject: str
) -> Iterator[AuditFinding]:
    ends_before = previous.ends if previous else {}
    steps: dict[LogPartition, list[tuple[int, int, int]]] = defaultdict(list)
    for piece in (result.slice for result in current.results):
        steps[piece.source].append((piece.start, piece.end, piece.generation))
    sources_without_end = steps.keys() - current.ends.keys()
    for gap in set(current.gaps) - set(previous.gaps if previous else ()):
        steps[LogPartition(gap.topic, gap.partition)].append((gap.start, gap.end, -1))
    for source in sorted(ends_before.keys() - current.ends.keys()):
        yield AuditFinding(
            FindingKind.PARTITION_DROPPED, f"{subject} no longer has {source}, which was at {ends_before[source].end}"
        )
    for source in sorted(sources_without_end):
        yield AuditFinding(FindingKind.END_MISMATCH, f"{subject} has ranges of {source}, but no end for it")
    for source, end in sorted(current.ends.items(), key=lambda item: item[0]):
        yield from _check_partition(source, ends_before.get(source), end, sorted(steps[source]), subject)


def _check_partition(
    source: LogPartition,
    previous: AuditedEnd | None,
    current: AuditedEnd,
    steps: Sequence[tuple[int, int, int]],
    subject: str,
) -> Iterator[AuditFinding]:
    """Checks the steps of a partition: (start, end, generation) of its ranges and new gaps; a gap has generation -1."""
    raised = previous is None or current.generation > previous.generation
    if previous is not None and current.generation < previous.generation:
        yield AuditFinding(
            FindingKind.GENERATION,
            f"{subject}: {source} falls from generation {previous.generation} to {current.generation}",
        )
    if previous is not None and current.end < previous.end and not raised:
        yield AuditFinding(
            FindingKind.END_FELL,
            f"{subject}: {source} falls from {previous.end} to {current.end}, generation as before",
        )
    position = previous.end if previous is not None else None
    generation = previous.generation if previous is not None else 0
    for start, end, step_generation in steps:
        if step_generation > current.generation or 0 <= step_generation < generation:
            yield AuditFinding(
                FindingKind.GENERATION,
                f"{subject}: {source}[{start}, {end}) has generation {step_generation}, "
                f"the partition goes from {generation} to {current.generation}",
            )
        jumped = position is None or step_generation > generation
        if position is not None and start != position:
            if not jumped:
                kind = FindingKind.RANGE_HOLE if start > position else FindingKind.RANGE_OVERLAP
                yield AuditFinding(kind, f"{subject}: {source}[{start}, {end}) follows offset {position}")
            else:
                yield AuditFinding(
                    FindingKind.RESET,
                    f"{subject}: {source} goes on at {start} after {position}, in generation {step_generation}",
                )
        position, generation = end, max(generation, step_generation)
    if position is not None and position != current.end and not (raised and not steps):
        yield AuditFinding(
            FindingKind.END_MISMATCH, f"{subject}: {source} ends at {current.end}, its ranges at {position}"
        )
    elif position is not None and position != current.end and previous is not None:
        yield AuditFinding(FindingKind.RESET, f"{subject}: {source} was set from {position} to {current.end}")


def _gap_order(gap: AuditedGap) -> tuple[str, int, int]:
    return gap.topic, gap.partition, gap.start
