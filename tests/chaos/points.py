"""Death at a failpoint: the names of a run's failpoints, and how to bring a worker to the rare ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from coordination.errors import Unavailable
from tests.chaos import harm
from tests.chaos.amends import halting
from tests.chaos.arena import Arena
from tests.chaos.shape import Shape
from tests.waiting import eventually
from tests.workers import WorkerProcess

FIRE_SECONDS = 120.0
ATTEMPTS = 6
"""Three failed attempts divide a batch, but successive attempts here may belong to different batches."""
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
    "Write:delete incomplete plans",
    "Write:advance to the checkpoint",
    "Write:record new partitions",
    "Write:stamp configuration",
    "Write:halt",
    "Write:skip a gap",
    "Write:divide a batch",
)
OPTIONAL_POINTS = ("Write:delete incomplete plans.before", "Write:delete incomplete plans.after")
"""A run may never reach these: only some deaths leave an incomplete plan behind."""


def points(shape: Shape) -> tuple[str, ...]:
    names = ["Complete.guarded", *(f"{operation}.{side}" for operation in OPERATIONS for side in ("before", "after"))]
    if shape.bad:
        names.append("Complete.published")
    if shape.service:
        names += [f"{shape.service}.scheduled", f"{shape.service}.written", "Metadata.compaction.scheduled"]
    return tuple(names)


def shuffled_rounds(names: Sequence[str], chance: Random) -> Iterator[str]:
    """Yields all names in a random order, and then again in another: a long run leaves none out."""
    while True:
        yield from chance.sample(names, len(names))


@dataclass(frozen=True)
class Ambush:
    """Waits for one worker to die at a failpoint. No other worker runs, so that this one reaches every failpoint."""

    arena: Arena
    name: str
    point: str

    def lay(self, *other_points: str) -> None:
        """Restarts the worker with its failpoint and the others, waits until it has joined or died, kills the rest."""
        self.arena.worker(self.name).kill()
        armed = (self.point, *other_points)
        for point in armed:
            (self.arena.fleet.points / point).unlink(missing_ok=True)
        worker = self.arena.start(self.name, ",".join(f"{point}=kill" for point in armed))
        goal = f"{self.name} is back, or dead"
        eventually(goal, lambda: is_member(self.arena, self.name) or not worker.running, 120, self.arena.fleet.logs)
        for other in self.arena.names:
            if other != self.name:
                self.arena.worker(other).kill()

    def wait(self) -> None:
        """Waits until the worker has died, for FIRE_SECONDS at most."""
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
    name, point = arena.random_worker(chance), next(arena.points)
    ambush = Ambush(arena, name, point)
    PROVOKED.get(point.rpartition(".")[0], _unprovoked)(ambush)
    if not ambush.has_fired():
        return f"{name} killed, waiting for {point} in vain"
    arena.fired.add(point)
    return f"{name} killed at {point}"


def is_member(arena: Arena, name: str) -> bool:
    """Whether the worker has joined under its present process id: a killed process's znode stays for a while."""
    try:
        members = arena.fleet.view().members
    except Unavailable:
        return False
    return any((member.worker, member.pid) == (name, arena.worker(name).pid) for member in members)


def _unprovoked(ambush: Ambush) -> None:
    ambush.lay()
    ambush.wait()


def _zookeeper_emptied(ambush: Ambush) -> None:
    ambush.lay()
    ambush.arena.empty_zookeeper()
    ambush.wait()


def _partition_added(ambush: Ambush) -> None:
    """Adds a partition while there is nothing to read: it is recorded by itself, not with a plan."""
    arena = ambush.arena
    ambush.lay()
    with arena.workload.paused():
        arena.fleet.wait_landed(arena.workload.end_offsets)
        arena.add_partition()
        ambush.wait()


def _reconfigured(ambush: Ambush) -> None:
    """Changes a setting of the fleet while no worker runs: beside another worker, this one would be refused."""
    ambush.arena.kill_workers()
    ambush.arena.await_no_workers()
    ambush.arena.reconfigure()
    _unprovoked(ambush)


def _topic_recreated(ambush: Ambush) -> None:
    ambush.lay()
    with halting(ambush.arena, "earliest"):
        harm.recreate_topic(ambush.arena)
        ambush.wait()
        ambush.arena.revive()


def _gap_made(ambush: Ambush) -> None:
    """Deletes records that no worker has read and that the workload did not send."""
    arena = ambush.arena
    with arena.workload.paused():
        arena.fleet.wait_landed(arena.workload.end_offsets)
        arena.kill_workers()
        landed = arena.workload.end_offsets[0]
        harm.fill(arena, {0: landed})
        harm.delete_records(arena, {0: landed + harm.FILLERS})
        _unprovoked(ambush)


def _attempts_failed(ambush: Ambush) -> None:
    """Lets attempts fail one after another. The next worker aborts each, until the batch is divided."""
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
