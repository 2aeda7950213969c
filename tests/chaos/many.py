"""Chaos with many sinks in one fleet, one of them poisoned: `python -m tests.chaos --kind many`.

Every fault hits a process or a server, and so all sinks at once. After each, every sink but the poisoned one has to
land more. In the end the auditor that shares no code with the sink holds each table against the events that Kafka
acknowledged. The poisoned sink is refused, halts, or loses its table: the seed says which.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

from coordination.errors import Unavailable
from sink.devtools.local.workers import WorkerProcess
from tests.bench.orders import create_topic
from tests.chaos.__main__ import HISTORY, History, Least, Weighted, drawn
from tests.chaos.arena import PATIENCE, SESSION_SECONDS, Arena
from tests.chaos.auditor import ACKNOWLEDGED
from tests.chaos.events import Event, appended
from tests.chaos.nemesis import cut_off, kill_half, kill_worker, kill_zookeepers, pause_worker, stop_kafka
from tests.chaos.shape import APPEND, Shape
from tests.chaos.workload import Workload
from tests.many_sinks import ManySinks
from tests.waiting import eventually

SINKS = 10
PARTITIONS = 2
RATE = 10.0
"""Events a second of each sink: what is tested is how many tables there are, not how large they are."""
REFUSED, HALTED, GONE = "refused", "halted", "gone"
POISONS = (REFUSED, HALTED, GONE)


class ManyArena(Arena):
    """`poison` is what is wrong with the last sink."""

    def __init__(self, directory: Path, workers: int, seed: int, bad: int, poison: str) -> None:
        super().__init__(directory, workers, Shape(APPEND, bad=bad), seed, iter(()))
        self.poison = poison
        self._bad = bad
        self.sinks = [f"s{number}" for number in range(SINKS)]
        self.healthy, self.poisoned = self.sinks[:-1], self.sinks[-1]
        self.workloads: dict[str, Workload] = {}
        self._chance = Random(seed)

    def __enter__(self) -> ManyArena:
        super().__enter__()
        return self

    def place_of(self, sink: str) -> Path:
        """The directory of its table and of what was sent to it."""
        return self.directory / "sinks" / sink

    def _start(self, ends: ExitStack) -> None:
        for ways in self.ways.values():
            ends.callback(ways.close)
        ends.callback(self.zookeeper.stop)
        self.zookeeper.start()
        ends.callback(self.kafka.stop)
        self.kafka.start()
        shared = {
            "zookeeper.session.timeout.ms": int(SESSION_SECONDS * 1000),
            "transaction.interval.ms": 3000,
            "coordinator.writestatus.timeout": 60_000,
            "worker.rehearsal": True,
            "log.level": "info",
        }
        self.many = ManySinks(self.directory / "fleet", self.zookeeper.address, self.kafka.address, shared)
        self.fleet = self.many  # type: ignore[assignment]  # faults ask it for its logs only
        ends.callback(self.many.close)
        for sink in self.sinks:
            self._add(ends, sink)
        for name in self.names:
            self.start(name)
        eventually("every sink lands", lambda: all(map(self._landed, self.healthy)), PATIENCE, self.many.logs)

    def _add(self, ends: ExitStack, sink: str) -> None:
        place = self.place_of(sink)
        place.mkdir(parents=True)
        create_topic(self.kafka.address, sink, PARTITIONS)
        is_poisoned = sink == self.poisoned
        halts = is_poisoned and self.poison == HALTED
        tolerance = {"errors.tolerance": "none"} if halts else {"errors.tolerance": "all"}
        limit = {} if halts else {"errors.max.per.transaction": 100_000}
        self.many.add(sink, sink, **{"target.base.path": str(place / "table"), **tolerance, **limit})
        if is_poisoned and self.poison == REFUSED:
            (place / "table").mkdir()
            (place / "table" / "notes.txt").write_text("not a table")
        events: Iterator[Event] = appended(Random(self._chance.getrandbits(32)), PARTITIONS, self._bad)
        self.workloads[sink] = Workload(self.kafka.address, sink, RATE, events, APPEND, place / ACKNOWLEDGED)
        ends.callback(self.workloads[sink].stop)
        self.workloads[sink].start()

    def start(self, name: str, failpoint: str = "") -> WorkerProcess:
        assert not failpoint, "a failpoint is one sink's"
        ways = self.ways[name]
        own = {"zookeeper.connect": ways.zookeeper, "kafka.bootstrap.servers": ways.kafka}
        return self.many.start(name, **own)

    def worker(self, name: str) -> WorkerProcess:
        return self.many.workers[name]

    def coordinator(self) -> str | None:
        """The worker that leads most sinks."""
        leads = self.leads()
        return max(leads, key=lambda name: leads[name]) if any(leads.values()) else None

    def leads(self) -> Mapping[str, int]:
        leaders = Counter(map(self.many.leader, self.healthy))
        return {name: leaders[name] for name in self.names}

    def landed(self) -> dict[str, int]:
        """By sink, how far it has come over all partitions."""
        return {sink: self._landed(sink) for sink in self.healthy}

    def _landed(self, sink: str) -> int:
        return sum(state.end for state in eventually_view(self.many, sink).states.values())

    def await_all(self, before: Mapping[str, int]) -> float:
        """Seconds until every healthy sink has landed more than `before`."""
        began = time.monotonic()
        for sink in self.healthy:
            what = f"{sink} lands more than {before[sink]}"
            eventually(what, lambda sink=sink: self._landed(sink) > before[sink], PATIENCE, self.many.logs)  # type: ignore[misc]
        return round(time.monotonic() - began, 1)

    def await_sent(self) -> None:
        """Until every healthy sink has landed all that was sent."""
        for sink in self.healthy:
            ends = self.workloads[sink].ends

            def has_all(sink: str = sink, ends: Mapping[int, int] = ends) -> bool:
                states = {of.partition: state.end for of, state in eventually_view(self.many, sink).states.items()}
                return all(states.get(partition, 0) >= end for partition, end in ends.items())

            eventually(f"{sink} has all", has_all, PATIENCE, self.many.logs)

    def poison_shows(self) -> bool:
        """Whether the fleet tells what is wrong with the poisoned sink, and its workers go on."""
        if self.poison == HALTED:
            return eventually_view(self.many, self.poisoned).halt is not None
        if self.poison == REFUSED:
            return {hosted.state for hosted in self.many.hosts(self.poisoned).values()} == {REFUSED}
        return not (self.place_of(self.poisoned) / "table" / ".hoodie" / "hoodie.properties").exists()


def eventually_view(many: ManySinks, sink: str) -> Any:
    seen: list[Any] = []

    def look() -> bool:
        try:
            seen.append(many.view(sink))
        except Unavailable:
            return False
        return True

    eventually(f"ZooKeeper answers for {sink}", look, PATIENCE)
    return seen[-1]


def restart_one(arena: Arena, chance: Random) -> str:
    """A worker drains all its sinks in time, and comes back."""
    name = arena.someone(chance)
    worker = arena.worker(name)
    if not worker.running:
        return f"{name} was not there"
    worker.terminate()
    assert (status := worker.wait(180)) == 0, f"{name} ended with {status}\n{arena.fleet.logs()}"
    return f"{name} drained"


FAULTS: Weighted = (
    (kill_worker, 6),
    (kill_half, 2),
    (pause_worker, 3),
    (cut_off, 3),
    (kill_zookeepers, 2),
    (stop_kafka, 2),
    (restart_one, 2),
)


def run_many(directory: Path, seed: int, seconds: float, workers: int, bad: int) -> int:
    """Returns the exit status."""
    directory.mkdir(parents=True, exist_ok=True)
    chance, history = Random(seed), History(directory / HISTORY)
    poison = chance.choice(POISONS)
    history.say("begin", kind="many", workers=workers, sinks=SINKS, poison=poison, seed=seed)
    told: dict[str, Any] = {}
    with ManyArena(directory, workers, chance.getrandbits(32), bad, poison) as arena:
        try:
            told = _break(arena, chance, seconds, history)
            for workload in arena.workloads.values():
                workload.stop()
            arena.await_sent()
            eventually("the poisoned sink shows", arena.poison_shows, PATIENCE, arena.many.logs)
            eventually("coordinators are shared", lambda: _even(arena.leads()), PATIENCE, arena.many.logs)
            told["leads"] = dict(arena.leads())
        except AssertionError as stood_still:
            told["failed"] = str(stood_still)
        finally:
            arena.kill_workers()
        sent = {sink: arena.workloads[sink].acknowledged for sink in arena.healthy}
        unsure = sum(workload.unsure for workload in arena.workloads.values())
    reports = {sink: _audit(arena.place_of(sink)) for sink in arena.healthy}
    wrong = {sink: report for sink, (status, report) in reports.items() if status}
    counted = {sink: report["acknowledged"] for sink, (_, report) in reports.items()}
    history.say("end", **told, sent=sum(sent.values()), audited=len(reports), wrong=wrong, unsure=unsure)
    least = Least.of_seconds(seconds)
    if told.get("faults", 0) < least.faults or unsure:
        print(f"this proves nothing: {told.get('faults', 0)} faults, wanted {least.faults}; unsure of {unsure} events")
        return 1
    return int(bool(wrong or told.get("failed") or counted != sent))


def _break(arena: ManyArena, chance: Random, seconds: float, history: History) -> dict[str, Any]:
    happened: Counter[str] = Counter()
    longest: dict[str, float] = {}
    if arena.poison == GONE:
        eventually("the table to lose", lambda: arena._landed(arena.poisoned) > 0, PATIENCE, arena.many.logs)
        shutil.rmtree(arena.place_of(arena.poisoned) / "table")
    for fault in drawn(chance, seconds, FAULTS):
        name = fault.__name__
        history.say("fault", name=name)
        done = fault(arena, chance)
        if done is None:
            history.say("not done")
            continue
        happened[name] += 1
        arena.revive()
        stood = arena.await_all(arena.landed())
        longest[name] = max(longest.get(name, 0.0), stood)
        history.say("moved on", done=done, after=stood, leads=dict(arena.leads()))
    return {"faults": happened.total(), "by_fault": dict(happened), "longest_by_fault": longest}


def _even(leads: Mapping[str, int]) -> bool:
    """A poisoned sink may be led by a worker too, so that the others are one apart more."""
    return sum(leads.values()) == SINKS - 1 and max(leads.values()) - min(leads.values()) <= 2


def _audit(place: Path) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "tests.chaos.auditor", str(place)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"acknowledged": -1}
