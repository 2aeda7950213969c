"""The faults: each does its harm, waits, and makes it good again. Where and for how long is drawn from the seed."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random

from confluent_kafka import TopicPartition as KafkaPlace
from confluent_kafka.admin import AdminClient
from kazoo.exceptions import NoNodeError, NotEmptyError

from coordination.errors import Corrupt, Unavailable
from sink.local.process import child_environment
from sink.local.servers import Part
from sink.operations.reset_writer import recorded, workers
from tests.bench.orders import create_topic
from tests.chaos.arena import PARTITIONS, PATIENCE, SESSION_SECONDS, TOPIC, Arena
from tests.chaos.proxy import Mode
from tests.disk import FullDisk, ReadOnlyDisk
from tests.kafka_log import lose_end
from tests.waiting import eventually

FIRE_SECONDS = 120.0
Fault = Callable[[Arena, Random], str | None]
"""Says what it did, when all is whole again; None: nothing."""

ADVANCE = "Write:advance to the checkpoint"
"""What a coordinator asks for only after ZooKeeper was emptied."""
RECORD = "Write:record new partitions"
OPERATIONS = (
    "ReadKeeper",
    "ReadTable",
    "ReadLog",
    "Write:raise epoch",
    "Write:open a transaction",
    "Begin",
    "Write:STARTED",
    "WriteSlices",
    "Write:write status",
    "FindHeld",
    "Write:PREPARED",
    "Complete",
    "Write:COMMITTED",
    "Write:settle",
    "Write:ABORTED",
    "RollBack",
    "Write:tidy",
    ADVANCE,
    RECORD,
)
SELDOM = ("Write:tidy.before", "Write:tidy.after")
"""What they wait for is left behind by some deaths only."""
POINTS = ("Complete.guarded", *(f"{operation}.{side}" for operation in OPERATIONS for side in ("before", "after")))


def dealt(cards: Sequence[str], chance: Random) -> Iterator[str]:
    """All of them in a new order, and then again: in a long run none is left out."""
    while True:
        yield from chance.sample(cards, len(cards))


def kill_worker(arena: Arena, chance: Random) -> str:
    name = arena.someone(chance)
    arena.worker(name).kill()
    _rest(chance, 3)
    return f"SIGKILL to {name}"


def kill_half(arena: Arena, chance: Random) -> str | None:
    """A JVM without its Python ends, and a Python without its JVM ends itself: nobody else has to kill it."""
    name, part = arena.someone(chance), chance.choice((Part.PYTHON, Part.JVM))
    worker = arena.worker(name)
    if not worker.running or worker.jvm_pid is None:
        return None
    worker.kill_part(part)
    gone = f"{name} is gone, without its {part.value}"
    eventually(gone, lambda: not worker.running and worker.jvm_pid is None, 60, arena.fleet.logs)
    worker.kill()
    return f"SIGKILL to the {part.value} of {name} alone"


def kill_at_failpoint(arena: Arena, chance: Random) -> str:
    """All others are killed too: so the one with the failpoint has every part, and comes to its point."""
    name, point = arena.someone(chance), next(arena.points)
    arena.worker(name).kill()
    fired = arena.fleet.points / point
    fired.unlink(missing_ok=True)
    worker = arena.start(name, f"{point}=kill")
    eventually(f"{name} is back, or dead", lambda: _is_member(arena, name) or not worker.running, 120)
    for other in arena.names:
        if other != name:
            arena.worker(other).kill()
    if point.startswith(ADVANCE):
        arena.empty_zookeeper()
    # With anything to read a new partition is recorded together with it.
    quiet = arena.workload.held() if point.startswith(RECORD) else contextlib.nullcontext()
    with quiet:
        if point.startswith(RECORD):
            arena.fleet.wait_landed(arena.workload.ends)
            arena.add_partition()
        deadline = time.monotonic() + FIRE_SECONDS
        while worker.running and time.monotonic() < deadline:
            time.sleep(0.2)
    worker.kill()
    if fired.exists():
        arena.fired.add(point)
    return f"{name} killed at {point}" if fired.exists() else f"{name} killed, waiting for {point} in vain"


def pause_worker(arena: Arena, chance: Random) -> str | None:
    name, part = arena.someone(chance), chance.choice((Part.GROUP, Part.GROUP, Part.PYTHON, Part.JVM))
    worker, seconds = arena.worker(name), SESSION_SECONDS * chance.uniform(0.5, 3)
    if not worker.running or (part is not Part.GROUP and not worker.jvm_pid):
        return None
    worker.signal(signal.SIGSTOP, part)
    time.sleep(seconds)
    if worker.running and (part is not Part.JVM or worker.jvm_pid):
        worker.signal(signal.SIGCONT, part)
    return f"{part.value} of {name} stopped for {seconds:.1f} s"


def cut_off(arena: Arena, chance: Random) -> str:
    name, mode = arena.someone(chance), chance.choice((Mode.CUT, Mode.NOTHING_OUT, Mode.NOTHING_IN))
    service, seconds = chance.choice(("ZooKeeper", "ZooKeeper", "Kafka")), SESSION_SECONDS * chance.uniform(0.3, 3)
    arena.ways[name].set(service, mode)
    time.sleep(seconds)
    arena.ways[name].set(service, Mode.OPEN)
    return f"{name} to {service}: {mode.value} for {seconds:.1f} s"


def kill_zookeepers(arena: Arena, chance: Random) -> str:
    leader, count = arena.leading_zookeeper(), chance.choice((1, 1, 2, 3))
    victims = [leader, *(server for server in arena.zookeeper.servers if server is not leader)][:count]
    seconds = SESSION_SECONDS * chance.uniform(0, 2)
    for server in victims:
        server.kill()
    time.sleep(seconds)
    for server in victims:
        server.launch()
    arena.zookeeper.start()
    return f"{count} of 3 ZooKeepers killed, the leader first, {seconds:.1f} s later started again"


def empty_zookeeper(arena: Arena, _: Random) -> str:
    arena.empty_zookeeper()
    return "ZooKeeper emptied"


def stop_kafka(arena: Arena, chance: Random) -> str:
    seconds = chance.uniform(1, 15)
    if chance.random() < 0.5:
        arena.kafka.pause()
        time.sleep(seconds)
        arena.kafka.resume()
        return f"Kafka stopped for {seconds:.1f} s"
    arena.kafka.kill()
    time.sleep(seconds)
    arena.kafka.start()
    return f"Kafka killed, {seconds:.1f} s later started again"


def refuse_writes(arena: Arena, chance: Random) -> str | None:
    trouble = chance.choice((FullDisk, ReadOnlyDisk))(arena.disk)
    if not arena.mounted:
        return None  # it needs root
    trouble.begin()
    _rest(chance, 15)
    trouble.end()
    return trouble.error


def truncate_log(arena: Arena, _: Random) -> str:
    """Kafka deletes all that has landed, as retention does."""
    view = arena.fleet.wait("ZooKeeper answers", lambda _: True)
    landed = {place: state.start for place, state in view.states.items()}
    places = [KafkaPlace(place.topic, place.partition, offset) for place, offset in landed.items()]
    admin = _admin(arena)
    for deleted in admin.delete_records(places).values():
        deleted.result(30)
    return f"log truncated to {sorted(landed.values())}"


def recreate_topic(arena: Arena, _: Random) -> str:
    with _halting(arena, "earliest"):
        admin = _admin(arena)
        admin.delete_topics([TOPIC])[TOPIC].result(30)
        eventually("the topic is gone", lambda: TOPIC not in admin.list_topics(timeout=30).topics)
        create_topic(arena.kafka.address, TOPIC, PARTITIONS)
    return "topic recreated, sink reset"


def lose_log_end(arena: Arena, chance: Random) -> str:
    partition = chance.randrange(PARTITIONS)
    with _halting(arena, "latest"):
        lose_end(arena.kafka, TOPIC, partition, chance.uniform(0.2, 0.9))
    return f"{TOPIC}-{partition} lost its end, sink reset"


def edit_zookeeper(arena: Arena, chance: Random) -> str:
    """Somebody spoils a znode, or deletes one with all below it; where it asks for it, the tree is forgotten."""
    client, root = arena.fleet.client, arena.fleet.root
    path = chance.choice(recorded(client, root))
    deletes, began = chance.random() < 0.7, time.time()
    # Its transaction has ended meanwhile, or somebody makes znodes below it.
    with contextlib.suppress(NoNodeError, NotEmptyError):
        if deletes:
            client.delete(f"{root}/{path}", recursive=True)
        else:
            client.set(f"{root}/{path}", b"{}")
    said = f"{path} {'deleted' if deletes else 'spoiled'} by hand"
    if _goes_on(arena, began):
        return said
    _reset(arena, "--forget")
    return f"{said}, the tree forgotten"


def _goes_on(arena: Arena, since: float) -> bool:
    """Whether the fleet commits again by itself, and does not ask for an operator."""
    deadline = time.monotonic() + PATIENCE
    while not any(at > since for at in arena.commits.values()):
        try:
            if arena.fleet.view().halt is not None:
                return False
        except Corrupt:
            return False
        except Unavailable:
            pass  # the tree changes while it is read, or somebody takes it down: look again
        assert time.monotonic() < deadline, arena.fleet.logs()
        time.sleep(0.2)
    return True


def rolling_restart(arena: Arena, _: Random) -> str:
    for name in arena.names:
        worker = arena.worker(name)
        worker.terminate()
        assert (status := worker.wait(120)) == 0, f"{name} ended with {status}\n{arena.fleet.logs()}"
        arena.start(name)
        eventually(f"{name} is back", lambda name=name: _is_member(arena, name), 120, arena.fleet.logs)  # type: ignore[misc]
    return "rolling restart"


FAULTS: tuple[tuple[Fault, int], ...] = (
    (kill_worker, 6),
    (kill_at_failpoint, 6),
    (kill_half, 3),
    (pause_worker, 4),
    (cut_off, 5),
    (kill_zookeepers, 3),
    (empty_zookeeper, 1),
    (stop_kafka, 2),
    (refuse_writes, 2),
    (rolling_restart, 1),
    (truncate_log, 1),
    (recreate_topic, 1),
    (lose_log_end, 1),
    (edit_zookeeper, 1),
)
"""With their weights."""


@contextlib.contextmanager
def _halting(arena: Arena, goes_on_from: str) -> Iterator[None]:
    """For harm that halts the sink, and takes an operator who resets it: all that was sent is in the table by then."""
    with arena.workload.held():
        arena.fleet.wait_landed(arena.workload.ends)
        yield
        arena.fleet.wait("the sink halts", lambda view: view.halt is not None)
        _reset(arena, "--to", goes_on_from)
        arena.workload.ends.clear()


def _reset(arena: Arena, *options: str) -> None:
    """What an operator does: stop all workers, wait until they are gone, reset."""
    for name in arena.names:
        arena.worker(name).stop()
    eventually("no worker is left", lambda: not workers(arena.fleet.client, arena.fleet.root))
    command = [sys.executable, "-m", "sink.cli", "reset", "--config", str(arena.worker(arena.names[0]).config)]
    subprocess.run([*command, *options, "--yes"], check=True, stdout=subprocess.DEVNULL, env=child_environment({}))


def _admin(arena: Arena) -> AdminClient:
    return AdminClient({"bootstrap.servers": arena.kafka.address})


def _is_member(arena: Arena, name: str) -> bool:
    """Under its present process id: the znode of one that was killed stays for a while."""
    try:
        members = arena.fleet.view().members
    except Unavailable:
        return False
    return any((member.worker, member.pid) == (name, arena.worker(name).pid) for member in members)


def _rest(chance: Random, most: float) -> None:
    time.sleep(chance.uniform(0, most))
