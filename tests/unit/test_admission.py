"""Sinks of one process open transactions in turn, and no more at a time than its cores can carry."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from coordination.machines.coordinator import Coordinator
from coordination.state.messages import Admission, Begin
from coordination.state.model import Phase
from sink.runtime.turns.admission import (
    ASKS_SECONDS,
    MOST_OPEN,
    PATIENCE_SECONDS,
    SAMPLE_SECONDS,
    AdmissionControl,
    AdmittedCoordinator,
)
from tests.unit.machine_kit import SOURCE, Driver, Environment, new_term

CORES = 2
LEAST = CORES + 1


@dataclass
class SinkProcess:
    """A process whose sinks all want to open a transaction."""

    busy: float = 100.0
    at: float = 0.0
    control: AdmissionControl = field(init=False)

    def __post_init__(self) -> None:
        self.control = AdmissionControl(CORES, lambda: self.busy, lambda: self.at)

    def ask(self, *sinks: int) -> list[int]:
        """Returns the admitted ones of these waiting sinks."""
        return [sink for sink in sinks if self.control.admits(sink, True, False)]

    def end(self, *sinks: int) -> None:
        for sink in sinks:
            self.control.admits(sink, False, False)


@pytest.fixture
def process() -> SinkProcess:
    return SinkProcess()


def test_few_are_let_in_at_once_and_the_others_one_by_one_as_they_end(process: SinkProcess) -> None:
    assert process.ask(*range(6)) == [0, 1, 2]
    process.end(1)
    assert process.ask(*range(6)) == [0, 2, 3]
    assert process.ask(5, 4) == []


def test_the_sink_that_asked_first_is_let_in_first(process: SinkProcess) -> None:
    process.ask(*range(6))
    process.end(0)
    assert process.ask(5, 4) == []
    assert process.ask(3) == [3]


def test_what_is_let_in_keeps_its_place_until_its_transaction_has_ended(process: SinkProcess) -> None:
    process.ask(*range(4))
    assert process.control.admits(0, False, True)
    assert process.ask(3) == []
    process.end(0)
    assert process.ask(3) == [3]


def test_the_first_that_waits_is_woken_when_one_ends(process: SinkProcess) -> None:
    woken: list[int] = []
    for sink in range(6):
        process.control.admits(sink, True, False, lambda sink=sink: woken.append(sink))
    process.end(0)
    assert woken == [3]
    process.end(4)
    assert woken == [3]


def test_a_transaction_that_was_open_before_counts(process: SinkProcess) -> None:
    assert process.control.admits("inherited", False, True)
    assert process.ask(*range(6)) == [0, 1]


def test_while_cores_idle_one_more_is_let_in_each_second(process: SinkProcess) -> None:
    process.busy = 50.0
    process.control.sample()
    assert process.ask(*range(40)) == [0, 1, 2]
    counts = []
    for _ in range(MOST_OPEN):
        process.at += SAMPLE_SECONDS
        process.control.sample()
        counts.append(len(process.ask(*range(40))))
    assert counts[:3] == [LEAST + 1, LEAST + 2, LEAST + 3]
    assert counts[-1] == MOST_OPEN


def test_transactions_that_hang_keep_their_places_for_a_while_only(process: SinkProcess) -> None:
    process.ask(*range(9))
    process.at += PATIENCE_SECONDS
    assert process.ask(*range(3, 9)) == [3, 4, 5]


def test_however_long_sinks_wait_no_more_are_let_in_than_the_cores_carry(process: SinkProcess) -> None:
    running: list[int] = []
    order = []
    for _ in range(80):
        admitted = process.ask(*(sink for sink in range(40) if sink not in running))
        order += admitted
        running += admitted
        assert len(running) <= LEAST
        process.at += PATIENCE_SECONDS / 4
        process.end(running.pop(0))
    assert order[:80] == 2 * list(range(40))


def test_a_sink_that_waits_and_hangs_keeps_none_behind_it(process: SinkProcess) -> None:
    process.ask(*range(6))
    process.at += ASKS_SECONDS
    assert process.ask(4, 5) == []
    process.end(0)
    assert process.ask(5, 4) == [4]
    assert process.ask(5, 3) == []
    process.end(1)
    assert process.ask(5, 3) == [3]


def test_the_first_that_still_asks_is_woken(process: SinkProcess) -> None:
    woken: list[int] = []
    wake = {sink: lambda sink=sink: woken.append(sink) for sink in range(6)}
    for sink in range(6):
        process.control.admits(sink, True, False, wake[sink])
    process.at += ASKS_SECONDS
    process.control.admits(4, True, False, wake[4])
    process.end(0)
    assert woken == [4]


def test_a_sink_that_no_longer_leads_gives_its_place_back(process: SinkProcess) -> None:
    process.ask(*range(4))
    process.control.forget(2)
    assert process.ask(3) == [3]


def test_a_coordinator_that_waits_plans_what_has_come_by_its_turn() -> None:
    env = Environment()
    env.log.partitions[SOURCE].end = 10
    term = new_term(env)
    assert isinstance(term.machine, Coordinator)
    term.step(Admission(term.at, False))
    run_for(term)
    assert term.machine.waits_for_admission
    assert env.view.transactions == ()
    env.log.partitions[SOURCE].end = 30
    term.at += 1.0
    term.step(Admission(term.at, True))
    term.until(Begin)
    assert planned_records(env) == 30
    assert isinstance(term.machine, Coordinator)
    assert (term.machine.waits_for_admission, term.machine.has_open) == (False, True)


def test_two_coordinators_of_a_small_process_take_turns(process: SinkProcess) -> None:
    control = AdmissionControl(0, lambda: 100.0)
    first, second = admitted_term(control), admitted_term(control)
    run_for(first)
    run_for(second)
    assert (first.env.phase(), second.env.view.transactions) == (Phase.STARTED, ())
    first.env.report()
    first.keeper_changed()
    run_for(first, seconds=0.25)
    assert first.env.view.ledger.committed == 1
    run_for(second)
    assert second.env.phase() is Phase.STARTED


def admitted_term(control: AdmissionControl) -> Driver:
    """Returns the term of a new sink. Its log has less than a batch, so that the next one waits for the interval."""
    env = Environment()
    env.log.partitions[SOURCE].end = 10
    term = new_term(env)
    assert isinstance(term.machine, Coordinator)
    term.machine = AdmittedCoordinator(term.machine, control)  # type: ignore[assignment]
    return term


def planned_records(env: Environment) -> int:
    return sum(task.size for task in env.transaction().plan.all_tasks)


def run_for(term: Driver, seconds: float = 5.0) -> None:
    for _ in range(int(seconds * 4)):
        term.idle()
        term.tick(0.25)
