"""One sink with a backlog beside many that trickle: how fresh the many are alone, and beside it; and how long a new
topic that a pattern matches needs to its first row.

`python -m tests.bench.many_backlog --sinks 20 --rate 200 --interval 5 --backlog 20000000`

One worker of two cores. The sink with the backlog comes by SIGHUP, in the middle of the trickle: beside it is until
all of it has landed, which says whether it had a share, too.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from sink.devtools.local.workers import Part
from tests.bench.many_lab import (
    LOOK_SECONDS,
    PATIENCE,
    Landings,
    Trickle,
    create_topics,
    freshness,
    percentile,
    servers,
    tell,
    wait_joined,
)
from tests.bench.topics import Topic, fill
from tests.many_sinks import ManySinks
from tests.waiting import eventually

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
        it = ManySinks(Path(directory) / "fleet", zk.address, kafka.address, shared)
        try:
            measure(arguments, it, kafka.address)
        finally:
            it.close()


def measure(arguments: argparse.Namespace, it: ManySinks, kafka: str) -> None:
    topics = {f"s{number:03d}": f"t{number:03d}" for number in range(arguments.sinks)}
    create_topics(kafka, tuple(topics.values()))
    for sink, topic in topics.items():
        it.add(sink, topic)
    it.add("found", **{"kafka.topic.regex": "new-.*"})
    it.start(WORKER)
    wait_joined(it, 1)
    trickle, landings = Trickle(kafka, tuple(topics.values()), arguments.rate), Landings(it)
    landings.start()
    trickle.start()
    time.sleep(3 * arguments.interval)
    alone = time.time()
    time.sleep(arguments.seconds)
    it.add(BACKLOG.name, BACKLOG.name)
    it.configure(WORKER)
    beside = time.time()
    it.workers[WORKER].signal(signal.SIGHUP, Part.PYTHON)
    eventually("the backlog has landed", lambda: it.landed(BACKLOG.name) >= arguments.backlog, PATIENCE, it.logs)
    ended = time.time()
    tell("backlog", landed_after=round(ended - beside, 1), transactions=transactions(it))
    new_topic(it, kafka)
    trickle.stop()
    wait_all(it, trickle, topics)
    landings.stop()
    for name, since, until in (("alone", alone, alone + arguments.seconds), ("beside", beside, ended)):
        seconds = freshness(trickle.sent, landings.seen, topics, since, until)
        tell(name, p50=round(statistics.median(seconds), 1), p99=round(percentile(seconds, 0.99), 1))
    for sink, topic in list(topics.items())[::5]:
        it.assert_exactly_once(sink, trickle.sent[topic][-1][0])
    tell("audit", held=True)


class Landed(NamedTuple):
    records: int
    seconds: float


def transactions(it: ManySinks) -> list[Landed]:
    """Those of the backlog that have ended, from plan to end."""
    history = it.view(BACKLOG.name).ledger.history
    return [Landed(t.records, round(max(t.times.values()) - min(t.times.values()), 1)) for t in history]


def new_topic(it: ManySinks, kafka: str) -> None:
    """Beside the trickle and what is left of the backlog."""
    began = time.monotonic()
    create_topics(kafka, ["new-orders"])
    producer = Trickle(kafka, ["new-orders"], 10)
    producer.start()
    eventually("the new topic's first row", lambda: it.landed("found") > 0, PATIENCE, it.logs)
    tell("new topic", first_row_after=round(time.monotonic() - began, 1))
    producer.stop()


def wait_all(it: ManySinks, trickle: Trickle, topics: dict[str, str]) -> None:
    def all_landed() -> bool:
        return all(it.landed(sink) >= trickle.sent[topic][-1][0] for sink, topic in topics.items())

    eventually("all has landed", all_landed, PATIENCE, it.logs)
    time.sleep(2 * LOOK_SECONDS)


if __name__ == "__main__":
    main()
