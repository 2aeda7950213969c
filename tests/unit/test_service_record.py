"""The record of the table services: since when each has been due without success, on any worker."""

from __future__ import annotations

from coordination.zookeeper.table_service_lock import WHOLE_RUN, ServiceOutcome, TableServiceRun

OK = (ServiceOutcome("cleaning", 1.0, "20260101000000000"), ServiceOutcome("archiving", 1.0))


def failed(*names: str, since: float = 0.0) -> tuple[ServiceOutcome, ...]:
    return tuple(ServiceOutcome(name, 1.0, "", "no room", since) for name in names)


def test_a_run_is_due_after_so_many_transactions_and_at_once_after_one_that_has_not_ended() -> None:
    run = TableServiceRun("w1", 50.0, 10, OK)
    assert [run.is_due(committed, 5) for committed in (10, 14, 15)] == [False, False, True]
    assert run.marked_due(60.0).is_due(10, 5)
    assert run.is_due(9, 5), "numbers have begun again"


def test_a_failure_is_dated_to_when_the_run_was_due_and_keeps_its_date_until_it_succeeds() -> None:
    run = TableServiceRun().marked_due(10.0)
    assert run.due_since == {WHOLE_RUN: 10.0}
    run = run.marked_due(11.0).after_run("w1", 12.0, 5, failed("cleaning"))
    assert (run.due_since, run.due) == ({"cleaning": 10.0}, 0.0)
    run = run.marked_due(20.0).after_run("w2", 22.0, 10, (*failed("cleaning"), OK[1]))
    assert run.due_since == {"cleaning": 10.0}
    assert run.marked_due(30.0).after_run("w2", 31.0, 15, OK).due_since == {}


def test_a_worker_that_dies_in_every_run_does_not_make_it_due_later() -> None:
    run = TableServiceRun("w1", 5.0, 5, OK)
    for at in (10.0, 20.0, 30.0):
        run = run.marked_due(at)
    assert run.due_since == {WHOLE_RUN: 10.0}
    assert run.after_run("w2", 40.0, 9, (OK[0], *failed("archiving"))).due_since == {"archiving": 10.0}


def test_a_run_in_which_no_service_could_begin_is_a_failure_of_each() -> None:
    run = TableServiceRun().marked_due(10.0).after_run("w1", 11.0, 5, failed("cleaning"))
    run = run.marked_due(20.0).after_run("w1", 21.0, 10, failed(WHOLE_RUN))
    assert run.due_since == {WHOLE_RUN: 10.0}
    run = run.after_failed_start(25.0, failed(WHOLE_RUN)[0])
    run = run.marked_due(30.0).after_run("w1", 31.0, 15, (*failed("cleaning"), OK[1]))
    assert run.due_since == {"cleaning": 10.0}


def test_what_a_service_says_of_an_older_obstacle_counts() -> None:
    run = TableServiceRun().marked_due(100.0).after_run("w1", 101.0, 5, failed("archiving", since=7.0))
    assert run.due_since == {"archiving": 7.0}


def test_services_of_the_metadata_table_are_kept_beside_the_others_until_they_are_no_longer_due() -> None:
    run = TableServiceRun("w1", 5.0, 5, OK).after_metadata_run(10.0, failed("metadata compaction"))
    run = run.marked_due(20.0).after_run("w1", 21.0, 10, OK)
    assert run.due_since == {"metadata compaction": 10.0}
    run = run.after_metadata_run(30.0, failed("metadata compaction"))
    assert run.due_since == {"metadata compaction": 10.0}
    assert run.after_metadata_run(40.0, ()).services == OK


def test_a_run_in_which_no_service_could_begin_has_no_date_of_the_metadata_table_and_gives_it_none() -> None:
    run = TableServiceRun("w1", 5.0, 5, OK).after_metadata_run(10.0, failed("metadata compaction"))
    run = run.marked_due(20.0).after_run("w1", 21.0, 10, failed(WHOLE_RUN))
    assert run.due_since == {WHOLE_RUN: 20.0, "metadata compaction": 10.0}
    run = run.after_metadata_run(30.0, ()).after_metadata_run(40.0, failed("metadata compaction"))
    assert run.due_since == {WHOLE_RUN: 20.0, "metadata compaction": 40.0}
