"""Damaged rows in the simulation, and the operator who repairs them with `sink reland`.

Rows are lost, doubled or altered in committed files. The operator stops the fleet and runs the product's own code for
one commit by an operator, step by step: it may be killed at each, stopped for longer than its session, and workers may
be started meanwhile. After each repair every offset of it is one good row, and at the end nothing is damaged that the
log still has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordination.errors import Conflict, Corrupt, NotLeader, Unavailable
from coordination.planning.relanding import CommittedSlice, OffsetRange, Relanding, merged, plan_relanding
from coordination.state.messages import Complete, Done
from coordination.state.model import Checkpoint, Slice, TableView, TopicPartition
from coordination.state.tree import KeeperView, Op
from sink.hudi.table import TableOutcome
from sink.operations.operator_commit import Office
from tests.simulation.process import CONFIG
from tests.simulation.table import SimInstant, slices_of
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

LOOK_SECONDS = 2.0
KILLED = 0.12
"""The probability, at each step of the command, that it is killed."""
KILLED_WITHIN = 0.3
"""The probability that it is killed at a step of its commit."""
PAUSED = 0.08
"""The probability, at each step, that its session ends while it is stopped, and that the fleet is started meanwhile."""
MOST_DEATHS = 8
PATIENT = 0.8
"""The probability that the operator does not stop a fleet in the middle of a transaction."""
REPEATED = 0.5
"""The probability that a killed command is run again at once; else the fleet is started."""
LOST: tuple[str, ...] = ()
GOOD, ALTERED = "good", "altered"

CONTENDED = "somebody else contends for the office"

Place = tuple[TopicPartition, int]


class Killed(Exception):
    """The command died."""


@dataclass(frozen=True)
class RepairOp:
    """The effect of a repair's commit on the rows of offsets."""

    ranges: tuple[OffsetRange, ...]
    deletes: bool = True
    lands: bool = True

    def covers(self, place: Place) -> bool:
        return any(entry.source == place[0] and entry.start <= place[1] < entry.end for entry in self.ranges)


