"""The names on the timeline of Hudi's metadata table tell whether it is serviced before the next instant."""

from __future__ import annotations

from collections.abc import Sequence

from sink.hudi.metadata_timeline import commits_since_compaction, is_due

INTERVAL = 10


def commit_files(instant: int, action: str = "deltacommit") -> Sequence[str]:
    """Returns the files that a completed instant leaves on the timeline."""
    return (
        f"{instant:017}.{action}.requested",
        f"{instant:017}.{action}.inflight",
        f"{instant:017}_{instant + 5:017}.{action}",
    )


def compaction_files(instant: int) -> Sequence[str]:
    begun = f"{instant:017}"
    return f"{begun}.compaction.requested", f"{begun}.compaction.inflight", f"{begun}_{instant + 5:017}.commit"


def timeline(*instants: Sequence[str]) -> list[str]:
    return ["history", *(name for names in instants for name in names)]


def commits(count: int, first: int = 1) -> list[Sequence[str]]:
    return [commit_files(10 * number) for number in range(first, first + count)]


def test_nothing_is_due_after_few_commits() -> None:
    assert not is_due(timeline(*commits(INTERVAL - 1)), INTERVAL)


def test_a_compaction_is_due_after_as_many_commits_as_hudi_waits_for() -> None:
    assert is_due(timeline(*commits(INTERVAL)), INTERVAL)


def test_commits_before_the_last_compaction_do_not_count() -> None:
    assert not is_due(timeline(*commits(INTERVAL), compaction_files(105), *commits(INTERVAL - 1, first=11)), INTERVAL)
    assert is_due(timeline(*commits(INTERVAL), compaction_files(105), *commits(INTERVAL, first=11)), INTERVAL)


def test_a_commit_that_was_begun_before_a_compaction_and_ended_after_it_counts() -> None:
    late = [f"{104:017}_{130:017}.deltacommit"]
    assert commits_since_compaction(timeline(*commits(3), late, compaction_files(105), commit_files(120))) == 2


def test_what_somebody_left_pending_is_looked_after_at_once() -> None:
    requested, inflight, _ = compaction_files(25)
    for pending in ([requested], [requested, inflight], [inflight], commit_files(25)[:1], commit_files(25)[:2]):
        assert is_due(timeline(*commits(2), pending, *commits(1, first=3)), INTERVAL), pending


def test_a_rollback_and_a_clean_that_are_complete_are_nothing_to_do() -> None:
    assert not is_due(timeline(*commits(2), commit_files(25, "clean"), commit_files(26, "rollback")), INTERVAL)
