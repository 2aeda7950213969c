"""A fleet of real workers, broken in every phase; each test ends with the auditor."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from coordination.state.failures import HaltKind
from coordination.state.model import Phase
from tests.conftest import temporary_chroot, topics
from tests.fleet import Fleet, in_phase, produce, transaction_in
from tests.integration.conftest import METADATA, PARTITIONS, RECORDS, MakeFleet
from tests.integration.table_kit import Driver, allow, plan_rollback
from tests.one_sink import load
from tests.workers import Part, WorkerProcess

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

DEADLINE_MS = 15_000
MORE_RECORDS = 3000
ENDS = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
UNDECIDED = ("Write:open a transaction.after", "Begin.after", "Write:STARTED.after", "Write:PREPARED.before")
"""Moments before a transaction's outcome is decided."""
PREPARED = "Write:PREPARED.after"
COMPLETED = "Complete.after"


@dataclass
class Pair:
    """Two workers that several tests share. Each test finds both alive and every record landed."""

    fleet: Fleet
    records: int = 0

    def make_ready(self) -> None:
        for name in ("w1", "w2"):
            if name not in self.fleet.workers or not self.fleet.workers[name].running:
                self.fleet.start(name)
        self.fleet.wait("both are members", lambda view: {member.worker for member in view.members} == {"w1", "w2"})
        self.fleet.coordinator()
        self.land()

    def produce(self) -> None:
        produce(self.fleet.kafka, self.fleet.topic, MORE_RECORDS, PARTITIONS, first=self.records)
        self.records += MORE_RECORDS

    def wait_landed(self) -> None:
        self.fleet.wait_landed(dict.fromkeys(range(PARTITIONS), self.records // PARTITIONS))

    def land(self) -> None:
        self.produce()
        self.wait_landed()

    def leader(self) -> WorkerProcess:
        return self.fleet.coordinator()

    def follower(self) -> WorkerProcess:
        leader = self.leader()
        return next(worker for worker in self.fleet.workers.values() if worker is not leader)

    def incarnation(self, worker: WorkerProcess) -> str:
        return next(member.incarnation for member in self.fleet.view().members if member.worker == worker.name)

    def reasons(self, since: int) -> list[str]:
        """Returns why the transactions after number `since` were aborted."""
        return [
            summary.reason
            for summary in self.fleet.view().ledger.history
            if summary.number > since and summary.outcome == "ABORTED"
        ]


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory, zookeeper, kafka) -> Iterator[Pair]:
    directory: Path = tmp_path_factory.mktemp("standing")
    with temporary_chroot(zookeeper.address) as chroot, topics(kafka.address) as topic:
        settings = {"coordinator.writestatus.timeout": DEADLINE_MS}
        fleet = Fleet(directory, chroot, kafka.address, topic(partitions=PARTITIONS), settings)
        yield Pair(fleet)
        fleet.close()


@pytest.fixture
def pair(standing: Pair) -> Iterator[Pair]:
    standing.make_ready()
    yield standing
    standing.fleet.assert_exactly_once(standing.records)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "points", [(PREPARED,), pytest.param((*UNDECIDED, PREPARED, COMPLETED), marks=pytest.mark.thorough)]
)
def test_what_a_killed_coordinator_left_is_rolled_back_recommitted_or_settled(
    make_fleet: MakeFleet, points: tuple[str, ...]
) -> None:
    """Each coordinator dies at a later moment of its transaction, and the next one takes over its work."""
    fleet = make_fleet(**METADATA)
    for number, point in enumerate(points, 1):
        fleet.start(f"w{number}", f"{point}=kill")
        fleet.wait_fired(point)
        if point == PREPARED:
            prepared = transaction_in(fleet.wait("PREPARED", in_phase(Phase.PREPARED)), Phase.PREPARED)
    assert transaction_in(fleet.view(), Phase.PREPARED).header == prepared.header
    fleet.start("last")
    assert [name for name, worker in fleet.workers.items() if worker.running] == ["last"]
    history = fleet.wait_landed(ENDS).ledger.history
    assert [summary.outcome for summary in history].count("ABORTED") >= len({*points} & {*UNDECIDED}), history
    committed = [summary.instant for summary in history if summary.outcome == "COMMITTED"]
    assert committed.count(prepared.header.instant) == 1, history
    fleet.assert_exactly_once(RECORDS)


@pytest.mark.thorough
@pytest.mark.parametrize("dies", [False, True], ids=["the coordinator lives", "the coordinator dies"])
def test_a_batch_whose_rollback_another_writer_has_planned_and_left_is_formed_again_and_lands(
    make_fleet: MakeFleet, spark: SparkSession, dies: bool
) -> None:
    fleet = make_fleet(**METADATA)
    coordinator = fleet.start("w1", f"{PREPARED}=wait")
    fleet.wait_fired(PREPARED)
    prepared = transaction_in(fleet.view(), Phase.PREPARED).header
    if dies:
        fleet.start("w2")
        fleet.wait("both are members", lambda view: len(view.members) == 2)
    plan_rollback(spark, load(coordinator.config, {}), prepared.instant)
    if dies:
        coordinator.kill()
        fleet.wait("the other one coordinates", lambda view: (view.coordinator or "").startswith("w2:"))
    fleet.release(PREPARED)
    fleet.wait(
        "the batch is formed again",
        lambda view: any(transaction.header.number > prepared.number for transaction in view.transactions),
    )
    history = fleet.wait_landed(ENDS).ledger.history
    assert prepared.instant not in [summary.instant for summary in history if summary.outcome == "COMMITTED"]
    fleet.assert_exactly_once(RECORDS)


