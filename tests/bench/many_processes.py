"""Ten tables in one process against ten processes: CPU seconds for a million records, and memory.

`python -m tests.bench.many_processes --tables 10 --records 500000 --rounds 2`

The topics are filled before. Both arrangements begin cold on the same two cores, and take turns. CPU is counted from
the first process's start to the last table's last record, and again without the start: from the moment when every sink
has its worker. Memory is the highest sum of all processes at one moment: resident size, and PSS, in which a page that
processes share counts once.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tests.bench.many_lab import PATIENCE, print_event, servers, wait_joined
from tests.bench.sampler import Sampler
from tests.bench.topics import Topic, fill
from tests.many_sinks import ManySinks
from tests.waiting import eventually

PARTITIONS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tables", type=int, default=10)
    parser.add_argument("--records", type=int, default=500_000, help="of each table")
    parser.add_argument("--interval", type=float, default=5, help="seconds")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="many-processes-") as directory, servers(Path(directory)) as (zk, kafka):
        topics = [
            Topic(f"t{number}", PARTITIONS, arguments.records // PARTITIONS) for number in range(arguments.tables)
        ]
        for topic in topics:
            fill(kafka.address, topic)
        for number in range(arguments.rounds):
            for processes in (1, arguments.tables):
                run_directory = Path(directory) / f"round{number}-{processes}"
                run(arguments, run_directory, zk.address, kafka.address, processes, topics)


def run(
    arguments: argparse.Namespace, directory: Path, zookeeper: str, kafka: str, processes: int, topics: list[Topic]
) -> None:
    shared = {
        "zookeeper.root": f"/{directory.name}",
        "spark.master": "local[2]",
        "transaction.interval.ms": int(arguments.interval * 1000),
        "hoodie.metadata.enable": True,
        "log.level": "info",
    }
    fleet = ManySinks(directory, zookeeper, kafka, shared)
    for topic in topics:
        fleet.add(f"s-{topic.name}", topic.name)
    workers = [f"w{number}" for number in range(processes)]
    sinks_by_worker = {worker: list(fleet.sinks)[number::processes] for number, worker in enumerate(workers)}
    try:
        started = time.time()
        for worker in workers:
            fleet.start(worker, **{"worker.sinks": sinks_by_worker[worker]})
        with Sampler([fleet.workers[worker].pid for worker in workers], proportional=True) as sampler:
            wait_joined(fleet, 1)
            joined = time.time()
            for sink in fleet.sinks:
                eventually(f"{sink} has all", lambda s=sink: fleet.landed(s) >= topics[0].records, PATIENCE, fleet.logs)  # type: ignore[misc]
            ended = time.time()
            time.sleep(1)
        total, warm = sampler.usage(started, ended), sampler.usage(joined, ended)
        millions = sum(topic.records for topic in topics) / 1e6
        print_event(
            "run",
            processes=processes,
            joined_after=round(joined - started, 1),
            landed_after=round(ended - started, 1),
            cpu_seconds_per_million=round(sum(total.cpu.values()) / millions, 2),
            without_the_start=round(sum(warm.cpu.values()) / millions, 2),
            memory_mb=total.together >> 20,
            proportional_mb=total.proportional >> 20,
        )
        for sink in fleet.sinks:
            fleet.assert_exactly_once(sink, topics[0].records)
    finally:
        fleet.close()


if __name__ == "__main__":
    main()
