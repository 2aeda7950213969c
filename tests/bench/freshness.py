"""How fresh the table is at a trickle: seconds from producing a record to the commit that makes it visible.

A record is visible when the commit whose checkpoint covers its offset is complete on the table's timeline. The time is
the modification time of the completed instant's file; on a store, the time when the file was put there. All clocks are
this machine's. Measured on a new table once it has `FEW_COMMITS`, and again on the same table after many small commits,
made as fast as the sink makes them. Raises `Unavailable`.
"""

from __future__ import annotations

import re
import statistics
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from coordination.errors import Unavailable
from coordination.state.tree import KeeperView
from sink.audit.checkpoints import LogPartition
from sink.audit.timeline import active_names, read_timeline
from tests.bench.fleet import Fleet, phases
from tests.bench.lab import Lab
from tests.bench.lake_store import StoreWatch
from tests.bench.orders import create_topic, ends
from tests.bench.results import Freshness
from tests.bench.trickle import SentRecord, Trickle
from tests.looking import Poller

RATE = 1000
SECONDS = 60.0
FEW_COMMITS = 10
"""Commits that every worker makes at the measured rate before the measurement."""
MANY_COMMITS = 2000
AGEING_RATE = 100.0
AGEING_PATIENCE = 3 * 3600.0
CATCH_UP_SECONDS = 600.0
LOOK_SECONDS = 0.5
PROGRESS_EVERY = 100
_COMPLETED = re.compile(r"(\d{17})_\d{17}\.commit")


class Watch(Poller):
    """Notes when each completed instant appeared, before archiving can take it away."""

    def __init__(self, table: Path) -> None:
        super().__init__(LOOK_SECONDS)
        self.seen: dict[str, float] = {}
        self._timeline = table / ".hoodie" / "timeline"

    def _poll(self) -> None:
        for path in self._timeline.glob("*.commit"):
            match = _COMPLETED.fullmatch(path.name)
            if match and match[1] not in self.seen:
                self.seen[match[1]] = path.stat().st_mtime


def measure(
    lab: Lab,
    partitions: int,
    commits: int,
    report_progress: Callable[[str], None],
    sink_settings: Mapping[str, object] | None = None,
) -> Iterator[Freshness]:
    """Measures a topic of `partitions` on a new table, and again when the table has `commits` (0: only the new one).
    `sink_settings` override the bench's."""
    topic = f"trickle-{partitions}"
    if not ends(lab.kafka.address, topic):
        create_topic(lab.kafka.address, topic, partitions)
    settings = {"auto.offset.reset": "latest", "spark.master": f"local[{lab.cores}]", **(sink_settings or {})}
    with Fleet(lab, f"freshness-{partitions}", topic, settings) as fleet:
        yield _measure(lab, fleet, topic, partitions)
        if commits:
            _age(lab, fleet, topic, partitions, commits, report_progress)
            yield _measure(lab, fleet, topic, partitions)
        fleet.audit()


def _measure(lab: Lab, fleet: Fleet, topic: str, partitions: int) -> Freshness:
    worker = fleet.launch("worker", {"transaction.interval.ms": 1000})
    fleet.wait(lambda view: bool(view.members), "the worker", CATCH_UP_SECONDS)
    with StoreWatch(fleet.store) if fleet.store else Watch(fleet.table) as watch:
        with _producing(lab, topic, partitions, RATE):
            goal = fleet.last + FEW_COMMITS
            fleet.wait(partial(_has_ended, goal), f"{goal} commits", CATCH_UP_SECONDS)
        fleet.wait_landed(ends(lab.kafka.address, topic), CATCH_UP_SECONDS)
        commits_before = fleet.last
        with fleet.collecting():
            sent_records = Trickle(lab.kafka.address, topic, RATE, partitions).run(SECONDS)
        fleet.wait_landed(ends(lab.kafka.address, topic), CATCH_UP_SECONDS)
    latencies = sorted(_latencies(fleet, topic, watch.seen, sent_records))
    worker.stop()
    counted = [summary for summary in fleet.committed() if summary.number > commits_before]
    percentiles = statistics.quantiles(latencies, n=100)
    return Freshness(
        commits=commits_before,
        records=len(latencies),
        rate=RATE,
        p50=percentiles[49],
        p99=percentiles[98],
        most=latencies[-1],
        transactions=len(counted),
        phases=phases(counted),
        partitions=partitions,
    )


def _age(
    lab: Lab, fleet: Fleet, topic: str, partitions: int, commits: int, report_progress: Callable[[str], None]
) -> None:
    worker = fleet.launch("worker", {"transaction.interval.ms": 10})
    with _producing(lab, topic, partitions, AGEING_RATE):
        while fleet.last < commits:
            goal = min(commits, fleet.last + PROGRESS_EVERY)
            fleet.wait(partial(_has_ended, goal), f"{goal} commits", AGEING_PATIENCE)
            report_progress(f"{fleet.last} of {commits} commits")
    fleet.wait_landed(ends(lab.kafka.address, topic), CATCH_UP_SECONDS)
    worker.stop()


@contextmanager
def _producing(lab: Lab, topic: str, partitions: int, rate: float) -> Iterator[None]:
    """Produces a trickle in a thread while the caller's block runs."""
    ended = threading.Event()
    run = Trickle(lab.kafka.address, topic, rate, partitions).run_until
    thread = threading.Thread(target=run, args=(ended,), name="producing", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _has_ended(goal: int, view: KeeperView) -> bool:
    return any(summary.number >= goal for summary in view.ledger.history)


def _latencies(fleet: Fleet, topic: str, seen: Mapping[str, float], sent_records: Sequence[SentRecord]) -> list[float]:
    """Returns the seconds of each record from its sending to the first commit that covers it."""
    table = fleet.files()
    timeline = read_timeline(table, active_names(table))
    commits = [commit for commit in timeline.commits if fleet.name in commit.checkpoints and commit.instant in seen]
    times = [seen[commit.instant] for commit in commits]
    latencies = []
    by_partition: dict[int, list[SentRecord]] = {}
    for record in sent_records:
        by_partition.setdefault(record.partition, []).append(record)
    for partition, records in by_partition.items():
        covered = [_end(commit.checkpoints[fleet.name].ends, LogPartition(topic, partition)) for commit in commits]
        for record in records:
            index = bisect_right(covered, record.offset)
            if index == len(covered):
                raise Unavailable(f"{topic}-{partition} offset {record.offset} is in no commit that was seen")
            latencies.append(times[index] - record.at)
    return latencies


def _end(ends_by_source: Mapping[LogPartition, object], source: LogPartition) -> int:
    state = ends_by_source.get(source)
    return getattr(state, "end", 0)