class Repairs:
    def __init__(self, world: World) -> None:
        self._world = world
        self._damage: dict[tuple[str, Place], tuple[str, ...]] = {}
        """The rows of an offset in the files of a commit, by the commit's name."""
        self._ops: dict[str, RepairOp] = {}
        self._beyond_repair: set[Place] = set()
        self._is_working = False
        self._deaths = 0
        self._unfinished: tuple[OffsetRange, ...] = ()
        """The ranges of a command that was killed: the operator does not know how far it came, and runs it again."""

    def dies(self, chance: float) -> bool:
        """Whether a command is killed or stopped now: also after everything has healed, but not for ever."""
        if self._deaths >= MOST_DEATHS or self._world.rng.random() >= chance:
            return False
        self._deaths += 1
        return True

    # What the table has

    @property
    def damaged(self) -> list[Place]:
        """The offsets whose rows are wrong, and that the log still has."""
        places = sorted({place for _, place in self._damage} - self._beyond_repair)
        return [place for place in places if (rows := self.rows(place)) is not None and rows != (GOOD,)]

    def rows(self, place: Place) -> tuple[str, ...] | None:
        """Returns the rows of an offset; None if it is in no commit, or in several: their rows are not told apart."""
        rows: tuple[str, ...] = ()
        commits = 0
        for commit in self._world.table.commits:
            op = self._ops.get(commit.name)
            if op is None:
                if any(piece.source == place[0] and piece.start <= place[1] < piece.end for piece in _slices(commit)):
                    commits += 1
                    rows += self._damage.get((commit.name, place), (GOOD,))
            elif op.covers(place):
                rows = () if op.deletes else rows
                rows += self._damage.get((commit.name, place), (GOOD,)) if op.lands else ()
        return rows if commits == 1 else None

    def damage(self) -> None:
        """Something loses, doubles or alters rows of a commit."""
        world, rng = self._world, self._world.rng
        position, offset, kind = rng.random(), rng.random(), rng.choice((LOST, (GOOD, GOOD), (ALTERED,)))
        files = [(commit, piece) for commit in world.table.commits for piece in _slices(commit)]
        if not files:
            return
        commit, piece = files[int(position * len(files))]
        place = piece.source, piece.start + int(offset * piece.size)
        if self.rows(place) == (GOOD,):
            world.count("rows damaged")
            world.trace("somebody", "damages a row:", *place, kind)
            self._damage[self._carrier(place) or commit.name, place] = kind

    def _carrier(self, place: Place) -> str | None:
        """Returns the newest repair that has landed the offset."""
        names = [commit.name for commit in self._world.table.commits]
        return next((name for name in reversed(names) if name in self._ops and self._ops[name].covers(place)), None)

    # The operator

    def look(self) -> None:
        world = self._world
        is_due = self._unfinished or self.damaged
        view = world.tree()
        # Once healed, the operator always waits: each refusal costs the fleet a restart.
        waits = view is not None and bool(view.transactions) and (world.rng.random() < PATIENT or world.healed)
        if not self._is_working and not world.operator.has_stopped_all and is_due and not waits:
            world.trace("operator", "stops the fleet for a repair")
            self._is_working = world.operator.has_stopped_all = True
            for process in world.processes:
                process.crash()
            self._try_later()
        world.after(world.rng.expovariate(1 / LOOK_SECONDS), self.look)

    def _try_later(self) -> None:
        self._world.after(self._world.rng.random() * 3.0, self._run)

    def _run(self) -> None:
        world = self._world
        view = world.tree()
        if view is None or not world.operator.has_stopped_all:
            self._give_way("the tree cannot be read, or somebody has started the fleet")
            return
        if view.members:
            # The sessions of the workers have not ended.
            self._try_later()
            return
        damaged = (OffsetRange(source.topic, source.partition, at, at + 1) for source, at in self.damaged)
        if ranges := self._unfinished or merged(damaged):
            self._unfinished = ranges
            Command(world, self, ranges).start(self._ended)
        else:
            self._give_way("nothing is damaged any more")

    def _ended(self, reason: str) -> None:
        """`reason` says why the command ended without a repair; empty after one."""
        is_again = reason == "killed" and self._world.rng.random() < REPEATED
        if is_again or reason == CONTENDED:
            # The session of the command that was killed has not ended yet.
            self._try_later()
            return
        if reason != "killed":
            self._unfinished = ()
        self._give_way(reason or "repaired")

    def _give_way(self, reason: str) -> None:
        self._world.trace("operator", "starts the fleet:", reason)
        self._is_working = self._world.operator.has_stopped_all = False

    # The command

    def plan(self, ranges: Sequence[OffsetRange], checkpoint: Checkpoint) -> Relanding:
        """As `sink.relanding.reland` plans: by the product's own rule."""
        world = self._world
        committed = [
            CommittedSlice(commit.number, result)
            for commit in world.table.commits
            if commit.checkpoint is not None
            for result in commit.checkpoint.results
        ]
        topics = sorted({entry.topic for entry in ranges} & set(world.topics))
        return plan_relanding(ranges, committed, checkpoint, world.log.view(topics or world.topics))

    def refused(self, ranges: Sequence[OffsetRange]) -> None:
        self._world.count("repairs refused")
        self._beyond_repair |= {(entry.source, at) for entry in ranges for at in range(entry.start, entry.end)}

    def completing(self, instant: SimInstant, op: RepairOp) -> None:
        """Checks a commit of a repair when it is made."""
        world = self._world
        view, newest = world.tree(), world.table.newest
        if view is not None and view.epoch != instant.epoch:
            raise Violation("a repair is committed under its own epoch only", f"{instant.epoch} in {view.epoch}")
        if newest is not None and instant.epoch <= newest.epoch:
            raise Violation("a repair has an epoch of its own", f"{instant.epoch} after {newest.epoch}")
        self._ops[instant.name] = op

    def completed(self, op: RepairOp) -> None:
        self._world.count("repairs")
        for entry in op.ranges:
            for at in range(entry.start, entry.end):
                if (rows := self.rows((entry.source, at))) is not None and rows != (GOOD,):
                    raise Violation("a repaired offset is one good row", f"{entry.source} offset {at}: {rows}")

    def operation(self, plan: Relanding) -> RepairOp:
        pieces = plan.pieces
        return RepairOp(tuple(OffsetRange(p.topic, p.partition, p.start, p.end) for p in pieces))


