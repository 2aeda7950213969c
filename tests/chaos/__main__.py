"""`python -m tests.chaos --seconds 3600 --seed 1`: a fleet under load while everything breaks, then an audit.

Faults follow one another, or come two at once, drawn from the seed. After each fault the table has to get another
commit. In the end everything is repaired, the load stops, and an auditor that shares no code with the sink compares the
table and the errors table with the events that Kafka acknowledged. `--kind` says what is landed: appended events, or
changes of rows by key. `history.jsonl` records the run, a line an event; `--audit DIRECTORY` audits a kept run again.
Exit status 1 if anything was lost or duplicated, the table stood still, or too little happened.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from random import Random
from typing import Any

from tests.chaos.arena import Arena
from tests.chaos.faults import FAULTS, FAULTS_OF_A_STORE
from tests.chaos.nemesis import Fault
from tests.chaos.points import OPTIONAL_POINTS, kill_at_failpoint, points, shuffled_rounds
from tests.chaos.shape import APPEND, BAD, INDEXES, KINDS, MANY, Shape
from tests.chaos.stores import DISK, STORES
from tests.jvm import start_fast

HISTORY = "history.jsonl"
Weighted = tuple[tuple[Fault, int], ...]


class History:
    """The events of a run, a line each, in a file that its `with` block closes."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)
        self._began = time.time()

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def record(self, event: str, **fields: object) -> None:
        line = {"seconds": round(time.time() - self._began, 1), "event": event, **fields}
        self._file.write(json.dumps(line) + "\n")
        print(f"{line['seconds']:8.1f}  {event}  " + ", ".join(f"{k} {v}" for k, v in fields.items()), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600, help="how long faults go on (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time")
    failpoints_help = "instead: SIGKILL at every failpoint, once each, or at those whose names begin so"
    parser.add_argument("--failpoints", nargs="*", metavar="NAME", help=failpoints_help)
    parser.add_argument("--workers", type=int, default=3)
    kind_help = "default: %(default)s; many: ten sinks in one fleet, one of them poisoned"
    parser.add_argument("--kind", choices=(*KINDS, MANY), default=APPEND, help=kind_help)
    store_help = "where the tables are: s3 is moto's server, or TEST_S3's, behind proxies; hdfs a minicluster"
    parser.add_argument("--store", choices=STORES, default=DISK, help=store_help)
    bad_help = "one record of so many is bad; 0: none (default: %(default)s)"
    parser.add_argument("--bad", type=int, default=BAD, help=bad_help)
    parser.add_argument("--services", action=argparse.BooleanOptionalAction, help="default: drawn from the seed")
    evolves_help = "whether the table gets columns, and wider ones; default: drawn from the seed"
    parser.add_argument("--evolves", action=argparse.BooleanOptionalAction, help=evolves_help)
    shared_help = "whether another job writes to the table, too; default: drawn from the seed"
    parser.add_argument("--shared", action=argparse.BooleanOptionalAction, help=shared_help)
    brokers_help = "three are a cluster with unclean elections, beside another one (default: %(default)s)"
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help=brokers_help)
    parser.add_argument("--index", choices=INDEXES, help="of upserts; default: drawn from the seed")
    parser.add_argument("--directory", type=Path, help="keep table, history and logs there")
    parser.add_argument("--audit", type=Path, help="only audit the run that was kept there")
    options = parser.parse_args()
    start_fast()
    # A run that is ended from outside keeps its history and logs too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if options.audit:
        return _audit(options.audit)[0]
    directory = options.directory or Path(tempfile.mkdtemp(prefix="sink-chaos-"))
    print(f"seed {options.seed}, in {directory}")
    if options.kind == MANY:
        # Imported here: it takes its history and its draws from this module.
        from tests.chaos.many import run_many

        return run_many(directory, options.seed, options.seconds, options.workers, options.bad)
    chance = Random(options.seed)
    shape = Shape.draw(
        options.kind, chance, options.bad, options.services, options.index, options.evolves, options.shared
    )
    shape = replace(shape, store=options.store, brokers=options.brokers)
    faults = random_faults(chance, options.seconds, FAULTS if options.store == DISK else FAULTS_OF_A_STORE)
    minimum = Minimum.of_seconds(options.seconds)
    plan = Plan(shape, points(shape), faults, minimum, options.workers)
    if options.failpoints is not None:
        chosen = tuple(point for point in plan.points if point.startswith(tuple(options.failpoints or [""])))
        plan = replace(plan, points=chosen, faults=[kill_at_failpoint] * len(chosen), minimum=Minimum.of_points(chosen))
    return run(directory, chance, plan)


