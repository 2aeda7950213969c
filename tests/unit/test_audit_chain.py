"""Each checkpoint continues the one before it, or the chain is broken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sink.audit.chain import Beginning, Chain, check_chain
from sink.audit.checkpoints import (
    AuditedCheckpoint,
    AuditedEnd,
    AuditedGap,
    AuditedResult,
    AuditedSlice,
    LogPartition,
)
from sink.audit.report import FindingKind
from sink.audit.timeline import Commit, WrittenFile

P0, P1 = LogPartition("orders", 0), LogPartition("orders", 1)


def result(source: LogPartition, start: int, end: int, generation: int = 0) -> AuditedResult:
    return AuditedResult(AuditedSlice(source.topic, source.partition, start, end, "id", generation), end - start, 0)


def checkpoint(
    number: int,
    ends: Mapping[LogPartition, tuple[int, int]],
    results: Sequence[AuditedResult] = (),
    base: int | None = None,
    gaps: Sequence[AuditedGap] = (),
    epoch: int = 1,
) -> AuditedCheckpoint:
    return AuditedCheckpoint(
        sink="orders",
        cluster="cluster",
        epoch=epoch,
        number=number,
        base=number - 1 if base is None else base,
        topics={"orders": "id"},
        ends={source: AuditedEnd(*end) for source, end in ends.items()},
        results=tuple(results),
        gaps=tuple(gaps),
    )


def commit(checkpoint: AuditedCheckpoint, completed: int | None = None) -> Commit:
    instant = f"{completed or checkpoint.number:017d}"
    rows = sum(entry.records for entry in checkpoint.results)
    file = WrittenFile("id", "id.parquet", "", rows, rows, 0, 1)
    return Commit(instant, instant, "commit", "BULK_INSERT", (file,), frozenset(), {"orders": checkpoint}, {})


def check(*checkpoints: AuditedCheckpoint) -> Chain:
    return check_chain("orders", [commit(entry) for entry in checkpoints])


def failures(chain: Chain) -> list[FindingKind]:
    return [finding.kind for finding in chain.findings if finding.kind.fails]


FIRST = checkpoint(1, {P0: (10, 0), P1: (5, 0)}, [result(P0, 0, 10), result(P1, 0, 5)])


def test_ranges_that_meet_are_a_chain_and_an_idle_partition_is_carried_on() -> None:
    chain = check(FIRST, checkpoint(2, {P0: (30, 0), P1: (5, 0)}, [result(P0, 10, 20), result(P0, 20, 30)]))
    assert chain.findings == ()
    assert len(chain.ranges) == 4
    assert chain.newest is not None
    assert chain.newest.number == 2


def test_numbers_of_aborted_attempts_may_be_left_out() -> None:
    assert not check(FIRST, checkpoint(7, {P0: (20, 0), P1: (5, 0)}, [result(P0, 10, 20)], base=1)).findings


def test_a_first_checkpoint_that_extends_another_is_a_broken_chain() -> None:
    assert failures(check(replace(FIRST, number=4, base=3))) == [FindingKind.BROKEN_CHAIN]


def test_a_base_that_is_not_the_number_before_is_a_broken_chain() -> None:
    follower = checkpoint(3, {P0: (20, 0), P1: (5, 0)}, [result(P0, 10, 20)], base=2)
    assert failures(check(FIRST, follower)) == [FindingKind.BROKEN_CHAIN]


def test_a_hole_an_overlap_and_an_end_that_no_range_reaches_are_told_apart() -> None:
    hole = checkpoint(2, {P0: (20, 0), P1: (5, 0)}, [result(P0, 11, 20)])
    overlap = checkpoint(2, {P0: (20, 0), P1: (5, 0)}, [result(P0, 9, 20)])
    beyond = checkpoint(2, {P0: (21, 0), P1: (5, 0)}, [result(P0, 10, 20)])
    assert failures(check(FIRST, hole)) == [FindingKind.RANGE_HOLE]
    assert failures(check(FIRST, overlap)) == [FindingKind.RANGE_OVERLAP]
    assert failures(check(FIRST, beyond)) == [FindingKind.END_MISMATCH]


def test_a_hole_between_the_slices_of_one_commit_is_found() -> None:
    torn = checkpoint(2, {P0: (30, 0), P1: (5, 0)}, [result(P0, 10, 19), result(P0, 20, 30)])
    assert failures(check(FIRST, torn)) == [FindingKind.RANGE_HOLE]


def test_an_end_may_fall_only_when_the_generation_rises() -> None:
    assert FindingKind.END_FELL in failures(check(FIRST, checkpoint(2, {P0: (3, 0), P1: (5, 0)})))
    reset = checkpoint(2, {P0: (3, 1), P1: (5, 0)})
    assert failures(check(FIRST, reset)) == []
    replay = checkpoint(3, {P0: (10, 1), P1: (5, 0)}, [result(P0, 3, 10, 1)])
    assert failures(check(FIRST, reset, replay)) == []


def test_a_generation_never_falls() -> None:
    raised = replace(FIRST, ends={P0: AuditedEnd(10, 2), P1: AuditedEnd(5, 0)})
    fallen = checkpoint(2, {P0: (10, 1), P1: (5, 0)})
    assert failures(check(raised, fallen)) == [FindingKind.GENERATION]


def test_a_declared_gap_joins_ranges_and_must_stay_declared() -> None:
    gap = AuditedGap("orders", 0, 10, 40)
    skipped = checkpoint(2, {P0: (50, 1), P1: (5, 0)}, [result(P0, 40, 50, 1)], gaps=[gap])
    assert failures(check(FIRST, skipped)) == []
    forgotten = checkpoint(3, {P0: (50, 1), P1: (5, 0)})
    assert failures(check(FIRST, skipped, forgotten)) == [FindingKind.GAP_DROPPED]
    within_another = replace(forgotten, gaps=(AuditedGap("orders", 0, 0, 60),))
    assert FindingKind.GAP_DROPPED not in failures(check(FIRST, skipped, within_another))


def test_a_partition_never_leaves_the_checkpoint() -> None:
    assert failures(check(FIRST, checkpoint(2, {P0: (10, 0)}))) == [FindingKind.PARTITION_DROPPED]


def test_a_new_partition_may_start_anywhere() -> None:
    new_partition = LogPartition("orders", 2)
    follower = checkpoint(2, {P0: (10, 0), P1: (5, 0), new_partition: (90, 0)}, [result(new_partition, 70, 90)])
    assert failures(check(FIRST, follower)) == []


def test_the_epoch_never_falls() -> None:
    later = replace(FIRST, epoch=3)
    follower = checkpoint(2, {P0: (10, 0), P1: (5, 0)}, epoch=2)
    assert failures(check(later, follower)) == [FindingKind.EPOCH_FELL]


def test_another_topic_id_needs_another_generation() -> None:
    same_generation = replace(checkpoint(2, {P0: (10, 0), P1: (5, 1)}), topics={"orders": "other"})
    assert failures(check(FIRST, same_generation)) == [FindingKind.TOPIC_ID]
    raised = replace(checkpoint(2, {P0: (0, 1), P1: (0, 1)}), topics={"orders": "other"})
    assert failures(check(FIRST, raised)) == []


def test_another_cluster_needs_another_generation() -> None:
    moved = replace(checkpoint(2, {P0: (10, 1), P1: (5, 0)}), cluster="other")
    assert failures(check(FIRST, moved)) == [FindingKind.CLUSTER]


def test_numbers_complete_in_their_order() -> None:
    second = checkpoint(2, {P0: (20, 0), P1: (5, 0)}, [result(P0, 10, 20)])
    chain = check_chain("orders", [commit(second, 3), commit(FIRST, 5)])
    assert failures(chain) == [FindingKind.COMPLETED_OUT_OF_ORDER]


def test_a_number_is_committed_once_but_its_checkpoint_may_be_published_again() -> None:
    second = checkpoint(2, {P0: (20, 0), P1: (5, 0)}, [result(P0, 10, 20)])
    twice = [commit(FIRST), commit(second, 2), commit(second, 3)]
    assert failures(check_chain("orders", twice)) == [FindingKind.REPEATED_NUMBER]
    republished = [commit(FIRST), commit(second, 2), commit(replace(second, results=()), 3)]
    assert failures(check_chain("orders", republished)) == []


def test_write_stats_and_write_status_count_the_same() -> None:
    lying = replace(FIRST, results=(result(P0, 0, 10), replace(result(P1, 0, 5), records=4)))
    honest = commit(FIRST)
    chain = check_chain("orders", [replace(honest, checkpoints={"orders": lying})])
    assert failures(chain) == [FindingKind.COMMIT_COUNT]


def test_another_sinks_commits_are_passed_over() -> None:
    foreign_commit = replace(commit(FIRST), checkpoints={"other": FIRST})
    assert check_chain("orders", [foreign_commit]).newest is None


def test_a_partition_begins_with_its_first_range_or_where_it_stands_without_one() -> None:
    late = checkpoint(1, {P0: (50, 0), P1: (7, 0)}, [result(P0, 40, 50)])
    assert check(late).beginnings == {P0: Beginning(40, False), P1: Beginning(7, False)}


def test_a_partition_that_joined_a_topic_is_told_from_one_that_was_there_at_first_or_was_moved() -> None:
    first = checkpoint(1, {P0: (10, 0)}, [result(P0, 0, 10)])
    joined = checkpoint(2, {P0: (10, 0), P1: (9, 0)}, [result(P1, 3, 9)])
    assert check(first, joined).beginnings[P1] == Beginning(3, True)
    moved = checkpoint(2, {P0: (10, 0), P1: (9, 1)}, [result(P1, 3, 9, 1)])
    assert check(first, moved).beginnings[P1] == Beginning(3, False)


def test_a_replay_from_further_back_moves_the_beginning() -> None:
    first = checkpoint(1, {P0: (50, 0)}, [result(P0, 40, 50)])
    replayed = checkpoint(2, {P0: (50, 1)}, [result(P0, 20, 50, 1)])
    assert check(first, replayed).beginnings[P0].offset == 20
