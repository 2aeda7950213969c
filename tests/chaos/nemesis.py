"""Faults: each does its harm, waits, and repairs it. Its target and its duration are drawn from the seed."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from random import Random

from kazoo.exceptions import NoNodeError, NotEmptyError

from coordination.errors import Corrupt, Unavailable
from sink.operations.reset_writer import recorded_paths
from tests.chaos import harm
from tests.chaos.amends import halting, reset
from tests.chaos.arena import PATIENCE, SESSION_SECONDS, TOPIC, Arena
from tests.chaos.points import is_member
from tests.chaos.proxy import Mode
from tests.disk import FullDisk, ReadOnlyDisk
from tests.kafka_cluster import KafkaCluster
from tests.kafka_log import lose_end
from tests.waiting import eventually
from tests.workers import Part

Fault = Callable[[Arena, Random], str | None]
"""Does harm, repairs it, and returns a description; None if it did nothing."""


def kill_worker(arena: Arena, chance: Random) -> str:
    name = arena.random_worker(chance)
    arena.worker(name).kill()
    _sleep_up_to(3, chance)
    return f"SIGKILL to {name}"


def kill_half(arena: Arena, chance: Random) -> str | None:
    """Kills the JVM or the Python of a worker: the other half has to end by itself."""
    name, part = arena.random_worker(chance), chance.choice((Part.PYTHON, Part.JVM))
    worker = arena.worker(name)
    if not worker.running or worker.jvm_pid is None:
        return None
    worker.kill_part(part)
    goal = f"{name} is gone, without its {part.value}"
    eventually(goal, lambda: not worker.running and worker.jvm_pid is None, 60, arena.fleet.logs)
    worker.kill()
    return f"SIGKILL to the {part.value} of {name} alone"


def pause_worker(arena: Arena, chance: Random) -> str | None:
    name, part = arena.random_worker(chance), chance.choice((Part.GROUP, Part.GROUP, Part.PYTHON, Part.JVM))
    worker, seconds = arena.worker(name), SESSION_SECONDS * chance.uniform(0.5, 3)
    if not worker.running or (part is not Part.GROUP and not worker.jvm_pid):
        return None
    worker.signal(signal.SIGSTOP, part)
    time.sleep(seconds)
    # Every part that still runs: another fault may have killed one meanwhile.
    worker.resume()
    return f"{part.value} of {name} stopped for {seconds:.1f} s"


def cut_off(arena: Arena, chance: Random) -> str:
    name, mode = arena.random_worker(chance), chance.choice((Mode.CUT, Mode.NOTHING_OUT, Mode.NOTHING_IN))
    service, seconds = chance.choice(("ZooKeeper", "ZooKeeper", "Kafka")), SESSION_SECONDS * chance.uniform(0.3, 3)
    arena.proxies[name].set(service, mode)
    time.sleep(seconds)
    arena.proxies[name].set(service, Mode.OPEN)
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
    with arena.stoppable_broker(chance) as broker:
        if chance.random() < 0.5:
            broker.pause()
            time.sleep(seconds)
            broker.resume()
            return f"a broker stopped for {seconds:.1f} s"
        broker.kill()
        time.sleep(seconds)
        broker.start()
        return f"a broker killed, {seconds:.1f} s later started again"


def refuse_writes(arena: Arena, chance: Random) -> str | None:
    disk_fault = chance.choice((FullDisk, ReadOnlyDisk))(arena.disk)
    if not arena.mounted:
        return None  # mounting a small disk needs root
    disk_fault.begin()
    _sleep_up_to(15, chance)
    disk_fault.end()
    return disk_fault.error


def disturb_store(arena: Arena, chance: Random) -> str | None:
    """Performs one of the faults that a store on a network can have."""
    return arena.table_store.disturb(chance)


def truncate_log(arena: Arena, _: Random) -> str:
    """Lets Kafka delete all records that have landed, as retention does."""
    view = arena.fleet.wait("ZooKeeper answers", lambda _: True)
    # A topic that was created again may have fewer partitions than the sink has states.
    existing = arena.workload.end_offsets
    landed = {source.partition: state.start for source, state in view.states.items() if source.partition in existing}
    harm.delete_records(arena, landed)
    return f"log truncated to {sorted(landed.values())}"


def recreate_topic(arena: Arena, _: Random) -> str:
    with halting(arena, "earliest"):
        harm.recreate_topic(arena)
    return "topic recreated, sink reset"


def lose_log_end(arena: Arena, chance: Random) -> str | None:
    if isinstance(arena.kafka, KafkaCluster):
        return None  # `elect_uncleanly` does it
    partition = chance.randrange(arena.shape.partitions)
    with halting(arena, "latest"):
        lose_end(arena.kafka, TOPIC, partition, chance.uniform(0.2, 0.9))
    return f"{TOPIC}-{partition} lost its end, sink reset"


def elect_uncleanly(arena: Arena, chance: Random) -> str | None:
    """Makes all partitions lose what they got while one replica was away, and then grow beyond where they were."""
    if not isinstance(arena.kafka, KafkaCluster):
        return None
    kafka = arena.kafka
    kafka.wait_in_sync(TOPIC)
    ahead, behind = chance.sample((2, 3), 2)
    kafka.brokers[behind].kill()
    kafka.wait("the other replica is alone", TOPIC, lambda partition: partition.isrs == [ahead])
    arena.await_commit(time.time() + chance.uniform(1, 5))
    with halting(arena, "latest"):
        arena.kill_workers()
        kafka.brokers[ahead].kill()
        kafka.brokers[behind].start()
        kafka.wait("the replica that is behind leads", TOPIC, lambda partition: partition.leader == behind)
        harm.fill(arena, arena.workload.end_offsets)
        kafka.brokers[ahead].start()
        arena.revive()
    kafka.wait_in_sync(TOPIC)
    return f"broker {behind}, which was behind broker {ahead}, leads; sink reset"


def redirect_to_another_cluster(arena: Arena, chance: Random) -> str | None:
    """Redirects a worker to another Kafka cluster, whose topic of this name has as many records and more."""
    if arena.other_cluster is None:
        return None
    # The last candidate on another cluster halts the sink: nobody else could lead.
    eventually("all are members", lambda: all(is_member(arena, name) for name in arena.names), 120, arena.fleet.logs)
    name, other_cluster = arena.random_worker(chance), arena.other_cluster.cluster_id
    arena.other_cluster.fill({partition: 2 * end for partition, end in arena.workload.end_offsets.items()})
    logged, began = {each: len(arena.fleet.log(each)) for each in arena.names}, time.monotonic()

    def is_reported() -> bool:
        return any(other_cluster in arena.fleet.log(each)[length:] for each, length in logged.items())

    arena.proxies[name].redirect(arena.other_cluster.listeners[name])
    eventually("the other cluster is named", is_reported, PATIENCE, arena.fleet.logs)
    reported = time.monotonic() - began
    _sleep_up_to(10, chance)
    arena.proxies[name].undo_redirect()
    return f"{name} redirected to another cluster, reported after {reported:.1f} s"


def evolve(arena: Arena, _: Random) -> str | None:
    """Changes columns as an operator does: stops the fleet, changes the settings of all, starts it again."""
    evolution = arena.evolution
    if evolution.taken == len(evolution.steps):
        return None
    for name in arena.names:
        arena.worker(name).stop()
    arena.await_no_workers()
    arena.evolve()
    began = time.time()
    arena.revive()
    # An event that had the column before the table has it would land without it.
    arena.await_commit(began)
    evolution.taken += 1
    return f"columns changed: {evolution.steps[evolution.taken - 1]}"


def write_as_another(arena: Arena, chance: Random) -> str | None:
    return arena.write_as_another(chance) if arena.shape.shared else None


def edit_zookeeper(arena: Arena, chance: Random) -> str:
    """Spoils a znode, or deletes one with all below it. If the sink then needs an operator, its tree is forgotten."""
    client, root = arena.fleet.client, arena.fleet.root
    path = chance.choice(recorded_paths(client, root))
    deletes, began = chance.random() < 0.7, time.time()
    # Its transaction may have ended meanwhile, or a worker creates znodes below it.
    with contextlib.suppress(NoNodeError, NotEmptyError):
        if deletes:
            client.delete(f"{root}/{path}", recursive=True)
        else:
            client.set(f"{root}/{path}", b"{}")
    description = f"{path} {'deleted' if deletes else 'spoiled'} by hand"
    if _goes_on(arena, began):
        return description
    reset(arena, "--forget")
    return f"{description}, the tree forgotten"


def _goes_on(arena: Arena, since: float) -> bool:
    """Whether the fleet commits again by itself, without an operator: twice, because the first may have been complete
    but for its end, and the next one meets what is missing.
    """
    deadline = time.monotonic() + PATIENCE
    while sum(at > since for at in arena.commits.values()) < 2:
        try:
            if arena.fleet.view().halt is not None:
                return False
        except Corrupt:
            return False
        except Unavailable:
            pass  # the tree changes while it is read, or ZooKeeper is down: look again
        assert time.monotonic() < deadline, arena.fleet.logs()
        time.sleep(0.2)
    return True


def rolling_restart(arena: Arena, _: Random) -> str:
    for name in arena.names:
        worker = arena.worker(name)
        worker.terminate()
        assert (status := worker.wait(120)) == 0, f"{name} ended with {status}\n{arena.fleet.logs()}"
        arena.start(name)
        eventually(f"{name} is back", lambda name=name: is_member(arena, name), 120, arena.fleet.logs)  # type: ignore[misc]
    return "rolling restart"


def _sleep_up_to(seconds: float, chance: Random) -> None:
    time.sleep(chance.uniform(0, seconds))
