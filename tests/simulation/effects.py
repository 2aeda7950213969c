"""Performs the effects of a process's machines, or fails to.

Each outcome is Done, Refused, Failed or Unknown, exactly as `coordination.state.messages` defines them. A request may
be lost, its answer may be lost, or its effect may come after the time-out. A process may die or stop before and after
every request, and its last requests still arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coordination.errors import Conflict, Corrupt, DataLoss, NotLeader, WrongLog
from coordination.machines.coordinator import Coordinator
from coordination.machines.participant import Participant
from coordination.state import tree
from coordination.state.failures import Failure, FailureKind, HaltKind
from coordination.state.messages import (
    Answered,
    Begin,
    Complete,
    Done,
    Failed,
    FindExistingFiles,
    Outcome,
    ReadKeeper,
    ReadLog,
    ReadTable,
    Refused,
    Request,
    RollBack,
    Unknown,
    Write,
    WriteTasks,
)
from coordination.state.model import LogView, Slice, SliceResult, WriteStatus, WriteTask
from tests.simulation.reading import Reading
from tests.simulation.table import stat_of
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.process import Process

Machine = Coordinator | Participant
KEEPER_SECONDS = 1.5
TABLE_SECONDS = 4.0
_READS = (ReadKeeper, ReadTable, ReadLog, FindExistingFiles)


class Effects:
    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world
        self._outstanding: dict[int, set[int]] = {}
        self._cancelled: set[tuple[int, int]] = set()

    def cancel(self, machine: Machine, id: int) -> None:
        self._cancelled.add((id_of(machine), id))

    def idle(self, machine: Machine) -> bool:
        return not self._outstanding.get(id_of(machine))

    def perform(self, machine: Machine, request: Request) -> None:
        world, rng = self._world, self._world.rng
        outstanding = self._outstanding.setdefault(id_of(machine), set())
        if outstanding:
            raise Violation(
                "one request is outstanding per machine", f"{self._process.name} {request} beside {outstanding}"
            )
        outstanding.add(request.id)
        world.count(type(request.operation).__name__)
        if rng.random() < world.profile.crash_at * world.faulty:
            if rng.random() < 0.5:
                self._send(machine, request)
            self._process.crash()
            return
        if rng.random() < world.profile.pause_at * world.faulty:
            self._process.pause(rng.uniform(0.5, 3.0) * world.profile.session_timeout)
        self._send(machine, request)

    def _send(self, machine: Machine, request: Request) -> None:
        world, rng, op = self._world, self._world.rng, request.operation
        if isinstance(op, WriteTasks):
            self._process.locally(0.01, lambda: self._write_tasks(machine, request, op))
            return
        service = _service(op)
        limit = KEEPER_SECONDS if service == "keeper" else TABLE_SECONDS
        fate = world.fate()
        is_late = fate == "late"
        delay = limit + rng.expovariate(0.3) if is_late else world.latency(service)
        in_network = rng.random() < 0.5

        def silent() -> None:
            outcome: Outcome = Unknown("no answer in time")
            if isinstance(op, _READS) and rng.random() < 0.7:
                outcome = Failed("unavailable")
            self._answer(machine, request, outcome)

        def arrive() -> None:
            if (not self._process.alive or service in self._process.cut) and not in_network:
                return
            if self._process.paused and not in_network:
                self._process.waiting.append(arrive)
                return
            if fate == "lost":
                return
            self._execute(machine, op, answered)

        def answered(outcome: Outcome) -> None:
            if fate != "answer lost" and service not in self._process.cut:
                world.after(world.latency(service), lambda: self._answer(machine, request, outcome))

        if self._process.poisoned and isinstance(op, Begin | Complete | RollBack):
            world.after(world.latency(service), lambda: self._answer(machine, request, Unknown("a broken class")))
            return
        if fate == "failed" and not (isinstance(op, Write)):
            world.after(world.latency(service), lambda: self._answer(machine, request, Failed("storage refused")))
            return
        world.after(limit, silent)
        world.after(delay, arrive)

    def _answer(self, machine: Machine, request: Request, outcome: Outcome) -> None:
        def deliver() -> None:
            outstanding = self._outstanding.get(id_of(machine), set())
            is_first = request.id in outstanding
            outstanding.discard(request.id)
            # The worker answers once; a machine promises to drop a second answer.
            if is_first or self._world.rng.random() < self._world.profile.duplicate_answer:
                if is_first and isinstance(outcome, Unknown):
                    self._world.count("unknown outcomes")
                self._world.trace(self._process.name, "answer", request.id, type(request.operation).__name__, outcome)
                self._process.feed(machine, Answered(self._process.at, request.id, outcome))

        self._process.locally(0.0, deliver)

    def _execute(self, machine: Machine, op: Any, then: Callable[[Outcome], None]) -> None:
        world = self._world
        match op:
            case ReadKeeper():
                then(self._read_keeper())
            case ReadTable(instants=instants):
                then(Done(world.table.view(instants)))
            case ReadLog(topics, pattern, unfinished):
                self._look_up_columns(self._process.log.view(topics, pattern, unfinished), then)
            case Write():
                then(self._write(machine, op))
            case Begin(number=number, epoch=epoch):
                then(world.table.begin(number, epoch, self._process, self._process.time_of_instant()))
            case FindExistingFiles(stats=stats, tasks=tasks):
                then(Done(world.table.check_files(stats, tasks)))
            case RollBack(instant=instant):
                then(world.table.roll_back(instant, self._process.clock))
            case Complete():
                self._complete(self._process.locks[id_of(machine)], op, then)
            case _:
                raise AssertionError(op)

    def _look_up_columns(self, log_view: LogView, then: Callable[[Outcome], None]) -> None:
        """Asks the registry after the log's ends were read, while producers go on."""
        world = self._world
        if world.profile.evolutions:
            world.after(self._gap(), lambda: then(Done(replace(log_view, columns=str(world.log.schema)))))
        else:
            then(Done(log_view))

    def _epoch(self) -> int | None:
        view = self._world.tree()
        return view.epoch if view else None

    def _read_keeper(self) -> Outcome:
        try:
            view = self._process.read()
        except Corrupt as error:
            return Failed(str(error), halts=HaltKind.OTHER)
        return Done(view) if view is not None else Failed("unavailable")

    def _write(self, machine: Machine, op: Write) -> Outcome:
        keeper = self._world.keeper
        epoch = self._epoch()
        try:
            keeper.write(op.ops)
        except NotLeader as error:
            return Refused(str(error), fenced=True)
        except Conflict as error:
            return Refused(str(error))
        self._process.last_zxid = max(self._process.last_zxid, keeper.latest)
        if isinstance(machine, Coordinator) and self._process.locks[id_of(machine)] not in keeper.nodes:
            raise Violation("a coordinator writes only while it holds the lock", f"{self._process.name} {op.purpose}")
        term = machine.epoch if isinstance(machine, Coordinator) else None
        if term is not None and epoch is not None and term < epoch:
            raise Violation(
                "no effect is accepted from an older epoch",
                f"{op.purpose} of epoch {term} in {epoch}",
            )
        return Done()

    def _complete(self, lock: str, op: Complete, then: Callable[[Outcome], None]) -> None:
        """Publishes bad records, checks the timeline, then checks ZooKeeper, then completes the instant. Time passes in
        between. The table lock excludes the plans of other writers, but not the other processes of the fleet, as if
        their sessions had ended. A clock is not set back during a completion."""
        world = self._world
        if op.errors:
            world.table.publish(op)
            world.count("publications")
            world.after(self._gap(), lambda: self._complete(lock, replace(op, errors=()), then))
            return
        looked_at = self._process.clock
        if (refusal := world.table.refusal(op, looked_at)) is not None:
            then(refusal)
            return
        world.table.completing += 1

        def look() -> None:
            if (refusal := self._guard(lock, op)) is not None:
                world.table.completing -= 1
                then(refusal)
                return
            world.invariants.passed_check(op.instant)
            world.after(self._gap(), create)

        def create() -> None:
            world.table.completing -= 1
            outcome = world.table.create(op, max(looked_at, self._process.clock))
            if world.table.instants[op.instant].completions > 1:
                world.count("completed again")
            then(outcome)

        world.after(self._gap(), look)

    def _gap(self) -> float:
        rng = self._world.rng
        return rng.random() * (3.0 if rng.random() < 0.1 else 0.05)

    def _guard(self, lock: str, op: Complete) -> Outcome | None:
        nodes = self._world.keeper.nodes
        epoch, header = nodes.get(tree.EPOCH), nodes.get(tree.header_path(op.number))
        if lock not in nodes or epoch is None or epoch.version != op.epoch_version:
            return Refused(f"the epoch is {self._epoch()} by now, or the lock is another's", fenced=True)
        if header is None or header.version != op.header_version:
            return Failed(f"the header of transaction {op.number} has changed")
        return None

    def _write_tasks(self, machine: Machine, request: Request, op: WriteTasks) -> None:
        """Writes slice by slice, and a file at each task's end. A JVM whose Python is paused may go on writing."""
        world, rng = self._world, self._world.rng
        key = (id_of(machine), request.id)
        jvm_goes_on = rng.random() < 0.5
        pieces = [(task, piece) for task in op.tasks for piece in task.slices]
        pace = world.profile.write_seconds * (1 + 0.05 * len(pieces)) / len(pieces)
        results: list[SliceResult] = []
        done_tasks: list[WriteTask] = []
        readings: list[Reading] = []
        bad: list[tuple[Slice, int]] = []
        will_fail = rng.random() < world.profile.slices_fail * world.faulty

        def step() -> None:
            if not self._process.alive and not (jvm_goes_on and rng.random() < 0.5):
                return
            if self._process.paused and not jvm_goes_on:
                self._process.waiting.append(step)
                return
            if key in self._cancelled and rng.random() < 0.7:
                self._answer(machine, request, Failed("cancelled"))
                return
            if not pieces:
                stats = tuple(map(stat_of, done_tasks))
                size = 100 * sum(r.records for r in results)
                incarnation = self._process.incarnation
                errors = world.table.quarantine(op.instant, incarnation, bad)
                reads = tuple(read for reading in readings for read in reading.reads())
                status = WriteStatus(
                    op.number, incarnation, tuple(results), stats, size=size, errors=errors, reads=reads
                )
                self._answer(machine, request, Done(status))
                return
            task, piece = pieces.pop(0)
            capacity = world.profile.capacity
            is_full = capacity and sum(r.slice.size for r in results) + piece.size > capacity
            if self._process.knows_of_store:
                away = Failure(FailureKind.STORE_AWAY, "the store does not answer")
                self._answer(machine, request, Failed("the store is away", away))
                return
            is_cut_off = "table" in self._process.cut or self._process.poisoned
            if is_cut_off or (will_fail and not pieces) or (is_full and results):
                no_memory = Failure(FailureKind.OUT_OF_MEMORY, "no memory") if is_full and op.number % 2 else None
                self._answer(machine, request, Failed("storage refused", no_memory))
                return
            log = self._process.log
            if not readings or readings[-1].task is not task:
                readings.append(Reading(task, op.cluster, world.profile.trusting_readers))
            try:
                results.append(readings[-1].read(log, piece))
            except DataLoss as error:
                lost = Failure(FailureKind.DATA_LOSS, str(error), piece.topic, piece.partition, piece.start)
                self._answer(machine, request, Failed("data loss", lost))
                return
            except WrongLog as error:
                world.count("reads of another log refused")
                self._answer(machine, request, Failed(str(error)))
                return
            is_planned = log.origin(piece.topic) == (op.cluster, piece.topic_id)
            if is_planned and int(op.columns or 0) < log.newest_schema(piece):
                raise Violation("every column of a record is written", f"{piece} with the columns {op.columns!r}")
            if piece == task.slices[-1]:
                world.table.write_file(op.instant, task, op.columns, readings[-1].truths)
                done_tasks.append(task)
            bad.extend((piece, offset) for offset in log.bad(piece))
            world.after(rng.random() * pace, step)

        step()


def id_of(machine: Machine) -> int:
    """Identifies a machine for the whole run: `World.machines` keeps every machine alive."""
    return id(machine)


def _service(op: Any) -> str:
    if isinstance(op, ReadKeeper | Write):
        return "keeper"
    return "log" if isinstance(op, ReadLog) else "table"
