"""One worker process of the simulated fleet: its session, its machines, its deaths and pauses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from coordination.errors import Corrupt
from coordination.machines.coordinator import Coordinator
from coordination.machines.participant import Participant
from coordination.planning.config import CoordinatorConfig
from coordination.planning.slicing import Limits
from coordination.planning.tolerance import ErrorLimits
from coordination.planning.write_tasks import TaskSizes
from coordination.state.messages import (
    Admission,
    Cancel,
    Drain,
    Event,
    KeeperChanged,
    Note,
    ParticipantViewSeen,
    Request,
    Resign,
    StoreSeen,
    Tick,
)
from coordination.state.model import Member, WorkerState
from coordination.state.reading import ParticipantViewReader, SnapshotReader, TreeReader
from coordination.state.tree import KeeperView
from tests.simulation.effects import Effects, Machine, id_of
from tests.simulation.log import SimLog
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")

CONFIG = "config"
ANOTHER_CONFIG = "another config"
TOPIC_PATTERN = "t[0-9]+"
TICK = 0.25
ADMISSION_CHANCE = 0.1
"""The probability that a sink which waits for admission gets it at a tick."""
DRAIN_SECONDS = 60.0
NEVER = 1e6
REPUBLISH_AFTER = 5
"""Foreign commits after which a coordinator commits again: archiving must not pass the newest checkpoint."""


class Process:
    """The present process of a worker id. `incarnation` changes with every session."""

    def __init__(self, world: World, worker: str, name: str) -> None:
        self.world = world
        self.worker = worker
        self.name = name
        self.alive = True
        self.paused = False
        self.cut: set[str] = set()
        self.poisoned = False
        self.config = CONFIG
        self.draining = False
        self.session = 0
        self.incarnation = ""
        self.participant: Participant | None = None
        self.coordinator: Coordinator | None = None
        self.contender: str | None = None
        self.waiting: list[Callable[[], None]] = []
        self.last_zxid = 0
        """The number of the newest change that this process has read."""
        self._tree_reader = TreeReader()
        self._participant_reader = ParticipantViewReader("")
        self._noticing = False
        self.wall = 0.0
        """How far this host's clock is ahead of the true time."""
        self._instant_time = -math.inf
        self._effects = Effects(self)
        self.locks: dict[int, str] = {}
        self._clock = world.rng.random() * 1000

    # Life

    def start(self) -> None:
        if not self.alive:
            return
        self._connect()
        self.world.after(self.world.rng.random() * TICK, self._tick)

    def _connect(self) -> None:
        """Opens a session under a new incarnation, joins the fleet and queues up in the election."""
        world = self.world
        if self.session in world.keeper.alive:
            return
        if "keeper" in self.cut:
            self.locally(0.5, self._connect)
            return
        world.keeper.bootstrap(self.config)
        if not self._fits():
            return
        self.participant = self.coordinator = self.contender = None
        self.session = world.keeper.open_session()
        self.incarnation = f"{self.worker}:{world.next_name()}"
        self._tree_reader, self._participant_reader = TreeReader(), ParticipantViewReader(self.incarnation)
        self._join(WorkerState.DRAINING if self.draining else WorkerState.ACTIVE)
        self.last_zxid = world.keeper.latest
        world.trace(self.name, "joined as", self.incarnation)
        incarnation = self.incarnation
        if world.profile.mixed:
            self.locally(world.rng.random() * 0.5, lambda: self._take_part(incarnation))
        else:
            self._take_part(incarnation)

    def _join(self, state: WorkerState) -> None:
        self.world.keeper.join(self._member(state), self.session)

    def _member(self, state: WorkerState) -> Member:
        return Member(self.incarnation, "host", 1, "1", state, self.config, self.world.profile.cores)

    def _fits(self) -> bool:
        """Whether every member has this configuration. If not, or if the tree cannot be read, this process ends."""
        view = self.world.tree()
        if view is not None and all(member.config == self.config for member in view.members):
            return True
        self.world.count("refused to join")
        self._leave()
        return False

    def _take_part(self, incarnation: str) -> None:
        """Checks the configurations again: of two workers that join at once, the later one now sees the other."""
        world = self.world
        if self.incarnation != incarnation or self.session not in world.keeper.alive or not self._fits():
            return
        self.participant = Participant(self.incarnation)
        world.machines.append(self.participant)
        if self.draining:
            self.feed(self.participant, Drain(self.at))
        self.locally(world.rng.random() * 0.2, self._contend)
        self.notice()

    def _contend(self) -> None:
        is_member = self.participant is not None and self.session in self.world.keeper.alive
        if self.contender is None and not self.draining and is_member:
            self.world.keeper.bootstrap(self.config)
            self.contender = self.world.keeper.contend(self.incarnation, self.session)
            self.last_zxid = self.world.keeper.latest
            self.notice()

    def session_lost(self) -> None:
        """The process learns that its session has ended, and drops its machines."""
        if not self.alive or self.session in self.world.keeper.alive:
            return
        self.world.count("sessions lost")
        self.world.trace(self.name, "session lost")
        self.participant = self.coordinator = self.contender = None
        self.locally(self.world.rng.random(), self._connect)

    def crash(self) -> None:
        if not self.alive:
            return
        self.alive = False
        self.participant = self.coordinator = None
        self.waiting.clear()
        self.world.count("crashes")
        self.world.trace(self.name, "crashed")
        self.world.expire_later(self.session)
        self.world.restart_later(self)

    def pause(self, seconds: float) -> None:
        if not self.alive or self.paused:
            return
        self.paused = True
        self.world.count("pauses")
        self.world.trace(self.name, f"paused for {seconds:.2f}")
        session = self.session
        limit = self.world.profile.session_timeout
        if seconds > limit:
            self.world.after(limit, lambda: self.world.expire(session) if self.session == session else None)
        self.world.after(seconds, self.resume)

    def resume(self) -> None:
        if not self.paused:
            return
        self.paused = False
        self.world.trace(self.name, "resumed")
        calls, self.waiting = self.waiting, []
        for call in calls:
            self.locally(self.world.rng.random() * 0.05, call)
        self.notice()

    def jump(self, ahead: float) -> None:
        self.wall = ahead
        self.world.count("clock jumps")
        self.world.trace(self.name, f"clock {ahead:+.1f} s")

    def cut_off(self, service: str, seconds: float) -> None:
        if service in self.cut:
            return
        self.cut.add(service)
        self._look_at_store()
        self.world.count(f"cut from {service}")
        self.world.trace(self.name, f"cut from {service} for {seconds:.2f}")
        session, limit = self.session, self.world.profile.session_timeout
        if service == "keeper" and seconds > limit:
            self.world.after(limit, lambda: self.world.expire(session) if self.session == session else None)
        self.world.after(seconds, lambda: self._reconnect(service))

    @property
    def knows_of_store(self) -> bool:
        """Whether the process cannot reach the table, and reports that as the store's fault."""
        return "table" in self.cut and self.world.profile.store_is_known

    def _look_at_store(self) -> None:
        if self.coordinator is not None and self.world.profile.store_is_known:
            self.feed(self.coordinator, StoreSeen(self.at, self.knows_of_store))

    def _reconnect(self, service: str) -> None:
        self.cut.discard(service)
        self.notice()

    def drain(self) -> None:
        if self.draining or not self.alive or self.participant is None:
            return
        self.draining = True
        self.world.count("drains")
        self.world.trace(self.name, "drains")
        self._join(WorkerState.DRAINING)
        if self.coordinator is None:
            self._give_up_lock()
        for machine in (self.participant, self.coordinator):
            if machine is not None:
                self.feed(machine, Drain(self.at))
        self.locally(DRAIN_SECONDS, self._abandon)

    def _abandon(self) -> None:
        """Leaves when a drain takes too long, as a worker does: what the drain waits for may never come."""
        if self.alive:
            self._leave()

    def _leave(self) -> None:
        self.world.trace(self.name, "leaves")
        self.alive = False
        self.world.keeper.expire(self.session)
        self.world.restart_later(self)

    # Inside the process

    @property
    def log(self) -> SimLog:
        """The log of the cluster that its connections lead to: the right one, until table or tree have it on record."""
        world = self.world
        return world.other_log if self.name in world.misdirected and world.has_cluster_on_record else world.log

    @property
    def at(self) -> float:
        return self.world.now + self._clock

    @property
    def clock(self) -> float:
        """The time of this host's clock."""
        return self.world.now + self.wall

    def time_of_instant(self) -> float:
        """Returns the time that Hudi names an instant by: a process names its own in their order."""
        self._instant_time = max(self._instant_time + 0.001, self.clock)
        return self._instant_time

    def locally(self, delay: float, call: Callable[[], None]) -> None:
        """Schedules an action of the process itself: it waits while the process is paused, and dies with it."""

        def run() -> None:
            if not self.alive:
                return
            if self.paused:
                self.waiting.append(call)
            else:
                call()

        self.world.after(delay, run)

    def _tick(self) -> None:
        if not self.alive:
            return
        self.world.after(TICK, self._tick)
        if self.paused:
            return
        for machine in (self.participant, self.coordinator):
            if machine is not None:
                self.feed(machine, Tick(self.at, self.clock))
                self.world.invariants.check_queues(machine)
        if self.coordinator is not None and (admitted := self.admits(self.coordinator)) is not None:
            self.feed(self.coordinator, Admission(self.at, admitted))
        self._check_freshness()

    def admits(self, coordinator: Coordinator) -> bool | None:
        """Whether this process lets the coordinator open a transaction; None if it admits every transaction.

        A coordinator may wait long for the transactions of other sinks, but not for ever.
        """
        if not self.world.profile.admission:
            return None
        if not coordinator.waits_for_admission:
            return coordinator.has_open
        admitted = self.world.healed or self.world.rng.random() < ADMISSION_CHANCE
        self.world.count("admissions" if admitted else "admissions withheld")
        return admitted

    def _check_freshness(self) -> None:
        """Checks that an idle coordinator has the present view, unless a change is on its way to it."""
        coordinator = self.coordinator
        expired = self.session not in self.world.keeper.alive
        if coordinator is None or coordinator._term.view is None or self._noticing or self.cut or expired:
            return
        latest = self.world.tree()
        # Most often both are the same object: comparing two views looks at every znode.
        if latest is None or coordinator._term.view is latest:
            return
        if self._effects.idle(coordinator) and coordinator._term.view != latest:
            raise Violation("a coordinator hears of every change", f"{self.name} has missed one")

    def notice(self) -> None:
        """Delivers a watch: the process learns some time later that ZooKeeper has changed."""
        if self._noticing or not self.alive:
            return
        self._noticing = True
        rng, lag = self.world.rng, self.world.profile.lag
        delay = rng.random() * 0.05 + (rng.random() * lag if rng.random() < 0.3 else 0.0)
        self.locally(delay, self._see)

    def _see(self) -> None:
        self._noticing = False
        world = self.world
        if self.session not in world.keeper.alive and "keeper" not in self.cut:
            self.locally(world.rng.random() * 0.5, self.session_lost)
        self._look_at_store()
        if "keeper" in self.cut:
            return
        if self.coordinator is not None:
            self.feed(self.coordinator, KeeperChanged(self.at))
        if self.participant is None:
            return
        try:
            view = self._read(self._participant_reader)
        except Corrupt:
            self.locally(1.0, self.notice)
            return
        if view is None:
            self.notice()
            return
        self.feed(self.participant, ParticipantViewSeen(self.at, view))
        if view.asked_to_drain:
            self.drain()
        contender = self.contender if self.coordinator is None and self.alive else None
        if contender is not None and contender == world.keeper.first_contender(self.last_zxid):
            self._be_coordinator(contender)

    def _be_coordinator(self, contender: str) -> None:
        profile = self.world.profile
        self.world.count("takeovers" if self.world.counts["terms"] else "first terms")
        self.world.count("terms")
        self.world.recovering()
        config = CoordinatorConfig(
            sink="orders",
            incarnation=self.incarnation,
            lock_path=contender,
            config_digest=self.config,
            topics=() if profile.new_topics else self.world.topics,
            topic_pattern=TOPIC_PATTERN if profile.new_topics else None,
            limits=Limits(profile.flush_size, profile.slice_records),
            interval=NEVER if profile.flush_only else profile.interval,
            timeout=profile.write_timeout,
            in_flight=profile.in_flight,
            reset=profile.reset,
            on_data_loss=profile.policy,
            single_writer=profile.single_writer,
            republish_after=REPUBLISH_AFTER,
            flush_bytes=profile.flush_bytes,
            allow_empty=profile.allow_empty,
            errors=ErrorLimits(profile.errors_max, 1.0),
            task_sizes=TaskSizes(profile.task_bytes, profile.small_task_bytes),
        )
        self.coordinator = Coordinator(config)
        self.world.machines.append(self.coordinator)
        self.locks[id_of(self.coordinator)] = contender
        self.feed(self.coordinator, Tick(self.at, self.world.now))

    def read(self) -> KeeperView | None:
        """Reads the whole tree, as `_read` does."""
        return self._read(self._tree_reader)

    def _read(self, reader: SnapshotReader[T]) -> T | None:
        """Reads as `Keeper` does: the view may be stale, but never older than the last one. Returns None if every
        attempt was torn. Raises Corrupt if the present tree cannot be decoded."""
        keeper, rng = self.world.keeper, self.world.rng
        low = keeper.oldest_readable(self.last_zxid)
        if rng.random() >= min(self.world.profile.lag, 0.3):
            low = keeper.latest
        for _ in range(3):
            try:
                if self.world.profile.torn and low < keeper.latest:
                    snapshot, began, at = keeper.torn_snapshot(rng, low, reader)
                    view = reader.read(snapshot)
                else:
                    began = at = rng.randint(low, keeper.latest)
                    view = keeper.view(at) if reader is self._tree_reader else reader.read(keeper.snapshot(at))
            except (Corrupt, KeyError) as error:
                if began == at == keeper.latest and isinstance(error, Corrupt):
                    raise
                self.world.count("torn readings tried again")
                low = keeper.latest
                continue
            self.last_zxid = at
            if began < keeper.latest:
                # The reading set watches, so that a change after it reaches this process sooner or later.
                self.world.count("stale readings")
                self.notice()
            return view
        return None

    def feed(self, machine: Machine, event: Event) -> None:
        if not self.alive or machine not in (self.participant, self.coordinator):
            return
        try:
            effects = machine.step(event)
        except Exception as error:
            raise Violation("a machine never raises", f"{self.name}: {type(event).__name__}: {error!r}") from error
        role = "coordinator" if isinstance(machine, Coordinator) else "participant"
        for effect in effects:
            match effect:
                case Request(operation=operation):
                    self.world.trace(self.name, role, effect)
                    self.world.invariants.check_halt(machine, operation)
                    self._effects.perform(machine, effect)
                case Cancel(id=id):
                    self._effects.cancel(machine, id)
                case Resign(reason=reason, pause=pause):
                    self.world.trace(self.name, role, "resigns:", reason)
                    self._resigned(machine, pause)
                case Note():
                    self.world.noted(self.name, role, effect)

    def _resigned(self, machine: Machine, pause: float) -> None:
        if machine is self.coordinator:
            self.coordinator = None
            self._give_up_lock(pause)
            if pause:
                self.world.count("stood back")
        elif machine is self.participant:
            self.participant = None
            if self.draining:
                self.locally(0.05, self._leave_when_done)
            else:
                # The member znode is gone though the session may live on: begin with a new session.
                self.world.keeper.expire(self.session)
                self.locally(self.world.rng.random() * 0.5, self.session_lost)

    def _leave_when_done(self) -> None:
        if self.coordinator is None:
            self._leave()
        else:
            self.locally(TICK, self._leave_when_done)

    def _give_up_lock(self, pause: float = 0.0) -> None:
        contender, self.contender = self.contender, None
        if contender is not None:
            self.locally(self.world.rng.random() * 0.1, lambda: self.world.keeper.remove(contender))
        self.locally(0.2 + pause, self._contend)