def random_faults(chance: Random, seconds: float, faults: Weighted = FAULTS) -> Iterator[Fault]:
    """Yields faults by their weights, for `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield chance.choices(*zip(*faults, strict=True))[0]


@dataclass(frozen=True)
class Minimum:
    """A run in which less than this happened proves nothing."""

    faults: int
    takeovers: int
    commits: int
    points: int = 0

    @classmethod
    def of_seconds(cls, seconds: float) -> Minimum:
        faults = int(seconds / 120)
        return cls(faults, faults // 6, 5 * faults // 2)

    @classmethod
    def of_points(cls, all_points: Collection[str]) -> Minimum:
        """Every point has to fire, except those that no run can promise."""
        required = len(set(all_points) - set(OPTIONAL_POINTS))
        return cls(required, required // 2, required, required)


@dataclass(frozen=True)
class Plan:
    shape: Shape
    points: Sequence[str]
    """Failpoints, which the run goes through in random order."""
    faults: Iterable[Fault]
    minimum: Minimum
    workers: int = 3


def run(directory: Path, chance: Random, plan: Plan) -> int:
    """Returns the exit status."""
    directory.mkdir(parents=True, exist_ok=True)
    with History(directory / HISTORY) as history:
        return _run(directory, chance, plan, history)


def _run(directory: Path, chance: Random, plan: Plan, history: History) -> int:
    history.record("begin", workers=plan.workers, **asdict(plan.shape))
    outcome: dict[str, Any] = {}
    failpoints = shuffled_rounds(plan.points, chance)
    with Arena(directory, plan.workers, plan.shape, chance.getrandbits(32), failpoints) as arena:
        try:
            outcome = _break(arena, chance, plan.faults, history)
            arena.workload.stop()
            arena.fleet.wait_landed(arena.workload.end_offsets, 600)
            outcome["halted"] = arena.halted()
            outcome |= arena.compare_contents()
        except AssertionError as error:
            outcome["failed"] = str(error)
        finally:
            # From here on no worker changes the tables, so that the copy can be inspected.
            arena.kill_workers()
            arena.table_store.fetch(directory)
        commits, fired, longest = len(arena.commits), len(arena.fired), arena.longest_without_commit
        sent, unsure, rewritten = arena.workload.acknowledged, arena.workload.unsure, arena.rewritten
        unfired = sorted(set(plan.points) - arena.fired)
    status, report = _audit(directory)
    totals = {"commits": commits, "longest_without_commit": round(longest, 1), "rewritten": rewritten, "sent": sent}
    history.record("end", **outcome, **totals, **report, unsure=unsure, points_fired=fired, points_never_fired=unfired)
    required_fired = len(arena.fired - set(OPTIONAL_POINTS))
    happened = Minimum(outcome.get("faults", 0), outcome.get("takeovers", 0), commits, required_fired)
    if any(getattr(happened, field.name) < getattr(plan.minimum, field.name) for field in fields(Minimum)):
        print(f"too little happened, this proves nothing: {happened}, wanted {plan.minimum}")
        return 1
    if unsure:
        print(f"{unsure} events were neither acknowledged nor refused by Kafka, this proves nothing")
        return 1
    print(f"sink audit --content: {outcome.get('contents')} {outcome.get('contradictions')}")
    wrong = outcome.get("failed") or outcome.get("halted") or not outcome.get("held")
    return 1 if wrong or report["acknowledged"] != sent else status


def _break(arena: Arena, chance: Random, faults: Iterable[Fault], history: History) -> dict[str, Any]:
    """Performs one fault after another. Returns how many of each, and how long the table stood still."""
    performed: Counter[str] = Counter()
    longest: dict[str, float] = {}
    takeovers = 0
    arena.await_commit(0.0)
    for fault in faults:
        name, began, epoch = fault.__name__, time.time(), arena.epoch()
        history.record("fault", name=name)
        description = fault(arena, chance)
        if description is None:
            history.record("not done")
            continue
        performed[name] += 1
        arena.revive()
        standstill = round(arena.await_commit(time.time()) - began, 1)
        takeovers += max(0, arena.epoch() - epoch)
        longest[name] = max(longest.get(name, 0.0), standstill)
        history.record("moved on", done=description, after=standstill, epoch=arena.epoch())
        time.sleep(chance.uniform(0, 3))
    by_fault = {"by_fault": dict(performed), "longest_by_fault": longest}
    return {"faults": performed.total(), "takeovers": takeovers, **by_fault}


def _audit(directory: Path) -> tuple[int, dict[str, object]]:
    command = [sys.executable, "-m", "tests.chaos.auditor", str(directory)]
    auditor = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    report = json.loads(auditor.stdout)
    print(f"audit: {report}")
    return auditor.returncode, report


if __name__ == "__main__":
    sys.exit(main())
