"""Checks a sink's checkpoints against one another. Pure: reads no table and no log.

Guarantee: without a finding, the ranges of successive commits are adjacent for each partition and generation, from the
first checkpoint to the newest. It cannot see that the newest commits were deleted from the timeline; the checks of
files and log do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from coordination.state.model import (
    NO_TRANSACTION,
    Checkpoint,
    Gap,
    PartitionCheckpoint,
    SliceResult,
    TopicPartition,
)
from sink.audit.report import AuditFinding, FindingKind
from sink.audit.timeline import Commit


@dataclass(frozen=True, slots=True)
class CommittedRange:
    """A slice that a commit added, with the commit's transaction number and instant."""

    result: SliceResult
    number: int
    instant: str

    @property
    def source(self) -> TopicPartition:
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
    newest: Checkpoint | None
    links: int
    beginnings: Mapping[TopicPartition, Beginning]


def check_chain(sink: str, commits: Sequence[Commit]) -> Chain:
    """Checks the checkpoints of `sink` in `commits`, which are in order of completion."""
    findings: list[AuditFinding] = []
    links: list[tuple[Commit, Checkpoint]] = []
    seen: dict[int, tuple[Commit, Checkpoint]] = {}
    for commit in commits:
        checkpoint = commit.checkpoints.get(sink)
        if checkpoint is None:
            continue
        earlier = seen.get(checkpoint.number)
        if earlier is None:
            seen[checkpoint.number] = (commit, checkpoint)
            links.append((commit, checkpoint))
        elif not _published_again(earlier[1], checkpoint, commit):
            where = f"commits {earlier[0].instant} and {commit.instant}"
            sentence = f"number {checkpoint.number} is in {where}: one transaction was committed twice"
            findings.append(AuditFinding(FindingKind.REPEATED_NUMBER, sentence))
    by_number = sorted(links, key=lambda link: link[1].number)
    previous: tuple[Commit, Checkpoint] | None = None
    for link in by_number:
        findings += _check_link(previous, link)
        previous = link
    ranges = tuple(
        CommittedRange(result, checkpoint.number, commit.instant)
        for commit, checkpoint in by_number
        for result in checkpoint.results
    )
    beginnings = _beginnings([checkpoint for _, checkpoint in by_number])
    return Chain(tuple(findings), ranges, previous[1] if previous else None, len(by_number), beginnings)


def _beginnings(checkpoints: Sequence[Checkpoint]) -> dict[TopicPartition, Beginning]:
    """Returns the first offset of each partition. `checkpoints` are in order of their numbers."""
    beginnings: dict[TopicPartition, Beginning] = {}
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


def _published_again(first: Checkpoint, again: Checkpoint, commit: Commit) -> bool:
    """Returns whether a commit repeats a checkpoint without rows, as the sink does before archiving passes it."""
    return commit.inserted == 0 and not commit.replayed and replace(again, results=()) == replace(first, results=())


def _check_link(previous: tuple[Commit, Checkpoint] | None, link: tuple[Commit, Checkpoint]) -> Iterator[AuditFinding]:
    commit, checkpoint = link
    where = f"transaction {checkpoint.number} (commit {commit.instant})"
    before = previous[1] if previous else None
    expected = before.number if before else NO_TRANSACTION
    if checkpoint.base != expected:
        on_timeline = f"number {expected}" if before else "nothing"
        yield AuditFinding(
            FindingKind.BROKEN_CHAIN,
            f"{where} extends number {checkpoint.base}, but the timeline has {on_timeline} before it: "
            "a commit was deleted, or its checkpoint was changed",
        )
    if previous and before:
        if commit.completed <= previous[0].completed:
            yield AuditFinding(
                FindingKind.COMPLETED_OUT_OF_ORDER,
                f"{where} completed at {commit.completed}, before transaction {before.number} "
                f"(commit {previous[0].instant}) did at {previous[0].completed}",
            )
        if checkpoint.epoch < before.epoch:
            yield AuditFinding(
                FindingKind.EPOCH_FELL, f"{where} has epoch {checkpoint.epoch} after epoch {before.epoch}"
            )
        yield from _check_identity(before, checkpoint, where)
        for gap in sorted(set(before.gaps) - set(checkpoint.gaps), key=_gap_order):
            if any(kept.covers(gap) for kept in checkpoint.gaps):
                continue
            lost = f"{gap.topic}-{gap.partition}[{gap.start}, {gap.end})"
            yield AuditFinding(FindingKind.GAP_DROPPED, f"{where} no longer declares the gap {lost}")
    yield from _check_partitions(before, checkpoint, where)
    records = sum(result.records for result in checkpoint.results)
    records += sum(run.high - run.low for run in commit.replayed.get(checkpoint.sink, ()))
    if records != commit.inserted and not commit.changes_rows:
        yield AuditFinding(
            FindingKind.COMMIT_COUNT,
            f"{where}: its checkpoint counts {records:,} records, its write stats {commit.inserted:,}",
        )


