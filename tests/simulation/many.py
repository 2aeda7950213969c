"""Several sinks over one set of simulated processes, in one virtual time.

Each sink is a `World` of its own: tree, table, log and invariants. A `Host` is a process that has a part in each. A
fault of the process (crash, pause, lost session, cut connection, clock, drain) hits all of its parts at once. A fault
of one sink (a refusal, a halt, a table that is away, a store that hangs) stays with that sink. Hosts hand coordinators
over by the product's rule, and share them evenly once all has healed. The product's admission control, with room for
one transaction, admits the transactions of a host.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random
from typing import Any

from coordination.machines.coordinator import Coordinator
from coordination.planning.offsets import DataLossPolicy
from coordination.zookeeper.worker_records import HostedRecord, WorkerRecord
from coordination.zookeeper.worker_summaries import WorkerSummary
from sink.runtime.turns import spreading
from sink.runtime.turns.admission import ASKS_SECONDS, PATIENCE_SECONDS, AdmissionControl
from tests.simulation.faults import Profile, draw
from tests.simulation.process import DRAIN_SECONDS, Process
from tests.simulation.violation import Violation
from tests.simulation.world import QUIET, World

SINKS = 3
LOOK_SECONDS = 1.0
SETTLE_SECONDS = 5.0
PUBLISH_SECONDS = 1.5
"""A change in between waits for the second look from now."""
FORGET_SECONDS = 60.0
NOTICED_SECONDS = 15.0
STEADY_SECONDS = 60.0
"""Seconds without a hand-over once coordinators are shared evenly."""
HANGS = 1e6
OF_THE_PROCESS = ("crashes", "pauses", "expiries", "keeper_cuts", "log_cuts", "drains", "clock_jumps")
ENDS_WITH_ITS_PROCESS = "what ends a process ends every sink in it"
LEAVES_ALONE = "a sink leaves only when it was asked to"
EVEN = "coordinators are shared evenly once healed"
ADMITTED = "a sink that waits for admission is admitted"
STEADY = "coordinators stay where they are once shared"


class Poison(Enum):
    NONE = "none"
    REFUSED = "refused"
    HALTED = "halted"
    AWAY = "away"
    HANGS = "hangs"


@dataclass
class ManyReport:
    seed: int
    poison: Poison
    counts: Counter[str]
    healthy_until_healed: tuple[int, ...] = ()
    """The digest of every sink but the last one, which may be poisoned, up to the healing: runs then differ in
    length."""
    settled: float = 0.0
    """Seconds from healing until all but the poisoned sink had landed everything."""
    handed_over: int = 0
    traces: dict[str, list[str]] = field(default_factory=dict)
    violation: Violation | None = None


class SinkProcess(Process):
    """The part of one process in one sink."""

    world: SinkWorld
    _waits_since = math.inf

    @property
    def host(self) -> Host:
        return self.world.fleet.hosts[self.name]

    def start(self) -> None:
        if self.world.poison is Poison.REFUSED:
            self.alive = False
            self.host.part_refused()
            return
        if self.world.poison is Poison.AWAY:
            self.cut.add("table")
        super().start()

    def crash(self) -> None:
        self.host.crash(self)

    def pause(self, seconds: float) -> None:
        self.host.pause(seconds)

    def admits(self, coordinator: Coordinator) -> bool | None:
        if not self.world.fleet.shares:
            return super().admits(coordinator)
        waits, now = coordinator.waits_for_admission, self.world.now
        admitted = self.host.admission.admits(self, waits, coordinator.has_open)
        if not waits or admitted:
            self._waits_since = math.inf
        elif (
            now - min(now, self._waits_since) > len(self.host.parts) * (PATIENCE_SECONDS + LOOK_SECONDS) + ASKS_SECONDS
        ):
            raise Violation(ADMITTED, f"{self.name} of {self.world.name}")
        else:
            self.world.count("admissions withheld")
            self._waits_since = min(now, self._waits_since)
        return admitted

    def drain_with_process(self) -> None:
        if self.participant is not None:
            super().drain()
        elif self.alive:
            # The part drains once it has joined.
            self.draining = True
            self.locally(DRAIN_SECONDS, self._abandon)

    def _leave(self) -> None:
        if not self.draining and self._fits_still():
            raise Violation(LEAVES_ALONE, f"{self.name} of {self.world.name}")
        super()._leave()

    def _fits_still(self) -> bool:
        view = self.world.tree()
        return view is not None and all(member.config == self.config for member in view.members)


class SinkWorld(World):
    def __init__(self, fleet: ManySinksWorld, name: str, seed: int, profile: Profile, poison: Poison) -> None:
        super().__init__(seed, profile)
        self.fleet, self.name, self.poison = fleet, name, poison
        self._heap, self._order = fleet.heap, fleet.order

    def new_process(self, worker: str, name: str) -> Process:
        part = SinkProcess(self, worker, name)
        self.fleet.hosts[name].parts[self.name] = part
        return part

    def restart_later(self, process: Process) -> None:
        self.fleet.hosts[process.name].part_left(process)

    def expire_later(self, session: int) -> None:
        self.after(self.fleet.expiry_delay, lambda: self.expire(session))

    def latency(self, service: str) -> float:
        latency = super().latency(service)
        return HANGS if service == "table" and self.poison is Poison.HANGS else latency

    def restart_part_later(self, process: Process) -> None:
        super().restart_later(process)

    def restart_with_process(self, process: Process) -> None:
        super()._restart(process)

    def _restart(self, process: Process) -> None:
        host = self.fleet.hosts[process.name]
        if host.down or host.draining or process not in self.processes:
            return  # the part comes back with its process
        if host.paused_until > self.now:
            self.restart_part_later(process)
        else:
            super()._restart(process)


def weight_of(sink: str) -> int:
    """Returns the load of a sink: one sink in three carries as much as three others."""
    return 3 if int(sink[1:]) % 3 == 1 else 1


class Host:
    """A process with a part in each sink."""

    def __init__(self, fleet: ManySinksWorld, name: str, is_survivor: bool) -> None:
        self.fleet, self.name = fleet, name
        self.parts: dict[str, SinkProcess] = {}
        self.down = False
        self.draining = False
        self.paused_until = 0.0
        self.record: WorkerRecord | None = None
        self.summary: WorkerSummary | None = None
        self._published_at = -math.inf
        self._is_survivor = is_survivor
        self.admission = self._new_admission()
        self._switchovers: dict[str, float] = {}
        """The time of this host's last switchover request for each sink."""
        self._led_since: dict[str, float] = {}
        self._impaired_at: dict[str, float] = {}
        """The time when each sink's coordinator here last noticed that it is kept from its work."""
        self._changed_at = 0.0

    def all_parts(self, _hit: SinkProcess | None = None) -> list[SinkProcess]:
        """Returns the parts that a fault of the process hits; `_hit` is the part whose request caused it."""
        return list(self.parts.values())

    def _new_admission(self) -> AdmissionControl:
        """Returns the control of a process without cores, which admits one sink at a time."""
        return AdmissionControl(0, lambda: 100.0, lambda: self.fleet.now)

    def crash(self, hit: SinkProcess | None = None) -> None:
        if self.down:
            return
        self.admission = self._new_admission()
        self.down, self.draining, self.paused_until = True, False, 0.0
        fleet = self.fleet
        fleet.counts["processes crashed"] += 1
        fleet.expiry_delay = fleet.profile.session_timeout * fleet.rng.uniform(0.5, 1.2)
        for part in self.all_parts(hit):
            Process.crash(part)
        self._end(fleet.expiry_delay)

    def _end(self, record_seconds: float) -> None:
        """Ends the process. Its record in ZooKeeper disappears after `record_seconds`, and it starts again."""
        fleet, record = self.fleet, self.record

        def forget() -> None:
            if self.record is record:
                self.record = self.summary = None

        fleet.after(record_seconds, forget)
        fleet.after(fleet.rng.uniform(0.2, 6.0), self._restart)

    def _restart(self) -> None:
        if self.fleet.healed and self.fleet.profile.one_survivor and not self._is_survivor:
            return
        self.down = False
        self._switchovers.clear()
        for part in list(self.parts.values()):
            part.world.restart_with_process(part)

    def pause(self, seconds: float) -> None:
        if not self.down and self.paused_until <= self.fleet.now:
            self.fleet.counts["processes paused"] += 1
            self.paused_until = self.fleet.now + seconds
            for part in self.all_parts():
                Process.pause(part, seconds)

    def expire(self) -> None:
        self.fleet.counts["sessions of processes lost"] += 1
        for part in self.all_parts():
            part.world.expire(part.session)

    def cut_off(self, service: str, seconds: float) -> None:
        for part in self.all_parts():
            part.cut_off(service, seconds)

    def jump(self, ahead: float) -> None:
        for part in self.all_parts():
            part.jump(ahead)

    def drain(self) -> None:
        if not self.down and not self.draining and any(part.alive for part in self.parts.values()):
            self.fleet.counts["processes drained"] += 1
            self.draining = True
            for part in self.all_parts():
                part.drain_with_process()

    def part_left(self, part: Process) -> None:
        """The process has left one sink. A draining process ends with its last sink; else the part starts again."""
        if self.down:
            return
        if not self.draining:
            part.world.restart_part_later(part)  # type: ignore[attr-defined]
        elif not any(other.alive for other in self.parts.values()):
            self.down, self.draining = True, False
            self._end(0.0)

    def part_refused(self) -> None:
        """Counts a refused sink; the process goes on without it."""
        self.fleet.counts["sinks refused"] += 1

    def check(self) -> None:
        if self.down and (alive := [sink for sink, part in self.parts.items() if part.alive]):
            raise Violation(ENDS_WITH_ITS_PROCESS, f"{self.name} has crashed, its part in {alive} goes on")
        paused = {part.paused for part in self.parts.values() if part.alive}
        if len(paused) > 1:
            raise Violation(ENDS_WITH_ITS_PROCESS, f"{self.name} is paused in some sinks only")

    # Sharing, as `sink.runtime.process.presence` does it

    @property
    def leads(self) -> list[str]:
        return [sink for sink, part in self.parts.items() if part.alive and part.coordinator is not None]

    def look(self) -> None:
        self.check()
        for part in self.parts.values():
            if part.coordinator is None:
                self.admission.forget(part)
        if self.down or self.paused_until > self.fleet.now or any("keeper" in p.cut for p in self.parts.values()):
            return
        hosted = {}
        for sink, part in sorted(self.parts.items()):
            state = "joined" if part.alive and part.participant is not None else "refused"
            hosted[sink] = HostedRecord(
                state, sink in self.leads, impaired=self._is_impaired(sink), weight=weight_of(sink)
            )
        record = WorkerRecord(self.name, "host", 1, "1", self.draining, hosted)
        self._publish(record)
        if self.fleet.shares:
            self._spread(record)

    def _publish(self, record: WorkerRecord) -> None:
        now, before = self.fleet.now, self.record
        is_urgent = before is None or before.draining != record.draining
        if not is_urgent and now - self._published_at < PUBLISH_SECONDS:
            return
        if record != before:
            self.record, self._changed_at = record, now
        others = [host.summary for host in self.fleet.hosts.values() if host is not self and host.summary is not None]
        summary = spreading.summary_of(record, others)
        if record != before or summary != self.summary:
            self.summary, self._published_at = summary, now

    def _is_impaired(self, sink: str) -> bool:
        """Whether the sink's coordinator is kept from its work: it notices that late, and remembers it for longer."""
        now = self.fleet.now
        if sink not in self.leads or self.parts[sink].world.poison not in (Poison.AWAY, Poison.HANGS):
            self._led_since.pop(sink, None)
        elif now - self._led_since.setdefault(sink, now) > NOTICED_SECONDS:
            self._impaired_at[sink] = now
        return now - self._impaired_at.get(sink, -math.inf) < spreading.IMPAIRED_SECONDS

    def _joined_by(self, name: str) -> Collection[str]:
        record = self.fleet.hosts[name].record
        return () if record is None else record.joined

    def _spread(self, own: WorkerRecord) -> None:
        now, leads = self.fleet.now, self.leads
        recent = {s: at for s, at in self._switchovers.items() if now - at < FORGET_SECONDS and s in leads}
        self._switchovers = recent
        if now - self._changed_at < SETTLE_SECONDS and not recent:
            return
        summaries = {name: host.summary for name, host in self.fleet.hosts.items() if host.summary is not None}
        sink = spreading.to_hand_over(own, summaries, recent, self._joined_by)
        if sink is not None:
            recent[sink] = now
            self.fleet.handed_over[sink] += 1
            self.parts[sink].world.commands.switchover()


