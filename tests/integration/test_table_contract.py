"""The simulation's table is like a Hudi table: the same random requests end alike on both and leave the same view.

The real side goes the whole way of a coordinator's request: performer, in-lock guard with its check in ZooKeeper, Hudi.
Instants are named by the order in which they began, write stats by the file that they stand for.
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
from sink.clients.kafka import Log
from sink.runtime.effect_handlers import CoordinatorEffectHandler
from sink.telemetry.metrics import ProcessMetrics
from sink.write.column_resolution import ColumnResolver
from tests.integration.table_kit import SINK, Driver, checkpoint, connected, settings
from tests.simulation.table import NoWatcher, SimTable, stat_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

REQUESTS = 50
STEPS = ("begin", "begin", "write", "write", "complete", "complete", "roll back", "another", "rolled back by another")
LOCK = f"{tree.ELECTION}/w1__lock__"


class Side(Protocol):
    """`instants` in the order of their beginning, `stats` of each file that was written."""

    instants: list[str]
    stats: list[str]

    def perform(self, operation: Operation) -> Outcome: ...

    def write(self, instant: str, file: int) -> None: ...

    def commit_as_another(self) -> None: ...

    def roll_back_as_another(self, instant: str) -> None: ...


class Real:
    def __init__(self, driver: Driver, client: KazooClient) -> None:
        self.instants: list[str] = []
        self.stats: list[str] = []
        self._driver = driver
        self._keeper = Keeper(client, f"/sink/{SINK}", lambda: None)
        self._keeper.bootstrap("digest")
        self._keeper.write((Create(LOCK),))
        errors = ErrorsTable(driver.spark, driver.settings, client)
        self._performer = CoordinatorEffectHandler(
            self._keeper,
            driver.table,
            errors,
            cast(Log, None),
            cast(ColumnResolver, None),
            LOCK,
            ProcessMetrics().sink(SINK),
        )

    def perform(self, operation: Operation) -> Outcome:
        outcome = self._performer.perform(Request(1, operation))
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


class Simulated:
    def __init__(self) -> None:
        self.instants: list[str] = []
        self.stats: list[str] = []
        self._table = SimTable(NoWatcher())

    def perform(self, operation: Operation) -> Outcome:
        match operation:
            case Begin(number, epoch):
                name = self._table.begin(number, epoch, self)
                assert name is not None
                self.instants.append(name)
                return Done(name)
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


class Script:
    """Random requests, the same for both sides; `files` says under which instant each file was written."""

    def __init__(self, seed: int, sides: Sequence[Side]) -> None:
        self._rng = Random(seed)
        self._sides = sides
        self._files: list[int] = []
        self._newest = 0
        self._began = 0
        self.ends: list[str] = []

    def step(self) -> None:
        what = self._rng.choice(STEPS) if self._began else "begin"
        which = max(self._began - 1 - int(self._rng.expovariate(0.5)), 0)
        match what:
            case "begin":
                self._began += 1
                self._both(what, lambda _: Begin(self._began, 1))
            case "write":
                self._write(which)
            case "another":
                for side in self._sides:
                    side.commit_as_another()
                self.ends.append(what)
            case "rolled back by another":
                self._roll_back_as_another(which)
            case "complete":
                number = which + 1
                base = min(max(self._newest + self._rng.choice((-1, 0, 0, 0, 1)), 0), number - 1)
                place = "upon" if base == self._newest else "behind" if base < self._newest else "ahead of"
                mine = [file for file, instant in enumerate(self._files) if instant == which]
                outcome = self._both(
                    f"complete {number} {place} {self._newest}",
                    lambda side: Complete(
                        side.instants[which], number, 0, 0, tuple(side.stats[f] for f in mine), checkpoint(number, base)
                    ),
                )
                if isinstance(outcome, Done):
                    self._newest = max(self._newest, number)
            case "roll back":
                self._both(f"{what} {which + 1}", lambda side: RollBack(side.instants[which]))

    def assert_same_view(self) -> None:
        seen = []
        for side in self._sides:
            held = side.perform(FindExistingFiles(1, tuple(side.stats), ()))
            assert isinstance(held, Done), (held, self.ends[-3:])
            seen.append((_named(_view(side), side.instants), len(held.value.existing)))
        assert seen[0] == seen[1], self.ends[-3:]

    def _write(self, which: int) -> None:
        """Also late, under an instant that was rolled back."""
        if (state := self._state(which)) not in (InstantState.PENDING, InstantState.ROLLED_BACK):
            return
        if state is InstantState.ROLLED_BACK:
            self.ends.append("late file")
        for side in self._sides:
            side.write(side.instants[which], len(self._files))
        self._files.append(which)

    def _roll_back_as_another(self, which: int) -> None:
        if self._state(which) is not InstantState.PENDING:
            return
        for side in self._sides:
            side.roll_back_as_another(side.instants[which])
        self.ends.append("rolled back by another")

    def _state(self, which: int) -> InstantState:
        side = self._sides[0]
        return _named(_view(side), side.instants).instants[str(which)]

    def _both(self, what: str, build: Callable[[Side], Operation]) -> Outcome:
        outcomes = [side.perform(build(side)) for side in self._sides]
        kinds = [type(outcome).__name__ for outcome in outcomes]
        assert kinds[0] == kinds[1], (what, outcomes, self.ends[-5:])
        self.ends.append(f"{what}: {kinds[0]}")
        return outcomes[0]


def _view(side: Side) -> TableView:
    read = side.perform(ReadTable(tuple(side.instants)))
    assert isinstance(read, Done), read
    return cast(TableView, read.value)


def _named(view: TableView, instants: Sequence[str]) -> TableView:
    """With each instant named by its place in the order of beginnings."""
    names = {instant: str(place) for place, instant in enumerate(instants)}
    states = {names[instant]: state for instant, state in view.instants.items()}
    return replace(view, instants=states, orphans=tuple(sorted(names[each] for each in view.orphans)))


@pytest.fixture
def real(spark: SparkSession, chroot: str, tmp_path: Path) -> Iterator[Real]:
    with connected(chroot) as client:
        driver = Driver(spark, settings(tmp_path / "table", chroot), client)
        driver.table.ensure()
        yield Real(driver, client)


@pytest.mark.parametrize("seed", [2, pytest.param(10, marks=pytest.mark.thorough)])
def test_random_requests_end_alike_and_leave_the_same_view(real: Real, seed: int) -> None:
    script = Script(seed, (real, Simulated()))
    for _ in range(REQUESTS):
        script.step()
        script.assert_same_view()
    for kind in ("upon", "behind", "ahead of", "roll back", "by another", "late", "Done", "Refused", "Failed"):
        assert any(kind in each for each in script.ends), f"nothing was {kind}: {script.ends}"
