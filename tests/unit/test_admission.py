"""Sinks of one process open transactions in turn, and no more at a time than its cores can carry."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from coordination.machines.coordinator import Coordinator
from coordination.state.messages import Admission, Begin
from coordination.state.model import Phase
from sink.runtime.admission import (
    ASKS_SECONDS,
    MOST,
    PATIENCE_SECONDS,
    SAMPLE_SECONDS,
    AdmissionControl,
    AdmittedCoordinator,
)
from tests.unit.machine_kit import SOURCE, Driver, Environment, new_term

CORES = 2
LEAST = CORES + 1


@dataclass
class House:
    """A process whose sinks all want to open a transaction."""

    busy: float = 100.0
    at: float = 0.0
    control: AdmissionControl = field(init=False)

    def __post_init__(self) -> None:
        self.control = AdmissionControl(CORES, lambda: self.busy, lambda: self.at)

    def ask(self, *sinks: int) -> list[int]:
        """Those that are let in, of sinks that wait."""
        return [sink for sink in sinks if self.control.admits(sink, True, False)]

    def end(self, *sinks: int) -> None:
        for sink in sinks:
            self.control.admits(sink, False, False)


@pytest.fixture
def house() -> House:
    return House()


def test_few_are_let_in_at_once_and_the_others_one_by_one_as_they_end(house: House) -> None:
    assert house.ask(*range(6)) == [0, 1, 2]
    house.end(1)
    assert house.ask(*range(6)) == [0, 2, 3]
    assert house.ask(5, 4) == []


def test_the_sink_that_asked_first_is_let_in_first(house: House) -> None:
    house.ask(*range(6))
    house.end(0)
    assert house.ask(5, 4) == []
    assert house.ask(3) == [3]


def test_what_is_let_in_keeps_its_place_until_its_transaction_has_ended(house: House) -> None:
    house.ask(*range(4))
    assert house.control.admits(0, False, True)
    assert house.ask(3) == []
    house.end(0)
    assert house.ask(3) == [3]


def test_the_first_that_waits_is_woken_when_one_ends(house: House) -> None:
    woken: list[int] = []
    for sink in range(6):
        house.control.admits(sink, True, False, lambda sink=sink: woken.append(sink))
    house.end(0)
    assert woken == [3]
    house.end(4)
    assert woken == [3]


def test_a_transaction_that_was_open_before_counts(house: House) -> None:
    assert house.control.admits("inherited", False, True)
    assert house.ask(*range(6)) == [0, 1]


def test_while_cores_idle_one_more_is_let_in_each_second(house: House) -> None:
    house.busy = 50.0
    house.control.look()
    assert house.ask(*range(40)) == [0, 1, 2]
    counts = []
    for _ in range(MOST):
        house.at += SAMPLE_SECONDS
        house.control.look()
        counts.append(len(house.ask(*range(40))))
    assert counts[:3] == [LEAST + 1, LEAST + 2, LEAST + 3]
    assert counts[-1] == MOST


def test_transactions_that_hang_keep_their_places_for_a_while_only(house: House) -> None:
    house.ask(*range(9))
    house.at += PATIENCE_SECONDS
    assert house.ask(*range(3, 9)) == [3, 4, 5]


def test_however_long_sinks_wait_no_more_are_let_in_than_the_cores_carry(house: House) -> None:
    running: list[int] = []
    order = []
    for _ in range(80):
        admitted = house.ask(*(sink for sink in range(40) if sink not in running))
        order += admitted
        running += admitted
        assert len(running) <= LEAST
        house.at += PATIENCE_SECONDS / 4
        house.end(running.pop(0))
    assert order[:80] == 2 * list(range(40))


def test_a_sink_that_waits_and_hangs_keeps_none_behind_it(house: House) -> None:
    house.ask(*range(6))
    house.at += ASKS_SECONDS
    assert house.ask(4, 5) == []
    house.end(0)
    assert house.ask(5, 4) == [4]
    assert house.ask(5, 3) == []
    house.end(1)
    assert house.ask(5, 3) == [3]


def test_the_first_that_still_asks_is_woken(house: House) -> None:
    woken: list[int] = []
    wake = {sink: lambda sink=sink: woken.append(sink) for sink in range(6)}
    for sink in range(6):
        house.control.admits(sink, True, False, wake[sink])
    house.at += ASKS_SECONDS
    house.control.admits(4, True, False, wake[4])
    house.end(0)
    assert woken == [4]


def test_a_sink_that_no_longer_leads_gives_its_place_back(house: House) -> None:
    house.ask(*range(4))
    house.control.forget(2)
    assert house.ask(3) == [3]


def test_a_coordinator_that_waits_plans_what_has_come_by_its_turn() -> None:
    env = Environment()
    env.log.partitions[SOURCE].end = 10
    term = new_term(env)
    assert isinstance(term.machine, Coordinator)
    term.step(Admission(term.at, False))
    rest(term)
    assert term.machine.waits_for_admission
    assert env.view.transactions == ()
    env.log.partitions[SOURCE].end = 30
    term.at += 1.0
    term.step(Admission(term.at, True))
    term.until(Begin)
    assert planned(env) == 30
    assert isinstance(term.machine, Coordinator)
    assert (term.machine.waits_for_admission, term.machine.has_open) == (False, True)


def test_two_coordinators_of_a_small_process_take_turns(house: House) -> None:
    control = AdmissionControl(0, lambda: 100.0)
    first, second = led(control), led(control)
    rest(first)
    rest(second)
    assert (first.env.phase(), second.env.view.transactions) == (Phase.STARTED, ())
    first.env.report()
    first.changed()
    rest(first, seconds=0.25)
    assert first.env.view.ledger.committed == 1
    rest(second)
    assert second.env.phase() is Phase.STARTED


def led(control: AdmissionControl) -> Driver:
    """A term of a sink of its own. Its log has less than a batch, so that the next one waits for the interval."""
    env = Environment()
    env.log.partitions[SOURCE].end = 10
    term = new_term(env)
    assert isinstance(term.machine, Coordinator)
    term.machine = AdmittedCoordinator(term.machine, control)  # type: ignore[assignment]
    return term


def planned(env: Environment) -> int:
    return sum(task.size for task in env.transaction().plan.all_tasks)


def rest(term: Driver, seconds: float = 5.0) -> None:
    for _ in range(int(seconds * 4)):
        term.idle()
        term.tick(0.25)
