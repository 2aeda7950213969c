"""`python -m tests.chaos --seconds 3600 --seed 1`: a fleet under load while everything breaks, then an audit.

Faults follow one another, some at once, drawn from the seed. After each the table has to move on. In the end
everything is made whole, the load stops, and an auditor that shares no code with the sink holds the table against
the events that Kafka acknowledged. What happened is in `history.jsonl`, a line an event; `--audit DIRECTORY` audits
a kept run again. Exit status 1 if anything was lost or duplicated, the table stood still, or too little happened.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

from tests.chaos.arena import ACKNOWLEDGED, Arena
from tests.chaos.nemesis import FAULTS, POINTS, Fault, dealt, kill_at_failpoint
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
    if options.audit:
        return _audit(options.audit / "table", options.audit / ACKNOWLEDGED)[0]
    directory = options.directory or Path(tempfile.mkdtemp(prefix="sink-chaos-"))
    print(f"seed {options.seed}, in {directory}")
    chance = Random(options.seed)
    faults: Iterable[Fault] = drawn(chance, options.seconds)
    least = options.seconds / 120
    if options.failpoints:
        faults, least = [kill_at_failpoint] * len(POINTS), len(POINTS)
    return run(directory, chance, options.workers, faults, least)


def drawn(chance: Random, seconds: float) -> Iterator[Fault]:
    """Faults by their weights, for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield chance.choices(*zip(*FAULTS, strict=True))[0]


def run(directory: Path, chance: Random, workers: int, faults: Iterable[Fault], least: float) -> int:
    """`least` faults have to happen. Returns the exit status."""
    directory.mkdir(parents=True, exist_ok=True)
    history = History(directory / HISTORY)
    happened: Counter[str] = Counter()
    longest: dict[str, float] = {}
    takeovers = 0
    in_flight = chance.choice((1, 2))
    history.say("begin", workers=workers, in_flight=in_flight)
    with Arena(directory, workers, in_flight, dealt(POINTS, chance)) as arena:
        arena.await_commit(0.0)
        for fault in faults:
            name, began, epoch = fault.__name__, time.time(), arena.epoch()
            history.say("fault", name=name)
            done = fault(arena, chance)
            happened[name] += 1
            arena.revive()
            stood = round(arena.await_commit(time.time()) - began, 1)
            takeovers += arena.epoch() > epoch
            longest[name] = max(longest.get(name, 0.0), stood)
            history.say("moved on", done=done, after=stood, epoch=arena.epoch())
            time.sleep(chance.uniform(0, 3))
        arena.workload.stop()
        arena.fleet.wait_landed(arena.workload.ends, 600)
        halted, commits, sent = arena.halted(), len(arena.commits), arena.workload.acknowledged
        shutil.copytree(arena.fleet.table, directory / "table")
    status, report = _audit(directory / "table", directory / ACKNOWLEDGED)
    totals = {"faults": happened.total(), "takeovers": takeovers, "commits": commits, "sent": sent, "halted": halted}
    never = sorted(set(POINTS) - arena.fired)
    by_fault = {"by_fault": dict(happened), "longest_by_fault": longest}
    history.say("end", **totals, **report, **by_fault, points_fired=len(arena.fired), points_never_fired=never)
    if happened.total() < least or commits < 5 * least or takeovers < least // 6:
        print("too little happened: this proves nothing")
        return 1
    return 1 if halted else status


def _audit(table: Path, acknowledged: Path) -> tuple[int, dict[str, object]]:
    command = [sys.executable, "-m", "tests.chaos.auditor", str(table), str(acknowledged)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    report = json.loads(done.stdout)
    print(f"audit: {report}")
    return done.returncode, report


if __name__ == "__main__":
    sys.exit(main())
