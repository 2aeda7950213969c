"""Chaos with many sinks in one fleet, one of them poisoned: `python -m tests.chaos --kind many`.

Every fault hits a process or a server, and so all sinks at once. After each fault, every sink but the poisoned one has
to land more. In the end the auditor that shares no code with the sink compares each table with the events that Kafka
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
from tests.bench.orders import create_topic
from tests.chaos.__main__ import HISTORY, History, Minimum, Weighted, random_faults
from tests.chaos.arena import PATIENCE, SESSION_SECONDS, Arena
from tests.chaos.auditor import ACKNOWLEDGED
from tests.chaos.events import Event, appended
from tests.chaos.nemesis import cut_off, kill_half, kill_worker, kill_zookeepers, pause_worker, stop_kafka
from tests.chaos.shape import APPEND, Shape
from tests.chaos.workload import Workload
from tests.many_sinks import ManySinks
from tests.waiting import eventually
from tests.workers import WorkerProcess

SINKS = 10
PARTITIONS = 2
RATE = 10.0
"""Events a second of each sink: the run tests how many tables there are, not how large they are."""
REFUSED, HALTED, GONE = "refused", "halted", "gone"
POISONS = (REFUSED, HALTED, GONE)


class ManyArena(Arena):
    """`poison` says how the last sink fails."""

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

    def directory_of(self, sink: str) -> Path:
        """Returns the directory of the sink's table and of its acknowledged events."""
        return self.directory / "sinks" / sink

    def _start(self, cleanup: ExitStack) -> None:
        for proxies in self.proxies.values():
            cleanup.callback(proxies.close)
        cleanup.callback(self.zookeeper.stop)
        self.zookeeper.start()
        cleanup.callback(self.kafka.kill)
        self.kafka.start()
        shared = {
            "zookeeper.session.timeout.ms": int(SESSION_SECONDS * 1000),
            "transaction.interval.ms": 3000,
            "coordinator.writestatus.timeout": 60_000,
            "worker.rehearsal": True,
            "log.level": "info",
        }
        self.many = ManySinks(self.directory / "fleet", self.zookeeper.address, self.kafka.address, shared)
        self.fleet = self.many  # type: ignore[assignment]  # faults need its logs only
        cleanup.callback(self.many.close)
        for sink in self.sinks:
            self._add(cleanup, sink)
        for name in self.names:
            self.start(name)
        eventually("every sink lands", lambda: all(map(self._landed, self.healthy)), PATIENCE, self.many.logs)

    def _add(self, cleanup: ExitStack, sink: str) -> None:
        directory = self.directory_of(sink)
        directory.mkdir(parents=True)
        create_topic(self.kafka.address, sink, PARTITIONS)
        is_poisoned = sink == self.poisoned
        halts = is_poisoned and self.poison == HALTED
        tolerance = {"errors.tolerance": "none"} if halts else {"errors.tolerance": "all"}
        limit = {} if halts else {"errors.max.per.transaction": 100_000}
        self.many.add(sink, sink, **{"target.base.path": str(directory / "table"), **tolerance, **limit})
        if is_poisoned and self.poison == REFUSED:
            (directory / "table").mkdir()
            (directory / "table" / "notes.txt").write_text("not a table")
        events: Iterator[Event] = appended(Random(self._chance.getrandbits(32)), PARTITIONS, self._bad)
        self.workloads[sink] = Workload(self.kafka.address, sink, RATE, events, APPEND, directory / ACKNOWLEDGED)
        cleanup.callback(self.workloads[sink].stop)
        self.workloads[sink].start()

    def start(self, name: str, failpoint: str = "") -> WorkerProcess:
        assert not failpoint, "a failpoint is one sink's"
        proxies = self.proxies[name]
        addresses = {"zookeeper.connect": proxies.zookeeper, "kafka.bootstrap.servers": proxies.kafka}
        return self.many.start(name, **addresses)

    def worker(self, name: str) -> WorkerProcess:
        return self.many.workers[name]

    def coordinator(self) -> str | None:
        """Returns the worker that leads most sinks, or None while none is led."""
        leads = self.leads()
        return max(leads, key=lambda name: leads[name]) if any(leads.values()) else None

    def leads(self) -> Mapping[str, int]:
        leaders = Counter(map(self.many.leader, self.healthy))
        return {name: leaders[name] for name in self.names}

    def landed(self) -> dict[str, int]:
        """Returns, by sink, its end offsets summed over all partitions."""
        return {sink: self._landed(sink) for sink in self.healthy}

    def _landed(self, sink: str) -> int:
        return sum(state.end for state in eventually_view(self.many, sink).states.values())

    def await_all(self, before: Mapping[str, int]) -> float:
        """Waits until every healthy sink has landed more than `before`. Returns how many seconds that took."""
        began = time.monotonic()
        for sink in self.healthy:
            goal = f"{sink} lands more than {before[sink]}"
            eventually(goal, lambda sink=sink: self._landed(sink) > before[sink], PATIENCE, self.many.logs)  # type: ignore[misc]
        return round(time.monotonic() - began, 1)

    def await_sent(self) -> None:
        """Waits until every healthy sink has landed all that was sent."""
        for sink in self.healthy:
            end_offsets = self.workloads[sink].end_offsets

            def has_all(sink: str = sink, end_offsets: Mapping[int, int] = end_offsets) -> bool:
                states = eventually_view(self.many, sink).states
                landed = {source.partition: state.end for source, state in states.items()}
                return all(landed.get(partition, 0) >= end for partition, end in end_offsets.items())

            eventually(f"{sink} has all", has_all, PATIENCE, self.many.logs)

    def poison_shows(self) -> bool:
        """Whether the fleet shows how the poisoned sink fails, while its workers go on."""
        if self.poison == HALTED:
            return eventually_view(self.many, self.poisoned).halt is not None
        if self.poison == REFUSED:
            return {hosted.state for hosted in self.many.hosts(self.poisoned).values()} == {REFUSED}
        return not (self.directory_of(self.poisoned) / "table" / ".hoodie" / "hoodie.properties").exists()