class ManySinksWorld:
    """`shares`: whether hosts hand coordinators over, and drain. Both let a poisoned sink affect the other sinks."""

    def __init__(self, seed: int, poison: Poison = Poison.NONE, shares: bool = True, sinks: int = SINKS) -> None:
        self.seed, self.poison, self.shares = seed, poison, shares
        self.rng = Random(f"hosts of {seed}")
        self.profile = self._process_profile(draw(Random(seed)))
        self.now = 0.0
        self.healed = False
        self.expiry_delay = 0.0
        self.handed_over: Counter[str] = Counter()
        """How often, by sink."""
        self.counts: Counter[str] = Counter()
        self.heap: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.hosts = {f"p{n}": Host(self, f"p{n}", n == 0) for n in range(self.profile.workers)}
        self.worlds = [self._world(seed, number, number == sinks - 1) for number in range(sinks)]

    def _process_profile(self, drawn: Profile) -> Profile:
        rng = self.rng
        return replace(drawn, workers=rng.choice((2, 2, 3)), busy=20.0, drains=drawn.drains if self.shares else 0.0)

    def _world(self, seed: int, number: int, is_last: bool) -> SinkWorld:
        own_seed = seed * 1000 + number
        drawn = draw(Random(own_seed))
        switched_off = ("twins", "mixed", "poisoned", "small_multis", "ends_paused")
        changes: dict[str, Any] = {
            **dict.fromkeys((*OF_THE_PROCESS, "operated", "tampering"), 0.0),
            **dict.fromkeys(switched_off, False),
            "workers": self.profile.workers,
            "session_timeout": self.profile.session_timeout,
            "busy": self.profile.busy,
            "one_survivor": self.profile.one_survivor,
            "partitions": min(3, drawn.partitions),
            "capacity": 0,
        }
        profile = replace(drawn, **changes)
        if is_last:
            # A fault in its requests would hit the whole process, and the poison must not affect that.
            profile = replace(profile, crash_at=0.0, pause_at=0.0, table_cuts=0.0)
        poison = self.poison if is_last else Poison.NONE
        if poison is Poison.HALTED:
            profile = replace(profile, bad=0.2, errors_max=0, policy=DataLossPolicy.FAIL)
        if poison is Poison.HANGS:
            profile = replace(profile, write_seconds=HANGS)
        return SinkWorld(self, f"s{number}", own_seed, profile, poison)

    @property
    def unharmed(self) -> list[SinkWorld]:
        return [world for world in self.worlds if world.poison is Poison.NONE]

    def after(self, delay: float, call: Callable[[], None]) -> None:
        heapq.heappush(self.heap, (self.now + delay, next(self.order), call))

    def run(self) -> ManyReport:
        report = ManyReport(self.seed, self.poison, self.counts)
        try:
            self._begin()
            self._until(self.profile.busy)
            report.healthy_until_healed = tuple(world._digest for world in self.worlds[:-1])
            self._heal()
            healed_at = self.now
            self._until(self.now + QUIET, lambda: all(world._settled() for world in self.unharmed))
            report.settled = self.now - healed_at
            self._verdict()
        except Violation as violation:
            report.violation = violation
        for world in self.worlds:
            self.counts.update(world.counts)
            report.traces[world.name] = [f"{at:9.3f}  {' '.join(map(str, parts))[:300]}" for at, parts in world._trace]
        report.handed_over = self.handed_over.total()
        return report

    def _until(self, end: float, done: Callable[[], bool] | None = None) -> None:
        next_look = self.now
        while self.heap and self.heap[0][0] <= end:
            at, _, call = heapq.heappop(self.heap)
            self._set_clock(at)
            call()
            if done is not None and self.now >= next_look:
                if done():
                    return
                next_look = self.now + 1.0
        self._set_clock(end)

    def _set_clock(self, now: float) -> None:
        self.now = now
        for world in self.worlds:
            world.now = now

    def _begin(self) -> None:
        for world in self.worlds:
            world._begin()
        self.after(LOOK_SECONDS, self._look)
        profile, rng = self.profile, self.rng
        for rate, fault in (
            (profile.crashes, lambda: self._someone().crash()),
            (profile.pauses, lambda: self._someone().pause(self._span())),
            (profile.expiries, lambda: self._someone().expire()),
            (profile.keeper_cuts, lambda: self._someone().cut_off("keeper", self._span())),
            (profile.log_cuts, lambda: self._someone().cut_off("log", self._span())),
            (profile.drains, lambda: self._someone().drain()),
            (profile.clock_jumps, lambda: self._someone().jump(rng.uniform(-20.0, 20.0))),
        ):
            self._every(rate, fault)

    def _every(self, rate: float, fault: Callable[[], None]) -> None:
        def happen() -> None:
            if not self.healed:
                fault()
                self.after(self.rng.expovariate(rate), happen)

        if rate:
            self.after(self.rng.expovariate(rate), happen)

    def _look(self) -> None:
        for host in self.hosts.values():
            host.look()
        self.after(LOOK_SECONDS, self._look)

    def _someone(self) -> Host:
        """Draws a host: half of the time one that leads the first sink."""
        leading = [host for host in self.hosts.values() if "s0" in host.leads]
        return self.rng.choice(leading if leading and self.rng.random() < 0.5 else list(self.hosts.values()))

    def _span(self) -> float:
        return self.rng.expovariate(1.0) * self.profile.session_timeout

    def _heal(self) -> None:
        self.healed = True
        for host in self.hosts.values():
            host.paused_until = 0.0
        for world in self.worlds:
            world._heal()
        for world in self.worlds:
            world._end_the_pause()
            if world.poison is Poison.AWAY:
                for process in world.processes:
                    process.cut.add("table")

    def _verdict(self) -> None:
        for world in self.unharmed:
            try:
                world._verdict()
            except Violation as violation:
                raise Violation(violation.invariant, f"{world.name}: {violation}") from violation
        if self.shares:
            self._until_even()
            before = self.handed_over.copy()
            self._until(self.now + STEADY_SECONDS)
            # A coordinator whose store is away notices that only after a while, and may hand its sink over before.
            again = {world.name: self.handed_over[world.name] - before[world.name] for world in self.unharmed}
            if any(again.values()):
                raise Violation(STEADY, f"{again} times in {STEADY_SECONDS} s")

    def _until_even(self) -> None:
        """Waits until coordinators are shared evenly, and still are when the last hand-over has settled."""
        deadline = self.now + QUIET
        while True:
            self._until(deadline, self._is_even)
            if not self._is_even():
                leads = {name: host.leads for name, host in self.hosts.items()}
                raise Violation(EVEN, f"{leads}")
            self._until(self.now + SETTLE_SECONDS)
            if self._is_even():
                return

    def _is_even(self) -> bool:
        """Whether every sink that has joined is led, and moving one sink could not make the hosts' loads more even."""
        hosts = [host for host in self.hosts.values() if not host.down]
        impaired = {world.name for world in self.worlds if world.poison in (Poison.AWAY, Poison.HANGS)}
        loads = [[weight_of(sink) for sink in set(host.leads) - impaired] for host in hosts]
        led = {sink for host in hosts for sink in host.leads}
        joined = {world.name for world in self.worlds if world.poison is not Poison.REFUSED}
        is_back = all(self.profile.one_survivor or not host.down for host in self.hosts.values())
        least = min(map(sum, loads))
        return is_back and led == joined and all(sum(load) - least < 2 * min(load, default=1) for load in loads)
