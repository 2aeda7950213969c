"""Drives one machine by hand against simulated services: honest answers unless the test gives another."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from coordination.errors import Conflict, NotLeader
from coordination.machines.coordinator import Coordinator
from coordination.machines.participant import Participant
from coordination.planning.config import CoordinatorConfig
from coordination.planning.offsets import DataLossPolicy, OffsetReset
from coordination.planning.slicing import Limits
from coordination.planning.tolerance import NO_ERRORS, ErrorLimits
from coordination.planning.write_tasks import TaskSizes
from coordination.state import tree
from coordination.state.messages import (
    Answered,
    Begin,
    Complete,
    Done,
    Effect,
    Event,
    FindExistingFiles,
    KeeperChanged,
    Note,
    Operation,
    Outcome,
    ParticipantViewSeen,
    ReadKeeper,
    ReadLog,
    ReadTable,
    Refused,
    Request,
    Resign,
    RollBack,
    Tick,
    Write,
    WriteTasks,
)
from coordination.state.model import (
    Header,
    Member,
    Phase,
    SliceResult,
    TopicPartition,
    WriteStatus,
    WriteTask,
)
from coordination.state.reading import ParticipantView, ParticipantViewReader
from coordination.state.tree import Op, Transaction
from tests.simulation.keeper import SimKeeper
from tests.simulation.log import SimLog
from tests.simulation.reading import reads_of
from tests.simulation.table import NoWatcher, SimTable, stat_of

SOURCE = TopicPartition("orders", 0)
WORKERS = ("a:1", "b:1")


class Environment:
    """ZooKeeper with two members, an empty table and a log of one partition with 100 records."""

    def __init__(self) -> None:
        self.keeper = SimKeeper(lambda: None)
        self.keeper.bootstrap("config")
        self.table = SimTable(NoWatcher())
        self.log = SimLog("cluster-1")
        self.log.add(SOURCE)
        self.log.partitions[SOURCE].end = 100
        self.schemas: tuple[tuple[str, str], ...] = ()
        """The schemas that participants report, as id and fingerprint."""
        self.sessions = {}
        for worker in WORKERS:
            self.sessions[worker] = self.keeper.open_session()
            self.keeper.join(Member(worker, "host", 1, "1"), self.sessions[worker])

    @property
    def view(self) -> tree.KeeperView:
        return self.keeper.view(self.keeper.latest)

    def participant_view(self, incarnation: str) -> ParticipantView:
        return ParticipantViewReader(incarnation).read(self.keeper.snapshot(self.keeper.latest))

    def transaction(self, number: int = 1) -> Transaction:
        return next(transaction for transaction in self.view.transactions if transaction.header.number == number)

    def phase(self, number: int = 1) -> Phase:
        return self.transaction(number).header.phase

    def report(self, number: int = 1, incarnations: Collection[str] = WORKERS) -> None:
        """Let these participants write their slices and create their statuses."""
        transaction = self.transaction(number)
        for incarnation, tasks in transaction.plan.tasks.items():
            if incarnation in incarnations:
                self.keeper.write(tree.status_ops(self.write_status_of(transaction.header, incarnation, tasks)))

    def write_status_of(self, header: Header, incarnation: str, tasks: tuple[WriteTask, ...]) -> WriteStatus:
        for task in tasks:
            self.table.write_file(header.instant or "", task)
        results = tuple(
            SliceResult(task_slice, *self.log.read(task_slice)) for task in tasks for task_slice in task.slices
        )
        reads = tuple(read for task in tasks for read in reads_of(task, self.log))
        return WriteStatus(
            header.number, incarnation, results, tuple(map(stat_of, tasks)), reads=reads, schemas=self.schemas
        )


class Driver:
    """Steps a machine and keeps its one outstanding request."""

    def __init__(self, env: Environment, machine: Coordinator | Participant) -> None:
        self.env, self.machine = env, machine
        self.request: Request | None = None
        self.effects: list[Effect] = []
        self.at = 0.0

    def step(self, event: Event) -> list[Effect]:
        effects = self.machine.step(event)
        self.effects += effects
        for effect in effects:
            if isinstance(effect, Request):
                assert self.request is None, "two requests at once"
                self.request = effect
        return effects

    def tick(self, seconds: float = 0.0) -> list[Effect]:
        self.at += seconds
        return self.step(Tick(self.at, self.at))

    def answer(self, outcome: Outcome) -> list[Effect]:
        request, self.request = self.request, None
        assert request is not None
        return self.step(Answered(self.at, request.id, outcome))

    def keeper_changed(self) -> None:
        self.step(KeeperChanged(self.at))

    def see_participant_view(self) -> list[Effect]:
        assert isinstance(self.machine, Participant)
        return self.step(ParticipantViewSeen(self.at, self.env.participant_view(self.machine.incarnation)))

    @property
    def requested_operation(self) -> Operation | None:
        return self.request.operation if self.request else None

    @property
    def resigned(self) -> str | None:
        return next((effect.reason for effect in self.effects if isinstance(effect, Resign)), None)

    def notes(self, event: str) -> list[dict[str, Any]]:
        return [dict(effect.fields) for effect in self.effects if isinstance(effect, Note) and effect.event == event]

    def until(self, wanted: type[Any] | tuple[type[Any], ...] | str) -> Any:
        """Answer honestly until the machine asks for `wanted`: an operation, or a write's purpose."""
        return self._until(
            lambda op: (
                op.purpose == wanted
                if isinstance(wanted, str) and isinstance(op, Write)
                else not isinstance(wanted, str) and isinstance(op, wanted)
            )
        )

    def _until(self, matches: Callable[[Operation], bool]) -> Operation:
        for _ in range(200):
            if self.request is None:
                self.tick(0.25)
            elif matches(self.request.operation):
                return self.request.operation
            else:
                self.answer(self.perform(self.request.operation))
        raise AssertionError(f"not asked for within 200 steps; now {self.requested_operation}")

    def idle(self) -> None:
        """Answer honestly until the machine has nothing to ask."""
        for _ in range(200):
            if self.request is None:
                return
            self.answer(self.perform(self.request.operation))
        raise AssertionError("never idle")

    def perform(self, operation: Operation) -> Outcome:
        env = self.env
        match operation:
            case ReadKeeper():
                return Done(env.view)
            case ReadTable(instants=instants):
                return Done(env.table.view(instants))
            case ReadLog(topics, pattern, unfinished):
                return Done(env.log.view(topics, pattern, unfinished))
            case Write(ops=ops):
                return write_outcome(env.keeper, ops)
            case Begin(number=number, epoch=epoch):
                return env.table.begin(number, epoch, None)
            case FindExistingFiles(stats=stats, tasks=tasks):
                return Done(env.table.check_files(stats, tasks))
            case RollBack(instant=instant):
                return env.table.roll_back(instant)
            case Complete():
                return env.table.complete(operation)
            case WriteTasks(number=number, tasks=tasks):
                header = env.transaction(number).header
                assert isinstance(self.machine, Participant)
                return Done(env.write_status_of(header, self.machine.incarnation, tasks))