def _check_identity(before: Checkpoint, now: Checkpoint, where: str) -> Iterator[AuditFinding]:
    """Checks that topic id and cluster only change with the generation: otherwise offsets mean other records."""
    for source in before.ends.keys() & now.ends.keys():
        if now.ends[source].generation > before.ends[source].generation:
            continue
        ids = before.topics.get(source.topic), now.topics.get(source.topic)
        if ids[0] != ids[1]:
            yield AuditFinding(
                FindingKind.TOPIC_ID,
                f"{where}: {source} goes from topic id {ids[0]} to {ids[1]}, generation as before",
            )
        if before.cluster and now.cluster and before.cluster != now.cluster:
            yield AuditFinding(
                FindingKind.CLUSTER,
                f"{where}: {source} goes from cluster {before.cluster} to {now.cluster}, same generation",
            )


def _check_partitions(before: Checkpoint | None, now: Checkpoint, where: str) -> Iterator[AuditFinding]:
    ends_before = before.ends if before else {}
    results: dict[TopicPartition, list[SliceResult]] = defaultdict(list)
    for result in now.results:
        results[result.slice.source].append(result)
    declared: dict[TopicPartition, list[Gap]] = defaultdict(list)
    for gap in sorted(set(now.gaps) - set(before.gaps if before else ()), key=_gap_order):
        declared[TopicPartition(gap.topic, gap.partition)].append(gap)
    for source in sorted(ends_before.keys() - now.ends.keys()):
        yield AuditFinding(
            FindingKind.PARTITION_DROPPED, f"{where} no longer has {source}, which was at {ends_before[source].end}"
        )
    for source in sorted(results.keys() - now.ends.keys()):
        yield AuditFinding(FindingKind.END_MISMATCH, f"{where} has ranges of {source}, but no end for it")
    for source, end in sorted(now.ends.items(), key=lambda item: item[0]):
        steps = sorted([*map(_range_step, results[source]), *map(_gap_step, declared[source])])
        yield from _check_partition(source, ends_before.get(source), end, steps, where)


def _check_partition(
    source: TopicPartition,
    before: PartitionCheckpoint | None,
    now: PartitionCheckpoint,
    steps: Sequence[tuple[int, int, int]],
    where: str,
) -> Iterator[AuditFinding]:
    """Checks the steps of a partition: (start, end, generation) of its ranges and new gaps; a gap has generation -1."""
    raised = before is None or now.generation > before.generation
    if before is not None and now.generation < before.generation:
        yield AuditFinding(
            FindingKind.GENERATION,
            f"{where}: {source} falls from generation {before.generation} to {now.generation}",
        )
    if before is not None and now.end < before.end and not raised:
        yield AuditFinding(
            FindingKind.END_FELL, f"{where}: {source} falls from {before.end} to {now.end}, generation as before"
        )
    reached = before.end if before is not None else None
    generation = before.generation if before is not None else 0
    for start, end, step_generation in steps:
        if step_generation > now.generation or 0 <= step_generation < generation:
            yield AuditFinding(
                FindingKind.GENERATION,
                f"{where}: {source}[{start}, {end}) has generation {step_generation}, "
                f"the partition goes from {generation} to {now.generation}",
            )
        jumped = reached is None or step_generation > generation
        if reached is not None and start != reached:
            if not jumped:
                kind = FindingKind.RANGE_HOLE if start > reached else FindingKind.RANGE_OVERLAP
                yield AuditFinding(kind, f"{where}: {source}[{start}, {end}) follows offset {reached}")
            else:
                yield AuditFinding(
                    FindingKind.RESET,
                    f"{where}: {source} goes on at {start} after {reached}, in generation {step_generation}",
                )
        reached, generation = end, max(generation, step_generation)
    if reached is not None and reached != now.end and not (raised and not steps):
        yield AuditFinding(FindingKind.END_MISMATCH, f"{where}: {source} ends at {now.end}, its ranges at {reached}")
    elif reached is not None and reached != now.end and before is not None:
        yield AuditFinding(FindingKind.RESET, f"{where}: {source} was set from {reached} to {now.end}")


def _range_step(result: SliceResult) -> tuple[int, int, int]:
    return result.slice.start, result.slice.end, result.slice.generation


def _gap_step(gap: Gap) -> tuple[int, int, int]:
    return gap.start, gap.end, -1


def _gap_order(gap: Gap) -> tuple[str, int, int]:
    return gap.topic, gap.partition, gap.start