class Command:
    """One run of `sink reland`, step by step."""

    def __init__(self, world: World, repairs: Repairs, ranges: Sequence[OffsetRange]) -> None:
        self._world, self._repairs, self._ranges = world, repairs, ranges
        self._is_fleet_started = False

    def start(self, ended: Callable[[str], None]) -> None:
        world = self._world
        world.keeper.bootstrap(CONFIG)
        self._session = world.keeper.open_session()
        lock = world.keeper.contend("reland:1", self._session)
        if lock is None or world.keeper.first_contender(world.keeper.latest) != lock:
            world.keeper.expire(self._session)
            ended(CONTENDED)
            return
        self._table = OperatorTable(world, self._repairs)
        self._office = Office("Reland", lock, lambda: OperatorKeeper(world), self._table, self._reach)
        self._steps = self._all()
        self._step(ended)

    def _step(self, ended: Callable[[str], None]) -> None:
        world, rng = self._world, self._world.rng
        try:
            if self._repairs.dies(KILLED):
                raise Killed
            next(self._steps)
        except StopIteration:
            world.keeper.expire(self._session)
            ended("")
        except Killed:
            world.count("repairs killed")
            world.expire_later(self._session)
            ended("killed")
        except (Conflict, NotLeader, Unavailable, Corrupt) as error:
            world.trace("operator", "cannot repair:", str(error))
            world.expire(self._session)
            ended(str(error))
        else:
            gap = rng.random() * 0.5
            if self._repairs.dies(PAUSED):
                # The command is stopped for longer than its session, and somebody starts the fleet.
                gap += rng.random() * 20.0
                world.count("repairs paused")
                world.expire(self._session)
                world.operator.has_stopped_all = False
            world.after(gap, lambda: self._step(ended))

    def _all(self) -> Iterator[None]:
        office, repairs = self._office, self._repairs
        office.take_over()
        yield
        begun = office.begin()
        yield
        plan = repairs.plan(self._ranges, begun.newest)
        if plan.refusals:
            repairs.refused(self._ranges)
            office.abandon(begun)
            raise Conflict("; ".join(plan.refusals))
        self._table.op = repairs.operation(plan)
        yield
        office.complete(begun, (), (), "", {})

    def _reach(self, step: str) -> None:
        if self._repairs.dies(KILLED_WITHIN):
            self._world.count(f"repairs killed when {step}")
            raise Killed


class OperatorKeeper:
    def __init__(self, world: World) -> None:
        self._keeper = world.keeper

    def read(self) -> KeeperView:
        return self._keeper.view(self._keeper.latest)

    def write(self, ops: Sequence[Op]) -> None:
        self._keeper.write(ops)


class OperatorTable:
    """The table as the command has it: `sink.hudi.Table` in small."""

    def __init__(self, world: World, repairs: Repairs) -> None:
        self._world, self._repairs = world, repairs
        self.op = RepairOp(())

    def view(self) -> TableView:
        return self._world.table.view(())

    def begin(self, number: int, epoch: int) -> str:
        outcome = self._world.table.begin(number, epoch, self, self._world.now)
        if not isinstance(outcome, Done):
            raise Unavailable(str(outcome))
        return str(outcome.value)

    def complete(
        self,
        instant: str,
        stats: Sequence[str],
        checkpoint: Checkpoint,
        guard: Callable[[TableView], None],
        columns: str,
        extra_metadata: Mapping[str, str],  # noqa: ARG002 - it tells the auditor
    ) -> TableOutcome:
        table, op = self._world.table, self.op
        if table.completing:
            raise Unavailable("another process holds the table lock")
        complete = Complete(instant, checkpoint.number, 0, 0, tuple(stats), checkpoint, columns=columns)
        if (refusal := table.timeline_refusal(complete, self._world.now)) is not None:
            raise Conflict(str(refusal))
        guard(self.view())
        with self._world.invariants.repairing({instant}):
            self._repairs.completing(table.instants[instant], op)
            outcome = table.create(complete, self._world.now)
        if not isinstance(outcome, Done):
            raise Conflict(str(outcome))
        self._repairs.completed(op)
        return TableOutcome.COMPLETED

    def roll_back(self, instant: str) -> None:
        view = self._world.tree()
        if view is not None and any(t.header.instant == instant for t in view.transactions):
            raise Violation("a repair rolls back no instant of an open transaction", instant)
        with self._world.invariants.repairing({instant}):
            outcome = self._world.table.roll_back(instant, self._world.now)
        if not isinstance(outcome, Done):
            raise Conflict(str(outcome))


def _slices(commit: SimInstant) -> Collection[Slice]:
    return tuple(slices_of(commit.stats))