def eventually_view(many: ManySinks, sink: str) -> Any:
    views: list[Any] = []

    def look() -> bool:
        try:
            views.append(many.view(sink))
        except Unavailable:
            return False
        return True

    eventually(f"ZooKeeper answers for {sink}", look, PATIENCE)
    return views[-1]


def restart_one(arena: Arena, chance: Random) -> str:
    """Ends a worker, which drains all its sinks in time; the run starts it again."""
    name = arena.random_worker(chance)
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
    with History(directory / HISTORY) as history:
        return _run(directory, seed, seconds, workers, bad, history)


def _run(directory: Path, seed: int, seconds: float, workers: int, bad: int, history: History) -> int:
    chance = Random(seed)
    poison = chance.choice(POISONS)
    history.record("begin", kind="many", workers=workers, sinks=SINKS, poison=poison, seed=seed)
    outcome: dict[str, Any] = {}
    with ManyArena(directory, workers, chance.getrandbits(32), bad, poison) as arena:
        try:
            outcome = _break(arena, chance, seconds, history)
            for workload in arena.workloads.values():
                workload.stop()
            arena.await_sent()
            eventually("the poisoned sink shows", arena.poison_shows, PATIENCE, arena.many.logs)
            eventually("coordinators are shared", lambda: _even(arena.leads()), PATIENCE, arena.many.logs)
            outcome["leads"] = dict(arena.leads())
        except AssertionError as error:
            outcome["failed"] = str(error)
        finally:
            arena.kill_workers()
        sent = {sink: arena.workloads[sink].acknowledged for sink in arena.healthy}
        unsure = sum(workload.unsure for workload in arena.workloads.values())
    reports = {sink: _audit(arena.directory_of(sink)) for sink in arena.healthy}
    wrong = {sink: report for sink, (status, report) in reports.items() if status}
    acknowledged = {sink: report["acknowledged"] for sink, (_, report) in reports.items()}
    history.record("end", **outcome, sent=sum(sent.values()), audited=len(reports), wrong=wrong, unsure=unsure)
    minimum = Minimum.of_seconds(seconds)
    if outcome.get("faults", 0) < minimum.faults or unsure:
        faults = outcome.get("faults", 0)
        print(f"this proves nothing: {faults} faults, wanted {minimum.faults}; unsure of {unsure} events")
        return 1
    return int(bool(wrong or outcome.get("failed") or acknowledged != sent))


def _break(arena: ManyArena, chance: Random, seconds: float, history: History) -> dict[str, Any]:
    performed: Counter[str] = Counter()
    longest: dict[str, float] = {}
    if arena.poison == GONE:
        eventually("the table to lose", lambda: arena._landed(arena.poisoned) > 0, PATIENCE, arena.many.logs)
        shutil.rmtree(arena.directory_of(arena.poisoned) / "table")
    for fault in random_faults(chance, seconds, FAULTS):
        name = fault.__name__
        history.record("fault", name=name)
        description = fault(arena, chance)
        if description is None:
            history.record("not done")
            continue
        performed[name] += 1
        arena.revive()
        standstill = arena.await_all(arena.landed())
        longest[name] = max(longest.get(name, 0.0), standstill)
        history.record("moved on", done=description, after=standstill, leads=dict(arena.leads()))
    return {"faults": performed.total(), "by_fault": dict(performed), "longest_by_fault": longest}


def _even(leads: Mapping[str, int]) -> bool:
    """Whether workers lead almost equally many healthy sinks: one may lead the poisoned sink too."""
    return sum(leads.values()) == SINKS - 1 and max(leads.values()) - min(leads.values()) <= 2


def _audit(directory: Path) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "tests.chaos.auditor", str(directory)]
    auditor = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return auditor.returncode, json.loads(auditor.stdout) if auditor.stdout else {"acknowledged": -1}
