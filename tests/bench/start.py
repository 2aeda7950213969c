"""How long a worker takes to start: from its process to the fleet, phase by phase.

`python -m tests.bench.start --rounds 5` starts one worker after the other, each round one for a table that is not there
and one for the table that the first has made, alone on this machine's cores. It prints medians: seconds until each
phase was reached, and CPU seconds of Python and JVM until the worker had joined. Phases overlap: the JVM starts while
Python imports, and the table is opened while Spark runs its first job. `--without-archive` starts JVMs without the
archive of classes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psutil

from sink.clients.java.class_archive import archive_option
from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.bench.orders import create_topic
from tests.fleet import Fleet
from tests.workers import WorkerProcess

TOPIC = "start"
KINDS = ("new table", "existing table")
PHASES = ("schema", "spark", "table", "warm", "joined")
NO_ARCHIVE = "-XX:SharedArchiveFile=none.jsa"


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds since the process began, by phase, and CPU seconds of all its processes until it had joined."""

    reached: dict[str, float]
    cpu: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--without-archive", action="store_true")
    options = parser.parse_args()
    starts_by_kind: dict[str, list[Start]] = {kind: [] for kind in KINDS}
    with (
        tempfile.TemporaryDirectory(prefix="sink-start-") as directory,
        ZooKeeperServer(Path(directory, "zookeeper")) as zookeeper,
        KafkaServer(Path(directory, "kafka"), heap="384m") as kafka,
    ):
        create_topic(kafka.address, TOPIC)
        settings = {
            "spark.master": "local[2]",
            "spark.driver.extraJavaOptions": NO_ARCHIVE if options.without_archive else "",
        }
        for number in range(options.rounds):
            name = f"round-{number}"
            round_fleet = Fleet(Path(directory, name), zookeeper.address, kafka.address, TOPIC, settings, name=name)
            with closing(round_fleet) as fleet:
                for kind in KINDS:
                    starts_by_kind[kind].append(_start(fleet, kind.partition(" ")[0]))
    archive = "with" if archive_option() and not options.without_archive else "without"
    print(f"{options.rounds} starts of each, {archive} an archive of classes, medians")
    for kind, starts in starts_by_kind.items():
        print(f"{kind}: " + _summary(starts))
    return 0


def _start(fleet: Fleet, name: str) -> Start:
    worker = fleet.start(name)
    fleet.wait_for_log(name, "worker.joined")
    start = Start(_reached(fleet.log(name), psutil.Process(worker.pid).create_time()), _cpu(worker))
    worker.stop()
    return start


def _reached(log: str, created_at: float) -> dict[str, float]:
    seconds_by_phase = {}
    for event in (json.loads(line) for line in log.splitlines() if line.startswith("{")):
        phase = "joined" if event["event"] == "worker.joined" else event.get("phase")
        if event["event"] in ("worker.reached", "worker.joined"):
            seconds_by_phase[phase] = (
                datetime.fromisoformat(event["timestamp"].replace("Z", "+00:00")).timestamp() - created_at
            )
    return seconds_by_phase


def _cpu(worker: WorkerProcess) -> float:
    root = psutil.Process(worker.pid)
    cpu_times = [process.cpu_times() for process in (root, *root.children(recursive=True))]
    ended_children = cpu_times[0].children_user + cpu_times[0].children_system
    return sum(times.user + times.system for times in cpu_times) + ended_children


def _summary(starts: list[Start]) -> str:
    reached = [f"{phase} {statistics.median(start.reached[phase] for start in starts):.1f} s" for phase in PHASES]
    return f"{', '.join(reached)}; {statistics.median(start.cpu for start in starts):.1f} CPU seconds"


if __name__ == "__main__":
    sys.exit(main())