def write_outcome(keeper: SimKeeper, ops: tuple[Op, ...]) -> Outcome:
    try:
        keeper.write(ops)
    except NotLeader as error:
        return Refused(str(error), fenced=True)
    except Conflict as error:
        return Refused(str(error))
    return Done()


def new_term(
    env: Environment,
    worker: str = "a:1",
    in_flight: int = 1,
    errors: ErrorLimits = NO_ERRORS,
    pattern: str | None = None,
    reset: OffsetReset = OffsetReset.EARLIEST,
    on_data_loss: DataLossPolicy = DataLossPolicy.FAIL,
) -> Driver:
    """Returns a coordinator at the head of the queue; an earlier coordinator has lost its lock."""
    for path, _ in env.view.contenders:
        env.keeper.remove(path)
    lock = env.keeper.contend(worker, env.sessions[worker])
    assert lock is not None
    config = CoordinatorConfig(
        sink="orders",
        incarnation=worker,
        lock_path=lock,
        config_digest="config",
        topics=() if pattern else (SOURCE.topic,),
        topic_pattern=pattern,
        reset=reset,
        on_data_loss=on_data_loss,
        limits=Limits(50, 25),
        interval=1.0,
        timeout=5.0,
        in_flight=in_flight,
        errors=errors,
        task_sizes=TaskSizes(least=1),
    )
    driver = Driver(env, Coordinator(config))
    driver.tick()
    return driver
