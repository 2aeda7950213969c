"""`python -m tests.chaos --seconds 3600 --seed 1`: a fleet under load while everything breaks, then an audit.

Faults follow one another, drawn from the seed. After each the table has to move on. In the end everything is made
whole, the load stops, and an auditor that shares no code with the sink holds the table against the events that Kafka
acknowledged. What happened is in `history.jsonl`, a line an event; `--audit DIRECTORY` audits a kept run again. Exit
status 1 if anything was lost or duplicated, the table stood still, or too little happened.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random
from typing import Any

from tests.chaos.arena import ACKNOWLEDGED, Arena
from tests.chaos.nemesis import FAULTS, POINTS, SELDOM, Fault, dealt, kill_at_failpoint
from tests.jvm import start_fast

HISTORY = "history.jsonl"


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
    parser.add_argument("--failpoints", action="store_true", help="instead: SIGKILL at every failpoint, once each")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="keep table, history and logs there")
    parser.add_argument("--audit", type=Path, help="only audit the run that was kept there")
    options = parser.parse_args()
    start_fast()
    # Ended from outside: what there is of it is kept too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if options.audit:
        return _audit(options.audit / "table", options.audit / ACKNOWLEDGED)[0]
    directory = options.directory or Path(tempfile.mkdtemp(prefix="sink-chaos-"))
    print(f"seed {options.seed}, in {directory}")
    chance = Random(options.seed)
    if options.failpoints:
        return run(directory, chance, options.workers, [kill_at_failpoint] * len(POINTS), Least.of_points())
    return run(directory, chance, options.workers, drawn(chance, options.seconds), Least.of_seconds(options.seconds))


def drawn(chance: Random, seconds: float) -> Iterator[Fault]:
    """Faults by their weights, for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield chance.choices(*zip(*FAULTS, strict=True))[0]


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
    def of_points(cls) -> Least:
        """Each has to fire, but for those that no run can promise."""
        points = len(POINTS) - len(SELDOM)
        return cls(points, points // 2, points, points)


def run(directory: Path, chance: Random, workers: int, faults: Iterable[Fault], least: Least) -> int:
    """Returns the exit status."""
    directory.mkdir(parents=True, exist_ok=True)
    history = History(directory / HISTORY)
    in_flight = chance.choice((1, 2))
    history.say("begin", workers=workers, in_flight=in_flight)
    told: dict[str, Any] = {}
    with Arena(directory, workers, in_flight, dealt(POINTS, chance)) as arena:
        try:
            told = _break(arena, chance, faults, history)
            arena.workload.stop()
            arena.fleet.wait_landed(arena.workload.ends, 600)
            told["halted"] = arena.halted()
        except AssertionError as stood_still:
            told["failed"] = str(stood_still)
        finally:
            # Nobody changes the table any more, and what is wrong with it can be looked at.
            arena.stop_workers()
            shutil.copytree(arena.fleet.table, directory / "table")
        commits, fired, longest = len(arena.commits), len(arena.fired), arena.longest_without_commit
        sent, never = arena.workload.acknowledged, sorted(set(POINTS) - arena.fired)
    status, report = _audit(directory / "table", directory / ACKNOWLEDGED)
    totals = {"commits": commits, "longest_without_commit": round(longest, 1), "sent": sent}
    history.say("end", **told, **totals, **report, points_fired=fired, points_never_fired=never)
    happened = Least(told.get("faults", 0), told.get("takeovers", 0), commits, fired)
    if any(getattr(happened, each.name) < getattr(least, each.name) for each in fields(Least)):
        print(f"too little happened, this proves nothing: {happened}, wanted {least}")
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


def _audit(table: Path, acknowledged: Path) -> tuple[int, dict[str, object]]:
    command = [sys.executable, "-m", "tests.chaos.auditor", str(table), str(acknowledged)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    report = json.loads(done.stdout)
    print(f"audit: {report}")
    return done.returncode, report


if __name__ == "__main__":
    sys.exit(main())
