"""`python -m tests.chaos --seconds 3600 --seed 1`: a fleet under load while everything breaks, then an audit.

Faults follow one another, or come two at once, drawn from the seed. After each the table has to move on. In the end
everything is made whole, the load stops, and an auditor that shares no code with the sink holds the table, and the
errors table, against the events that Kafka acknowledged. `--kind` is what is landed: appended events, or changes of
rows by key. What happened is in `history.jsonl`, a line an event; `--audit DIRECTORY` audits a kept run again. Exit
status 1 if anything was lost or duplicated, the table stood still, or too little happened.
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
from tests.chaos.points import SELDOM, dealt, kill_at_failpoint, points
from tests.chaos.shape import APPEND, BAD, INDEXES, KINDS, MANY, Shape
from tests.chaos.stores import DISK, STORES
from tests.jvm import start_fast

HISTORY = "history.jsonl"
Weighted = tuple[tuple[Fault, int], ...]


class History:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)
        self._began = time.time()

    def say(self, event: str, **fields: object) -> None:
        line = {"seconds": round(time.time() - self._began, 1), "event": event, **fields}
        self._file.write(json.dumps(line) + "\n")
        print(f"{line['seconds']:8.1f}  {event}  " + ", ".join(f"{k} {v}" for k, v in fields.items()), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600, help="how long faults go on (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time")
    about_points = "instead: SIGKILL at every failpoint, once each, or at those whose names begin so"
    parser.add_argument("--failpoints", nargs="*", metavar="NAME", help=about_points)
    parser.add_argument("--workers", type=int, default=3)
    about_kind = "default: %(default)s; many: ten sinks in one fleet, one of them poisoned"
    parser.add_argument("--kind", choices=(*KINDS, MANY), default=APPEND, help=about_kind)
    about_store = "where the tables are: s3 is moto's server, or SINK_TEST_S3's, behind proxies; hdfs a minicluster"
    parser.add_argument("--store", choices=STORES, default=DISK, help=about_store)
    about_bad = "one of so many records is; 0: none (default: %(default)s)"
    parser.add_argument("--bad", type=int, default=BAD, help=about_bad)
    parser.add_argument("--services", action=argparse.BooleanOptionalAction, help="default: drawn from the seed")
    parser.add_argument("--index", choices=INDEXES, help="of upserts; default: drawn from the seed")
    parser.add_argument("--directory", type=Path, help="keep table, history and logs there")
    parser.add_argument("--audit", type=Path, help="only audit the run that was kept there")
    options = parser.parse_args()
    start_fast()
    # Ended from outside: what there is of it is kept too.
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
    shape = Shape.drawn(options.kind, chance, options.bad, options.services, options.index)
    shape = replace(shape, store=options.store)
    faults = drawn(chance, options.seconds, FAULTS if options.store == DISK else FAULTS_OF_A_STORE)
    least = Least.of_seconds(options.seconds)
    plan = Plan(shape, points(shape), faults, least, options.workers)
    if options.failpoints is not None:
        named = tuple(point for point in plan.points if point.startswith(tuple(options.failpoints or [""])))
        plan = replace(plan, points=named, faults=[kill_at_failpoint] * len(named), least=Least.of_points(named))
    return run(directory, chance, plan)


def drawn(chance: Random, seconds: float, faults: Weighted = FAULTS) -> Iterator[Fault]:
    """Faults by their weights, for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield chance.choices(*zip(*faults, strict=True))[0]


@dataclass(frozen=True)
class Least:
    """A run in which less than this happened proves nothing."""

    faults: int
    takeovers: int
    commits: int
    points: int = 0

    @classmethod
    def of_seconds(cls, seconds: float) -> Least:
        faults = int(seconds / 120)
        return cls(faults, faults // 6, 5 * faults // 2)

    @classmethod
    def of_points(cls, all_points: Collection[str]) -> Least:
        """Each has to fire, but for those that no run can promise."""
        fire = len(set(all_points) - set(SELDOM))
        return cls(fire, fire // 2, fire, fire)


@dataclass(frozen=True)
class Plan:
    shape: Shape
    points: Sequence[str]
    """Failpoints, to be dealt."""
    faults: Iterable[Fault]
    least: Least
    workers: int = 3


def run(directory: Path, chance: Random, plan: Plan) -> int:
    """Returns the exit status."""
    directory.mkdir(parents=True, exist_ok=True)
    history = History(directory / HISTORY)
    history.say("begin", workers=plan.workers, **asdict(plan.shape))
    told: dict[str, Any] = {}
    with Arena(directory, plan.workers, plan.shape, chance.getrandbits(32), dealt(plan.points, chance)) as arena:
        try:
            told = _break(arena, chance, plan.faults, history)
            arena.workload.stop()
            arena.fleet.wait_landed(arena.workload.ends, 600)
            told["halted"] = arena.halted()
        except AssertionError as stood_still:
            told["failed"] = str(stood_still)
        finally:
            # Nobody changes the tables any more, and what is wrong with them can be looked at.
            arena.kill_workers()
            arena.place.fetch(directory)
        commits, fired, longest = len(arena.commits), len(arena.fired), arena.longest_without_commit
        sent, unsure, rewritten = arena.workload.acknowledged, arena.workload.unsure, arena.rewritten
        never = sorted(set(plan.points) - arena.fired)
    status, report = _audit(directory)
    totals = {"commits": commits, "longest_without_commit": round(longest, 1), "rewritten": rewritten, "sent": sent}
    history.say("end", **told, **totals, **report, unsure=unsure, points_fired=fired, points_never_fired=never)
    happened = Least(told.get("faults", 0), told.get("takeovers", 0), commits, len(arena.fired - set(SELDOM)))
    if any(getattr(happened, each.name) < getattr(plan.least, each.name) for each in fields(Least)):
        print(f"too little happened, this proves nothing: {happened}, wanted {plan.least}")
        return 1
    if unsure:
        print(f"of {unsure} events Kafka has not said whether it has them, this proves nothing")
        return 1
    return 1 if told.get("failed") or told.get("halted") or report["acknowledged"] != sent else status


def _break(arena: Arena, chance: Random, faults: Iterable[Fault], history: History) -> dict[str, Any]:
    """One fault after another. Returns what happened."""
    happened: Counter[str] = Counter()
    longest: dict[str, float] = {}
    takeovers = 0
    arena.await_commit(0.0)
    for fault in faults:
        name, began, epoch = fault.__name__, time.time(), arena.epoch()
        history.say("fault", name=name)
        done = fault(arena, chance)
        if done is None:
            history.say("not done")
            continue
        happened[name] += 1
        arena.revive()
        stood = round(arena.await_commit(time.time()) - began, 1)
        takeovers += max(0, arena.epoch() - epoch)
        longest[name] = max(longest.get(name, 0.0), stood)
        history.say("moved on", done=done, after=stood, epoch=arena.epoch())
        time.sleep(chance.uniform(0, 3))
    by_fault = {"by_fault": dict(happened), "longest_by_fault": longest}
    return {"faults": happened.total(), "takeovers": takeovers, **by_fault}


def _audit(directory: Path) -> tuple[int, dict[str, object]]:
    command = [sys.executable, "-m", "tests.chaos.auditor", str(directory)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    report = json.loads(done.stdout)
    print(f"audit: {report}")
    return done.returncode, report


if __name__ == "__main__":
    sys.exit(main())