@pytest.mark.thorough
def test_a_fleet_halts_once_another_one_has_committed_under_its_sink_name(
    make_fleet: MakeFleet, spark: SparkSession
) -> None:
    fleet = make_fleet()
    worker = fleet.start("w1")
    fleet.wait_landed(ENDS)
    theirs = Driver(spark, load(worker.config, {}), fleet.client)
    ours = theirs.table.view().checkpoint
    assert ours is not None
    number = ours.number + 1
    instant = theirs.table.begin(number, ours.epoch)
    theirs.table.complete(instant, [], replace(ours, keeper="another", number=number, base=ours.number), allow)
    produce(fleet.kafka, fleet.topic, MORE_RECORDS, PARTITIONS, first=RECORDS)
    halt = fleet.wait("it halts", lambda view: view.halt is not None).halt
    assert halt is not None
    assert (halt.kind, fleet.name in halt.reason) == (HaltKind.ANOTHER_FLEET, True)


def test_every_line_of_the_log_says_which_worker_and_sink_it_is_from(pair: Pair) -> None:
    logs = {name: pair.fleet.log(name).splitlines() for name in pair.fleet.workers}
    lines = [(name, json.loads(line)) for name, log in logs.items() for line in log if line.startswith("{")]
    assert len({name for name, _ in lines}) == 2
    assert [line for name, line in lines if (line.get("worker"), line.get("sink")) != (name, pair.fleet.name)] == []


def test_a_participant_killed_while_writing_costs_one_attempt(pair: Pair) -> None:
    victim, last_number = pair.follower(), pair.fleet.view().ledger.history[-1].number
    pair.fleet.arm(victim.name, "WriteTasks.before", "wait")
    pair.produce()
    pair.fleet.wait_fired("WriteTasks.before")
    victim.kill()
    pair.wait_landed()
    assert any("left the fleet" in reason for reason in pair.reasons(since=last_number)), pair.fleet.view().ledger


def test_a_coordinator_paused_beyond_its_session_is_refused_and_rejoins(pair: Pair) -> None:
    paused, fleet = pair.leader(), pair.fleet
    old_incarnation, log_length = pair.incarnation(paused), len(fleet.log(paused.name))
    fleet.arm(paused.name, "Write:PREPARED.before", "stop")
    pair.produce()
    fleet.wait_fired("Write:PREPARED.before")
    paused.pause()
    fleet.wait(
        "its session has ended", lambda view: all(member.incarnation != old_incarnation for member in view.members)
    )
    pair.wait_landed()
    paused.resume()
    fleet.wait_for_log(paused.name, "session.lost", log_length)
    fleet.wait(
        "the worker has rejoined",
        lambda view: any(
            member.worker == paused.name and member.incarnation != old_incarnation for member in view.members
        ),
    )
    pair.land()


def test_a_participant_paused_beyond_its_session_is_refused_and_rejoins(pair: Pair) -> None:
    paused, fleet = pair.follower(), pair.fleet
    old_incarnation, log_length = pair.incarnation(paused), len(fleet.log(paused.name))
    fleet.arm(paused.name, "Write:write status.before", "stop")
    pair.produce()
    fleet.wait_fired("Write:write status.before")
    paused.pause()
    pair.wait_landed()
    paused.resume()
    fleet.wait_for_log(paused.name, "session.lost", log_length)
    fleet.wait(
        "the worker has rejoined",
        lambda view: any(
            member.worker == paused.name and member.incarnation != old_incarnation for member in view.members
        ),
    )


def test_only_the_python_of_a_committing_coordinator_is_paused(pair: Pair) -> None:
    paused = pair.leader()
    pair.fleet.arm(paused.name, "Complete.guarded", "stop")
    pair.produce()
    pair.fleet.wait_fired("Complete.guarded")
    pair.wait_landed()
    paused.signal(signal.SIGCONT, Part.PYTHON)
    pair.land()


def test_only_the_jvm_of_a_committing_coordinator_is_paused(pair: Pair) -> None:
    stuck = pair.leader()
    pair.fleet.arm(stuck.name, "Complete.guarded", "stop-jvm")
    pair.produce()
    pair.fleet.wait_fired("Complete.guarded")
    pair.wait_landed()
    pair.fleet.wait("the worker has ended itself", lambda _: not stuck.running)


def test_slices_that_miss_the_write_status_deadline_are_reformed_elsewhere(pair: Pair) -> None:
    follower, last_number = pair.follower(), pair.fleet.view().ledger.history[-1].number
    pair.fleet.arm(follower.name, "WriteTasks.before", "wait")
    pair.produce()
    missing_report = f"no write status of {follower.name}"
    pair.fleet.wait(
        missing_report, lambda _: any(missing_report in reason for reason in pair.reasons(since=last_number))
    )
    pair.fleet.release("WriteTasks.before")
    pair.wait_landed()


def test_sigterm_and_ctrl_c_drain_and_exit_with_status_0(pair: Pair) -> None:
    leader, follower = pair.leader(), pair.follower()
    leader.signal(signal.SIGTERM, Part.PYTHON)
    pair.fleet.wait("the leader has left", lambda view: [member.worker for member in view.members] == [follower.name])
    assert leader.wait(60) == 0
    pair.land()
    follower.signal(signal.SIGINT, Part.PYTHON)
    assert follower.wait(60) == 0
    assert not pair.fleet.view().members
