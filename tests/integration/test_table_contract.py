"""The simulation's table is like a Hudi table: the same random requests end alike on both and leave the same view.

The real side performs a coordinator's whole request: effect handler, in-lock guard with its check in ZooKeeper, Hudi.
The script names instants by the order in which they began, and write stats by their files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Protocol, cast

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from coordination.state import tree
from coordination.state.messages import (
    Begin,
    Complete,
    Done,
    FindExistingFiles,
    Operation,
    Outcome,
    ReadTable,
    Request,
    RollBack,
)
from coordination.state.model import InstantState, Slice, TableView, WriteTask
from coordination.state.tree import Create
from coordination.zookeeper.keeper import Keeper
from sink.bad_records.table import ErrorsTable
from sink.clients.kafka.log import Log
from sink.runtime.sinks.effect_handlers import CoordinatorEffectHandler
from sink.telemetry.metrics import ProcessMetrics
from sink.write.rows.row_spec import ColumnResolver
from tests.integration.table_kit import SINK, Driver, checkpoint, connected, table_settings
from tests.simulation.table import NoWatcher, SimTable, stat_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

REQUESTS = 50
STEPS = (
    *("begin", "begin", "write", "write", "complete", "complete", "roll back", "another", "rolled back by another"),
    *("rollback planned by another", "restore"),
)
RESTORES = 2
"""The most restores of a script: each takes half a second."""
LOCK = f"{tree.ELECTION}/w1__lock__"


class Side(Protocol):
    """`instants` in the order of their beginning, `stats` of each file that was written."""

    instants: list[str]
    stats: list[str]

    def perform(self, operation: Operation) -> Outcome: ...

    def write(self, instant: str, file: int) -> None: ...

    def commit_as_another(self) -> None: ...

    def roll_back_as_another(self, instant: str) -> None: ...

    def plan_rollback_as_another(self, instant: str) -> None: ...

    def plan_restore_as_another(self, target: str) -> None: ...

    def restore_as_another(self) -> None: ...


class Real:
    def __init__(self, driver: Driver, client: KazooClient) -> None:
        self.instants: list[str] = []
        self.stats: list[str] = []
        self._driver = driver
        self._keeper = Keeper(client, f"/sink/{SINK}", lambda: None)
        self._keeper.bootstrap("digest")
        self._keeper.write((Create(LOCK),))
        errors = ErrorsTable(driver.spark, driver.settings.errors, client)
        self._effect_handler = CoordinatorEffectHandler(
            self._keeper,
            driver.table,
            errors,
            cast(Log, None),
            cast(ColumnResolver, None),
            LOCK,
            ProcessMetrics().sink(SINK),
        )

    def perform(self, operation: Operation) -> Outcome:
        outcome = self._effect_handler.perform(Request(1, operation))
        if isinstance(operation, Begin) and isinstance(outcome, Done):
            self.instants.append(outcome.value)
            header = tree.header_path(operation.number)
            self._keeper.write((Create(header.rpartition("/")[0]), Create(header)))
        return outcome

    def write(self, instant: str, file: int) -> None:
        self.stats += self._driver.write(instant, file * 10)

    def commit_as_another(self) -> None:
        self._driver.land_as_another(0)

    def roll_back_as_another(self, instant: str) -> None:
        self._driver.roll_back_as_another(instant)

    def plan_rollback_as_another(self, instant: str) -> None:
        self._driver.plan_rollback_as_another(instant)

    def plan_restore_as_another(self, target: str) -> None:
        self._planned = self._driver.plan_restore_as_another(target)

    def restore_as_another(self) -> None:
        self._planned()


class Simulated:
    def __init__(self) -> None:
        self.instants: list[str] = []
        self.stats: list[str] = []
        self._table = SimTable(NoWatcher())

    def perform(self, operation: Operation) -> Outcome:
        match operation:
            case Begin(number, epoch):
                outcome = self._table.begin(number, epoch, self)
                if isinstance(outcome, Done):
                    self.instants.append(outcome.value)
                return outcome
            case Complete():
                return self._table.complete(operation)
            case RollBack(instant):
                return self._table.roll_back(instant)
            case FindExistingFiles(stats=stats):
                return Done(self._table.check_files(stats, ()))
            case ReadTable(instants):
                return Done(self._table.view(instants))
        raise AssertionError(operation)

    def write(self, instant: str, file: int) -> None:
        task = WriteTask((Slice("t", 0, file * 10, file * 10 + 10, "topic-id", 0),))
        self._table.write_file(instant, task)
        self.stats.append(stat_of(task))

    def commit_as_another(self) -> None:
        self._table.foreign_commit()

    def roll_back_as_another(self, instant: str) -> None:
        self._table.roll_back_by_others(instant)

    def plan_rollback_as_another(self, instant: str) -> None:
        self._table.plan_rollback_by_others(instant)

    def plan_restore_as_another(self, target: str) -> None:
        self._restore = self._table.plan_restore(self._table.instants[target].requested)

    def restore_as_another(self) -> None:
        while not self._table.restore_further(self._restore):
            pass


class Script:
    """Random requests, the same for both sides."""

    def __init__(self, seed: int, sides: Sequence[Side]) -> None:
        self._rng = Random(seed)
        self._sides = sides
        self._files: list[int] = []
        """The number of the instant under which each file was written."""
        self._newest = 0
        self._begun = 0
        self._restores = 0
        self.log: list[str] = []

    def step(self) -> None:
        kind = self._rng.choice(STEPS) if self._begun else "begin"
        instant_number = max(self._begun - 1 - int(self._rng.expovariate(0.5)), 0)
        match kind:
            case "begin":
                self._begun += 1
                self._both(kind, lambda _: Begin(self._begun, 1))
            case "write":
                self._write(instant_number)
            case "another":
                for side in self._sides:
                    side.commit_as_another()
                self.log.append(kind)
            case "rolled back by another":
                self._roll_back_as_another(instant_number)
            case "rollback planned by another":
                self._plan_rollback_as_another(instant_number)
            case "restore":
                self._restore_as_another()
            case "complete":
                number = instant_number + 1
                base = min(max(self._newest + self._rng.choice((-1, 0, 0, 0, 1)), 0), number - 1)
                relation = "upon" if base == self._newest else "behind" if base < self._newest else "ahead of"
                files = [file for file, instant in enumerate(self._files) if instant == instant_number]
                outcome = self._both(
                    f"complete {number} {relation} {self._newest}",
                    lambda side: Complete(
                        side.instants[instant_number],
                        number,
                        0,
                        0,
                        tuple(side.stats[file] for file in files),
                        checkpoint(number, base),
                    ),
                )
                if isinstance(outcome, Done):
                    self._newest = max(self._newest, number)
            case "roll back":
                self._both(f"{kind} {instant_number + 1}", lambda side: RollBack(side.instants[instant_number]))

    def assert_same_view(self) -> None:
        views = []
        for side in self._sides:
            outcome = side.perform(FindExistingFiles(1, tuple(side.stats), ()))
            assert isinstance(outcome, Done), (outcome, self.log[-3:])
            views.append((_named(_view(side), side.instants), len(outcome.value.existing)))
        assert views[0] == views[1], self.log[-3:]

    def _write(self, instant_number: int) -> None:
        """Writes a file on both sides; also late, under an instant that was rolled back."""
        if (state := self._state(instant_number)) not in (InstantState.PENDING, InstantState.ROLLED_BACK):
            return
        if state is InstantState.ROLLED_BACK:
            self.log.append("late file")
        for side in self._sides:
            side.write(side.instants[instant_number], len(self._files))
        self._files.append(instant_number)

    def _roll_back_as_another(self, instant_number: int) -> None:
        if self._state(instant_number) is not InstantState.PENDING:
            return
        for side in self._sides:
            side.roll_back_as_another(side.instants[instant_number])
        self.log.append("rolled back by another")

    def _plan_rollback_as_another(self, instant_number: int) -> None:
        if self._state(instant_number) is not InstantState.PENDING:
            return
        for side in self._sides:
            side.plan_rollback_as_another(side.instants[instant_number])
        self.log.append("rollback planned by another")

    def _restore_as_another(self) -> None:
        """Plans a restore to a commit, requests what has to wait for it, and carries it out."""
        completed = [number for number in range(self._begun) if self._state(number) is InstantState.COMPLETED]
        if self._restores == RESTORES or not completed:
            return
        self._restores += 1
        target = self._rng.choice(completed)
        pending = [number for number in range(self._begun) if self._state(number) is InstantState.PENDING]
        for side in self._sides:
            side.plan_restore_as_another(side.instants[target])
        self._both("begin though a restore is pending", lambda _: Begin(self._begun + 1, 1))
        if pending:
            number = pending[0]
            stated = checkpoint(number + 1, min(self._newest, number))
            self._both(
                "complete though a restore is pending",
                lambda side: Complete(side.instants[number], number + 1, 0, 0, (), stated),
            )
        for side in self._sides:
            side.restore_as_another()
        self._newest = view.checkpoint.number if (view := _view(self._sides[1])).checkpoint else 0
        self.log.append(f"restored to {target + 1}")

    def _state(self, instant_number: int) -> InstantState:
        side = self._sides[0]
        return _named(_view(side), side.instants).instants[str(instant_number)]

    def _both(self, label: str, build: Callable[[Side], Operation]) -> Outcome:
        outcomes = [side.perform(build(side)) for side in self._sides]
        kinds = [type(outcome).__name__ for outcome in outcomes]
        assert kinds[0] == kinds[1], (label, outcomes, self.log[-5:])
        self.log.append(f"{label}: {kinds[0]}")
        return outcomes[0]


def _view(side: Side) -> TableView:
    outcome = side.perform(ReadTable(tuple(side.instants)))
    assert isinstance(outcome, Done), outcome
    return cast(TableView, outcome.value)


def _named(view: TableView, instants: Sequence[str]) -> TableView:
    """Returns the view with each instant named by its position in the order of beginnings."""
    names = {instant: str(position) for position, instant in enumerate(instants)}
    states = {names[instant]: state for instant, state in view.instants.items()}
    return replace(view, instants=states, orphans=tuple(sorted(names[orphan] for orphan in view.orphans)))


@pytest.fixture
def real(spark: SparkSession, chroot: str, tmp_path: Path) -> Iterator[Real]:
    with connected(chroot) as client:
        driver = Driver(spark, table_settings(tmp_path / "table", chroot), client)
        driver.table.ensure()
        yield Real(driver, client)


@pytest.mark.parametrize("seed", [10, pytest.param(166, marks=pytest.mark.thorough)])
def test_random_requests_end_alike_and_leave_the_same_view(real: Real, seed: int) -> None:
    script = Script(seed, (real, Simulated()))
    for _ in range(REQUESTS):
        script.step()
        script.assert_same_view()
    kinds = ("upon", "behind", "ahead of", "roll back", "by another", "late", "planned by", "restored to")
    for kind in (*kinds, "pending: Failed", "Done", "Refused", "Failed"):
        assert any(kind in entry for entry in script.log), f"nothing was {kind}: {script.log}"
