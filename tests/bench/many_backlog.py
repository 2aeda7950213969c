"""One sink with a backlog beside many sinks with a trickle: how fresh the many tables are without the backlog and
beside it, and how long a new topic that a pattern matches needs to its first row.

`python -m tests.bench.many_backlog --sinks 20 --rate 200 --interval 5 --backlog 20000000`

One worker of two cores. SIGHUP adds the sink with the backlog in the middle of the trickle. `beside` lasts until the
whole backlog has landed, which shows whether that sink had a share, too.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.bench.many_lab import (
    LOOK_SECONDS,
    PATIENCE,
    Landings,
    Trickle,
    create_topics,
    freshness,
    percentile,
    print_event,
    servers,
    wait_joined,
)
from tests.bench.topics import Topic, fill
from tests.many_sinks import ManySinks
from tests.waiting import eventually
from tests.workers import Part

BACKLOG = Topic("backlog", 4, 0)
WORKER = "w1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sinks", type=int, default=20)
    parser.add_argument("--rate", type=float, default=200, help="records a second of each sink")
    parser.add_argument("--interval", type=float, default=5, help="seconds")
    parser.add_argument("--seconds", type=float, default=90, help="of the trickle alone")
    parser.add_argument("--backlog", type=int, default=20_000_000, help="records")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="many-backlog-") as directory, servers(Path(directory)) as (zk, kafka):
        fill(kafka.address, Topic(BACKLOG.name, BACKLOG.partitions, arguments.backlog // BACKLOG.partitions))
        shared = {
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "transaction.interval.ms": int(arguments.interval * 1000),
            "hoodie.metadata.enable": True,
            "log.level": "info",
        }
        fleet = ManySinks(Path(directory) / "fleet", zk.address, kafka.address, shared)
        try:
            measure(arguments, fleet, kafka.address)
        finally:
            fleet.close()


def measure(arguments: argparse.Namespace, fleet: ManySinks, kafka: str) -> None:
    topics = {f"s{number:03d}": f"t{number:03d}" for number in range(arguments.sinks)}
    create_topics(kafka, tuple(topics.values()))
    for sink, topic in topics.items():
        fleet.add(sink, topic)
    fleet.add("found", **{"kafka.topic.regex": "new-.*"})
    fleet.start(WORKER)
    wait_joined(fleet, 1)
    trickle, landings = Trickle(kafka, tuple(topics.values()), arguments.rate), Landings(fleet)
    landings.start()
    trickle.start()
    time.sleep(3 * arguments.interval)
    alone = time.time()
    time.sleep(arguments.seconds)
    fleet.add(BACKLOG.name, BACKLOG.name)
    fleet.configure(WORKER)
    beside = time.time()
    fleet.workers[WORKER].signal(signal.SIGHUP, Part.PYTHON)
    eventually("the backlog has landed", lambda: fleet.landed(BACKLOG.name) >= arguments.backlog, PATIENCE, fleet.logs)
    ended = time.time()
    print_event("backlog", landed_after=round(ended - beside, 1), transactions=transactions(fleet))
    measure_new_topic(fleet, kafka)
    trickle.stop()
    wait_all_landed(fleet, trickle, topics)
    landings.stop()
    for name, since, until in (("alone", alone, alone + arguments.seconds), ("beside", beside, ended)):
        seconds = freshness(trickle.sent, landings.seen, topics, since, until)
        print_event(name, p50=round(statistics.median(seconds), 1), p99=round(percentile(seconds, 0.99), 1))
    for sink, topic in list(topics.items())[::5]:
        fleet.assert_exactly_once(sink, trickle.sent[topic][-1][0])
    print_event("audit", held=True)


class Landed(NamedTuple):
    records: int
    seconds: float


def transactions(fleet: ManySinks) -> list[Landed]:
    """Returns the backlog's transactions that have ended, with the seconds from plan to end."""
    history = fleet.view(BACKLOG.name).ledger.history
    spans = [(summary.records, summary.times.values()) for summary in history]
    return [Landed(records, round(max(times) - min(times), 1)) for records, times in spans]


def measure_new_topic(fleet: ManySinks, kafka: str) -> None:
    """Measures a new topic beside the trickle and the rest of the backlog."""
    began = time.monotonic()
    create_topics(kafka, ["new-orders"])
    producer = Trickle(kafka, ["new-orders"], 10)
    producer.start()
    eventually("the new topic's first row", lambda: fleet.landed("found") > 0, PATIENCE, fleet.logs)
    print_event("new topic", first_row_after=round(time.monotonic() - began, 1))
    producer.stop()


def wait_all_landed(fleet: ManySinks, trickle: Trickle, topics: dict[str, str]) -> None:
    def all_landed() -> bool:
        return all(fleet.landed(sink) >= trickle.sent[topic][-1][0] for sink, topic in topics.items())

    eventually("all has landed", all_landed, PATIENCE, fleet.logs)
    time.sleep(2 * LOOK_SECONDS)


if __name__ == "__main__":
    main()
