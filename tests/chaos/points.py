"""Death at a named point: which there are in a run, and what brings a worker to those that it would not come to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from confluent_kafka import Producer

from coordination.errors import Unavailable
from sink.devtools.local.workers import WorkerProcess
from tests.chaos import harm
from tests.chaos.amends import halting
from tests.chaos.arena import TOPIC, Arena
from tests.chaos.shape import Shape
from tests.waiting import eventually

FIRE_SECONDS = 120.0
ATTEMPTS = 6
"""Three that fail divide a batch, but not each that is made here is the next one at the same."""
FILLERS = 50
OPERATIONS = (
    "ReadKeeper",
    "ReadTable",
    "ReadLog",
    "Write:raise epoch",
    "Write:open a transaction",
    "Begin",
    "Write:STARTED",
    "WriteTasks",
    "Write:write status",
    "FindExistingFiles",
    "Write:PREPARED",
    "Complete",
    "Write:COMMITTED",
    "Write:settle",
    "Write:ABORTED",
    "RollBack",
    "Write:tidy",
    "Write:advance to the checkpoint",
    "Write:record new partitions",
    "Write:stamp configuration",
    "Write:halt",
    "Write:skip a gap",
    "Write:divide a batch",
)
SELDOM = ("Write:tidy.before", "Write:tidy.after")
"""Only some deaths leave behind what these failpoints wait for."""


def points(shape: Shape) -> tuple[str, ...]:
    found = ["Complete.guarded", *(f"{operation}.{side}" for operation in OPERATIONS for side in ("before", "after"))]
    if shape.bad:
        found.append("Complete.published")
    if shape.service:
        found += [f"{shape.service}.scheduled", "Metadata.compaction.scheduled"]
    return tuple(found)


def dealt(cards: Sequence[str], chance: Random) -> Iterator[str]:
    """All of them in a new order, and then again: in a long run none is left out."""
    while True:
        yield from chance.sample(cards, len(cards))


@dataclass(frozen=True)
class Ambush:
    """One worker is to die at its point, alone: so it has every part, and comes to it."""

    arena: Arena
    name: str
    point: str

    def lay(self, *others: str) -> None:
        """The worker is there, with its failpoint and perhaps others, or has died of one; nobody else is there."""
        self.arena.worker(self.name).kill()
        places = (self.point, *others)
        for place in places:
            (self.arena.fleet.points / place).unlink(missing_ok=True)
        worker = self.arena.start(self.name, ",".join(f"{place}=kill" for place in places))
        back = f"{self.name} is back, or dead"
        eventually(back, lambda: is_member(self.arena, self.name) or not worker.running, 120, self.arena.fleet.logs)
        for other in self.arena.names:
            if other != self.name:
                self.arena.worker(other).kill()

    def wait(self) -> None:
        """Until it has died, or for long enough."""
        deadline = time.monotonic() + FIRE_SECONDS
        while self._worker.running and time.monotonic() < deadline:
            time.sleep(0.2)
        self._worker.kill()

    def has_fired(self) -> bool:
        return (self.arena.fleet.points / self.point).exists()

    @property
    def _worker(self) -> WorkerProcess:
        return self.arena.worker(self.name)


def kill_at_failpoint(arena: Arena, chance: Random) -> str:
    name, point = arena.someone(chance), next(arena.points)
    ambush = Ambush(arena, name, point)
    PROVOKED.get(point.rpartition(".")[0], _as_it_is)(ambush)
    if not ambush.has_fired():
        return f"{name} killed, waiting for {point} in vain"
    arena.fired.add(point)
    return f"{name} killed at {point}"


def is_member(arena: Arena, name: str) -> bool:
    """Under its present process id: the znode of one that was killed stays for a while."""
    try:
        members = arena.fleet.view().members
    except Unavailable:
        return False
    return any((member.worker, member.pid) == (name, arena.worker(name).pid) for member in members)


def _as_it_is(ambush: Ambush) -> None:
    ambush.lay()
    ambush.wait()


def _zookeeper_emptied(ambush: Ambush) -> None:
    ambush.lay()
    ambush.arena.empty_zookeeper()
    ambush.wait()


def _partition_added(ambush: Ambush) -> None:
    """With anything to read, it would be recorded together with that."""
    arena = ambush.arena
    ambush.lay()
    with arena.workload.held():
        arena.fleet.wait_landed(arena.workload.ends)
        arena.add_partition()
        ambush.wait()


def _reconfigured(ambush: Ambush) -> None:
    """A worker with other settings is refused while any worker is there."""
    ambush.arena.kill_workers()
    ambush.arena.await_nobody()
    ambush.arena.reconfigure()
    _as_it_is(ambush)


def _topic_recreated(ambush: Ambush) -> None:
    ambush.lay()
    with halting(ambush.arena, "earliest"):
        harm.recreate_topic(ambush.arena)
        ambush.wait()
        ambush.arena.revive()


def _gap_made(ambush: Ambush) -> None:
    """Deletes records that no worker has read and that no list names."""
    arena = ambush.arena
    with arena.workload.held():
        arena.fleet.wait_landed(arena.workload.ends)
        arena.kill_workers()
        producer = Producer({"bootstrap.servers": arena.kafka.address})
        for _ in range(FILLERS):
            producer.produce(TOPIC, b"filler", partition=0)
        assert producer.flush(60) == 0
        harm.delete_records(arena, {0: arena.workload.ends[0] + FILLERS})
        _as_it_is(ambush)


def _attempts_failed(ambush: Ambush) -> None:
    """One after another: each is aborted by the next worker, until so many have failed that the batch is divided."""
    for _ in range(ATTEMPTS):
        ambush.lay("WriteTasks.after")
        ambush.wait()
        if ambush.has_fired():
            return


PROVOKED: Mapping[str, Callable[[Ambush], None]] = {
    "Write:advance to the checkpoint": _zookeeper_emptied,
    "Write:record new partitions": _partition_added,
    "Write:stamp configuration": _reconfigured,
    "Write:halt": _topic_recreated,
    "Write:skip a gap": _gap_made,
    "Write:divide a batch": _attempts_failed,
    "Write:ABORTED": _attempts_failed,
}
