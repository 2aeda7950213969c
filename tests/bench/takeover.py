"""How long a table stands still when a worker dies: from its SIGKILL to the next commit that is visible.

`python -m tests.bench.takeover --kills 50` runs a fleet at a trickle, kills the coordinator of a PREPARED transaction,
the coordinator of a STARTED one, and a participant that is writing, in turn, each time with its JVM, and starts the
dead one again. `--storage s3` does it on an S3 server with a delay added to each request. It kills no worker before
every worker's process has led, or rehearsed it. It prints each death with the steps that the surviving worker logged,
p50 and p99 by kind, and ends with an audit; a run whose audit fails has no figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path

from coordination.state.model import Phase
from coordination.state.tree import KeeperView, Transaction
from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.bench.freshness import Watch
from tests.bench.lake_store import LakeStore, StoreWatch, add_storage_options, storage
from tests.bench.orders import DDL, PARTITIONS, create_topic, ends
from tests.bench.trickle import Trickle
from tests.fleet import Fleet
from tests.waiting import eventually
from tests.workers import WorkerProcess

RATE = 500
TOPIC = "takeover"
WORKERS = ("w1", "w2")


class Kind(Enum):
    COMMITTING = "coordinator, PREPARED"
    WRITING = "coordinator, STARTED"
    PARTICIPANT = "participant, STARTED"

    @property
    def phase(self) -> Phase:
        return Phase.PREPARED if self is Kind.COMMITTING else Phase.STARTED


@dataclass(frozen=True, slots=True)
class Death:
    """`seconds` from the kill to the next visible commit, and to each step before it; `outcome` of the transaction that
    was open.
    """

    kind: str
    outcome: str
    seconds: float
    steps: Mapping[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=51)
    parser.add_argument("--session", type=int, default=6000, help="zookeeper.session.timeout.ms (default: %(default)s)")
    parser.add_argument("--report", type=Path, help="write every death to this file, as JSON")
    add_storage_options(parser)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="sink-takeover-") as directory,
        storage(Path(directory), options) as store,
    ):
        deaths, audit_line = _run(Path(directory), options.kills, options.session, store)
    for kind in Kind:
        _print_seconds(kind, options.session, [death for death in deaths if death.kind == kind.value])
    print(f"audit: {audit_line}")
    if options.report:
        options.report.write_text(json.dumps([asdict(death) for death in deaths], indent=1))
    return 0 if audit_line.startswith("held") else 1


def _run(directory: Path, kills: int, session_ms: int, store: LakeStore | None) -> tuple[list[Death], str]:
    with ZooKeeperServer(directory / "zookeeper") as zookeeper, KafkaServer(directory / "kafka") as kafka:
        create_topic(kafka.address, TOPIC)
        settings = {
            "schema.ddl": DDL,
            "zookeeper.session.timeout.ms": session_ms,
            "transaction.interval.ms": 1000,
            "flush.size": 1_000_000,
            "slice.records": 1_000_000,
            "spark.driver.extraJavaOptions": "",
            "worker.rehearsal": True,
            **(store.table_settings() if store else {}),
        }
        with closing(Fleet(directory / "fleet", zookeeper.address, kafka.address, TOPIC, settings)) as fleet:
            deaths = _kill_all(fleet, kafka.address, kills, store)
            produced = ends(kafka.address, TOPIC)
            fleet.wait_landed(produced)
            report = fleet.audit()
    rows = sum(produced.values())
    held = report.held and report.rows == rows
    verdict = "held" if held else "NOT HELD"
    return deaths, f"{verdict}: {report.rows} rows of {rows} records, each exactly once, after {len(deaths)} deaths"


def _kill_all(fleet: Fleet, bootstrap: str, kills: int, store: LakeStore | None) -> list[Death]:
    """Kills the kinds in turn, under a trickle that has ended when this returns."""
    ended = threading.Event()
    producer_thread = threading.Thread(target=Trickle(bootstrap, TOPIC, RATE).run_until, args=(ended,))
    producer_thread.start()
    try:
        log_starts = {name: _start(fleet, name) for name in WORKERS}
        fleet.wait("a commit", lambda view: bool(view.ledger.history))
        with StoreWatch(store) if store else Watch(fleet.table) as watch:
            return [_kill(fleet, watch, list(Kind)[number % len(Kind)], log_starts) for number in range(kills)]
    finally:
        ended.set()
        producer_thread.join()


def _start(fleet: Fleet, name: str) -> int:
    """Starts a worker. Returns where its log begins."""
    begin = len(fleet.log(name))
    fleet.start(name)
    return begin


def _is_warm(log: str) -> bool:
    return "worker.rehearsed" in log or "coordinator.elected" in log


def _kill(fleet: Fleet, watch: Watch | StoreWatch, kind: Kind, log_starts: dict[str, int]) -> Death:
    """Kills one worker, waits for the next visible commit, and starts the worker again."""
    fleet.wait("the whole fleet", lambda view: len(view.members) == len(WORKERS) and _all_take_part(view))
    eventually(
        "warm",
        lambda: all(_is_warm(fleet.log(name)[log_start:]) for name, log_start in log_starts.items()),
        240,
        fleet.logs,
    )
    while True:
        view = fleet.wait(kind.value, lambda view: _open_transaction(view, kind.phase) is not None)
        transaction = _open_transaction(view, kind.phase)
        victim = _victim(fleet, view, kind)
        if transaction is not None and victim is not None:
            break
    killed_at = time.time()
    victim.kill()
    eventually("a commit", lambda: any(seen > killed_at for seen in list(watch.seen.values())), 240, fleet.logs)
    seconds = min(seen for seen in list(watch.seen.values()) if seen > killed_at) - killed_at
    outcome = "committed" if transaction.header.instant in watch.seen else "aborted"
    if outcome == "committed" and watch.seen[str(transaction.header.instant)] <= killed_at:
        outcome = "committed before the kill"
    [survivor] = set(WORKERS) - {victim.name}
    death = Death(kind.value, outcome, seconds, _steps(fleet.log(survivor), killed_at, killed_at + seconds))
    steps = ", ".join(f"{step} {after:.1f}" for step, after in death.steps.items())
    print(
        f"{time.strftime('%H:%M:%S')} {victim.name}: {death.kind}, {death.outcome}: {seconds:.1f} s ({steps})",
        flush=True,
    )
    log_starts[victim.name] = _start(fleet, victim.name)
    return death


def _steps(log: str, start: float, end: float) -> dict[str, float]:
    """Returns the first event of each kind that the coordinator logged from `start` to `end`, in seconds since."""
    steps: dict[str, float] = {}
    for line in log.splitlines():
        event = json.loads(line)
        at = datetime.fromisoformat(event["timestamp"].replace("Z", "+00:00")).timestamp()
        if start < at < end and event["event"].startswith(("coordinator.", "transaction.")):
            steps.setdefault(" ".join((event["event"].partition(".")[2], event.get("phase", ""))).strip(), at - start)
    return steps


def _open_transaction(view: KeeperView, phase: Phase) -> Transaction | None:
    return next((t for t in view.transactions if t.header.phase is phase), None)


def _all_take_part(view: KeeperView) -> bool:
    return any(len(t.plan.slices) == len(WORKERS) for t in view.transactions)


def _victim(fleet: Fleet, view: KeeperView, kind: Kind) -> WorkerProcess | None:
    if view.coordinator is None:
        return None
    coordinator = view.coordinator.rpartition(":")[0]
    wanted = [name for name in WORKERS if (name == coordinator) is (kind is not Kind.PARTICIPANT)]
    return fleet.workers[wanted[0]] if wanted else None


def _print_seconds(kind: Kind, session_ms: int, deaths: Iterable[Death]) -> None:
    outcomes: dict[str, list[float]] = {}
    for death in deaths:
        outcomes.setdefault(death.outcome, []).append(death.seconds)
    for outcome, seconds in sorted(outcomes.items()):
        ordered = sorted(seconds)
        p99 = statistics.quantiles(ordered, n=100, method="inclusive")[98] if len(ordered) > 1 else ordered[0]
        print(
            f"{kind.value}, {outcome}: {len(ordered)} deaths, p50 {statistics.median(ordered):.1f} s, p99 {p99:.1f} s"
            f" (session time-out {session_ms / 1000:g} s, {PARTITIONS} partitions, {RATE} records/s)"
        )


if __name__ == "__main__":
    sys.exit(main())
