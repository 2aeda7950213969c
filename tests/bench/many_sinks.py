"""Many sinks in few processes: how fast they join, what they cost when nothing comes, how fresh their tables are at a
trickle, how fast the other workers take over from one that is killed, and how coordinators are shared.

`python -m tests.bench.many_sinks --sinks 100 --workers 2 --rate 50 --interval 60 --seconds 240`
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

import psutil

from sink.devtools.local.servers import free_ports
from tests.bench.many_lab import (
    LOOK_SECONDS,
    PATIENCE,
    HttpPoller,
    Landings,
    Trickle,
    cpu,
    create_topics,
    freshness,
    memory,
    percentile,
    print_event,
    servers,
    wait_joined,
)
from tests.many_sinks import ManySinks
from tests.waiting import eventually


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sinks", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cores", type=int, default=1, help="of each worker")
    parser.add_argument("--rate", type=float, default=50, help="records a second of each sink")
    parser.add_argument("--interval", type=float, default=60, help="seconds")
    parser.add_argument("--seconds", type=float, default=240, help="of the trickle")
    parser.add_argument("--idle", type=float, default=30, help="seconds without records that are measured")
    parser.add_argument("--heap", default="1g")
    parser.add_argument("--ask", type=float, default=0, help="seconds between two rounds of requests to each worker")
    parser.add_argument("--kill", action="store_true", help="kill a worker at the end, and measure the takeover")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="many-sinks-") as directory, servers(Path(directory)) as (zookeeper, kafka):
        run(arguments, Path(directory), zookeeper.address, kafka.address)


def run(arguments: argparse.Namespace, directory: Path, zookeeper: str, kafka: str) -> None:
    shared = {
        "spark.master": f"local[{arguments.cores}]",
        "spark.driver.memory": arguments.heap,
        "transaction.interval.ms": int(arguments.interval * 1000),
        "hoodie.metadata.enable": True,
        "log.level": "info",
    }
    fleet = ManySinks(directory / "fleet", zookeeper, kafka, shared)
    topics = {f"s{number:03d}": f"t{number:03d}" for number in range(arguments.sinks)}
    create_topics(kafka, tuple(topics.values()))
    for sink, topic in topics.items():
        fleet.add(sink, topic)
    trickle = Trickle(kafka, tuple(topics.values()), arguments.rate)
    landings = Landings(fleet)
    try:
        measure(arguments, fleet, trickle, landings, topics)
    finally:
        trickle.stop() if trickle.is_alive() else None
        fleet.close()


def measure(
    arguments: argparse.Namespace, fleet: ManySinks, trickle: Trickle, landings: Landings, topics: Mapping[str, str]
) -> None:
    began = time.monotonic()
    names = [f"w{number + 1}" for number in range(arguments.workers)]
    ports = free_ports(len(names)) if arguments.ask else []
    for name, port in zip_longest(names, ports):
        fleet.start(name, **({} if port is None else {"http.listen": f"127.0.0.1:{port}"}))
    poller = HttpPoller(ports, arguments.ask)
    poller.start()
    wait_joined(fleet, len(names))
    print_event("joined", seconds=round(time.monotonic() - began, 1))
    processes = {name: psutil.Process(fleet.workers[name].pid) for name in names}
    time.sleep(75)  # new tables are still being prepared
    before, since = {name: cpu(process) for name, process in processes.items()}, time.monotonic()
    time.sleep(arguments.idle)
    for name, process in processes.items():
        share = (cpu(process) - before[name]) / (time.monotonic() - since)
        threads = process.num_threads()
        print_event(
            "idle",
            worker=name,
            cores=round(share, 2),
            threads=threads,
            memory=memory(process),
            leads=leads(fleet, name),
        )
    before, since = {name: cpu(process) for name, process in processes.items()}, time.monotonic()
    landings.start()
    trickle.start()
    warm = time.time() + min(arguments.seconds / 3, 2 * arguments.interval)
    time.sleep(arguments.seconds)
    cpu_seconds = sum(cpu(process) - before[name] for name, process in processes.items())
    records = sum(sent[-1][0] for sent in trickle.sent.values())
    memory_by_worker = {name: memory(process) for name, process in processes.items()}
    until = time.time() - 2 * arguments.interval if arguments.kill else float("inf")
    if arguments.kill:
        measure_takeover(fleet, names[0], landings, topics, arguments)
    trickle.stop()
    produced = {sink: trickle.sent[topic][-1][0] for sink, topic in topics.items()}
    eventually(
        "all has landed", lambda: all(fleet.landed(sink) >= produced[sink] for sink in topics), PATIENCE, fleet.logs
    )
    time.sleep(2 * LOOK_SECONDS)
    landings.stop()
    print_event("phases", **phases(fleet, topics), answers=poller.stop())
    if arguments.kill:
        undisturbed = freshness(trickle.sent, landings.seen, topics, warm, until)
        print_event("freshness before the kill", **spread(undisturbed))
    print_event(
        "freshness",
        **spread(freshness(trickle.sent, landings.seen, topics, warm)),
        cores=round(cpu_seconds / (time.monotonic() - since), 2),
        cpu_seconds_per_million=round(cpu_seconds / records * 1e6, 1),
        memory=memory_by_worker,
        leads={name: leads(fleet, name) for name in names},
    )
    for sink in list(topics)[:: max(1, len(topics) // 10)]:
        fleet.assert_exactly_once(sink, produced[sink])
    print_event("audit", held=True)


def spread(seconds: Sequence[float]) -> dict[str, float]:
    return {
        "p50": round(statistics.median(seconds), 1),
        "p99": round(percentile(seconds, 0.99), 1),
        "most": round(max(seconds), 1),
    }


def phases(fleet: ManySinks, topics: Mapping[str, str]) -> dict[str, object]:
    """Returns the median seconds of the later half of each sink's transactions, and how many there were."""
    seconds: dict[str, list[float]] = {}
    count = 0
    for sink in topics:
        history = fleet.view(sink).ledger.history
        count += len(history)
        for summary in history[len(history) // 2 :]:
            marks = sorted((at, phase) for phase, at in summary.times.items())
            for (began, phase), (ended, _) in itertools.pairwise(marks):
                seconds.setdefault(str(phase), []).append(ended - began)
    return {"transactions": count, **{phase: round(statistics.median(took), 2) for phase, took in seconds.items()}}


def measure_takeover(
    fleet: ManySinks, worker: str, landings: Landings, topics: Mapping[str, str], arguments: argparse.Namespace
) -> None:
    led = [sink for sink in topics if fleet.leader(sink) == worker]
    killed_at = time.time()
    fleet.workers[worker].kill()

    def gone_on() -> bool:
        return all(landings.seen[sink][-1][1] > killed_at + 6.0 for sink in led)

    eventually("every sink of the killed worker has committed again", gone_on, PATIENCE, fleet.logs)
    seconds = [
        next(landed_at for _, landed_at in landings.seen[sink] if landed_at > killed_at + 6.0) - killed_at
        for sink in led
    ]
    print_event(
        "killed",
        led=len(led),
        last_commit_after=round(max(seconds), 1),
        median=round(statistics.median(seconds), 1),
        of_it_interval=arguments.interval,
    )


def leads(fleet: ManySinks, worker: str) -> int:
    return sum(1 for sink in fleet.sinks if fleet.leader(sink) == worker)


if __name__ == "__main__":
    main()
