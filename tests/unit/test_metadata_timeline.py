"""When Hudi's metadata table is served before an instant is begun, by the names on its timeline."""

from __future__ import annotations

from collections.abc import Sequence

from sink.hudi.metadata_timeline import commits_since_compaction, is_due

EVERY = 10


def committed(instant: int, action: str = "deltacommit") -> Sequence[str]:
    """Files that a completed instant leaves on the timeline."""
    return (
        f"{instant:017}.{action}.requested",
        f"{instant:017}.{action}.inflight",
        f"{instant:017}_{instant + 5:017}.{action}",
    )


def compacted(instant: int) -> Sequence[str]:
    at = f"{instant:017}"
    return f"{at}.compaction.requested", f"{at}.compaction.inflight", f"{at}_{instant + 5:017}.commit"


def timeline(*instants: Sequence[str]) -> list[str]:
    return ["history", *(name for names in instants for name in names)]


def commits(count: int, first: int = 1) -> list[Sequence[str]]:
    return [committed(10 * number) for number in range(first, first + count)]


def test_nothing_is_due_after_few_commits() -> None:
    assert not is_due(timeline(*commits(EVERY - 1)), EVERY)


def test_a_compaction_is_due_after_as_many_commits_as_hudi_waits_for() -> None:
    assert is_due(timeline(*commits(EVERY)), EVERY)


def test_commits_before_the_last_compaction_do_not_count() -> None:
    assert not is_due(timeline(*commits(EVERY), compacted(105), *commits(EVERY - 1, first=11)), EVERY)
    assert is_due(timeline(*commits(EVERY), compacted(105), *commits(EVERY, first=11)), EVERY)


def test_a_commit_that_was_begun_before_a_compaction_and_ended_after_it_counts() -> None:
    late = [f"{104:017}_{130:017}.deltacommit"]
    assert commits_since_compaction(timeline(*commits(3), late, compacted(105), committed(120))) == 2


def test_what_somebody_left_pending_is_looked_after_at_once() -> None:
    requested, inflight, _ = compacted(25)
    for left in ([requested], [requested, inflight], [inflight], committed(25)[:1], committed(25)[:2]):
        assert is_due(timeline(*commits(2), left, *commits(1, first=3)), EVERY), left


def test_a_rollback_and_a_clean_that_are_complete_are_nothing_to_do() -> None:
    assert not is_due(timeline(*commits(2), committed(25, "clean"), committed(26, "rollback")), EVERY)
