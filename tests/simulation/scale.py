"""Measures what a transaction costs ZooKeeper and the coordinator, from few workers and partitions to many.

`python -m tests.simulation.scale` prints a row for each size; `--docs` also writes `docs/scale.md` and its plot.
The real machines run against ZooKeeper in memory, without faults. Every partition has new records, and each worker
reports the slices of its write task with a write stat as long as a real one. The figures are of the second transaction:
the first one also records the partitions. Every worker reads its view at each change, with the real `Keeper`; write
statuses arrive together. `seconds` is the CPU time of the coordinator's steps and of all reports together.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from random import Random

from coordination.errors import SinkError
from coordination.machines import transactions
from coordination.machines.coordinator import Coordinator
from coordination.planning.config import CoordinatorConfig
from coordination.planning.slicing import Limits
from coordination.planning.write_tasks import TaskSizes
from coordination.state import tree
from coordination.state.messages import (
    Answered,
    Begin,
    Complete,
    Done,
    FileCheck,
    FindExistingFiles,
    KeeperChanged,
    Outcome,
    ReadKeeper,
    ReadLog,
    ReadTable,
    Request,
    Tick,
    Write,
)
from coordination.state.model import Member, Phase, SliceResult, TopicPartition, WriteStatus, WriteTask
from tests.simulation.log import SimLog
from tests.simulation.meter import Meter, MeteredKeeper, MeteredReader
from tests.simulation.reading import reads_of
from tests.simulation.table import NoWatcher, SimTable

SIZES = (
    *((workers, 1_000) for workers in (10, 100, 1_000)),
    *((100, partitions) for partitions in (100, 10_000, 100_000)),
)
RECORDS = 10
CONFIG = "c" * 64
STAT = (
    '{{"fileId": "{0:036d}-0", "path": "{0:036d}-0_0-23-56_20261121134910752.parquet", "partitionPath": "day={0}",'
    ' "prevCommit": "null", "numWrites": 10, "numInserts": 10, "totalWriteBytes": 6775, "fileSizeInBytes": 6775}}'
)
ZNODE_LIMIT = 0xFFFFF
"""ZooKeeper's own default, `jute.maxbuffer`, for a request and for an answer."""
DOCS = Path(__file__).resolve().parents[2] / "docs"


@dataclass(frozen=True, slots=True)
class Cost:
    workers: int
    partitions: int
    multis: int
    operations: int
    written: int
    """Bytes written."""
    reads: int
    """Read requests of the coordinator and all participants."""
    read: int
    """Bytes read."""
    largest_znode: int
    largest_multi: int
    most_children: int
    """Bytes of names in the largest answer to a listing."""
    seconds: float


class Scale:
    """One coordinator at work; every participant reports as soon as a transaction is STARTED."""

    def __init__(self, workers: int, partitions: int) -> None:
        self.workers, self.partitions = workers, partitions
        self.keeper = MeteredKeeper()
        self.keeper.bootstrap(CONFIG)
        self.table = SimTable(NoWatcher())
        self.log = SimLog("cluster")
        for number in range(partitions):
            self.log.add(TopicPartition("orders", number))
        members = [f"worker-{number:04d}:5f0c5f0c5f0c" for number in range(workers)]
        session = self.keeper.open_session()
        for name in members:
            self.keeper.join(Member(name, "host-with-a-name.example.org", 12345, "0.1.0", config=CONFIG), session)
        lock = self.keeper.contend(members[0], session)
        assert lock is not None
        limits = Limits(partitions * RECORDS, RECORDS)
        self._coordinator = Coordinator(
            CoordinatorConfig(
                "orders", members[0], lock, CONFIG, ("orders",), limits, 1.0, 300.0, task_sizes=TaskSizes(least=1)
            )
        )
        self._reader = MeteredReader(self.keeper)
        self._participants = {name: MeteredReader(self.keeper) for name in members}
        self._request: Request | None = None
        self._at = 0.0
        self._largest = self._children = 0
        self.seconds = 0.0

    def cost(self) -> Cost:
        self._commit(1)
        meter = self.keeper.meter = Meter()
        self.seconds = 0.0
        self._largest = self._children = 0
        self._commit(2)
        return Cost(
            self.workers,
            self.partitions,
            meter.multis,
            meter.operations,
            meter.written,
            meter.reads,
            meter.read,
            self._largest,
            meter.largest_multi,
            self._children,
            round(self.seconds, 3),
        )

    def _commit(self, number: int) -> None:
        chance = Random(number)
        for source in self.log.partitions:
            self.log.grow(chance, source, RECORDS, 0.0)
        while self._view().ledger.committed < number:
            if self._request is None:
                self._at += 1.0
                self._report()
                effects = self._step(KeeperChanged(self._at)) or self._step(Tick(self._at, self._at))
            else:
                effects = self._step(Answered(self._at, self._request.id, self._perform(self._request)))
            self._request = next((effect for effect in effects if isinstance(effect, Request)), None)
            self._let_participants_read()
            self._largest = max(self._largest, self.keeper.largest_znode())
            self._children = max(self._children, self.keeper.most_children())

    def _step(self, event: object) -> list[object]:
        began = time.process_time()
        effects = self._coordinator.step(event)  # type: ignore[arg-type]
        self.seconds += time.process_time() - began
        return effects  # type: ignore[return-value]

    def _let_participants_read(self) -> None:
        for name, reader in self._participants.items():
            if reader.stale:
                reader.stale = False
                reader.keeper.participant_view(name)

    def _view(self) -> tree.KeeperView:
        return self.keeper.view(self.keeper.latest)

    def _perform(self, request: Request) -> Outcome:
        match request.operation:
            case ReadKeeper():
                began = time.process_time()
                view = self._reader.keeper.read()
                self.seconds += time.process_time() - began
                return Done(view)
            case ReadTable(instants=instants):
                return Done(self.table.view(instants))
            case ReadLog(topics, pattern, unfinished):
                return Done(self.log.view(topics, pattern, unfinished))
            case Write(ops=ops):
                self.keeper.write(ops)
                return Done()
            case Begin(number=number, epoch=epoch):
                return self.table.begin(number, epoch, None)
            case FindExistingFiles():
                return Done(FileCheck())
            case Complete():
                return self.table.complete(replace(request.operation, stats=()))
            case _:
                raise SinkError(f"no machine asks for this without faults: {request.operation}")

    def _report(self) -> None:
        for t in self._view().transactions:
            if t.header.phase is Phase.STARTED and transactions.is_plan_intact(t):
                for incarnation, tasks in t.plan.tasks.items():
                    if incarnation not in t.statuses:
                        self._write_status(t.header.number, incarnation, tasks)

    def _write_status(self, number: int, incarnation: str, tasks: Sequence[WriteTask]) -> None:
        began = time.process_time()
        results = tuple(SliceResult(piece, *self.log.read(piece)) for task in tasks for piece in task.slices)
        stats = tuple(STAT.format(task.slices[0].partition) for task in tasks)
        reads = tuple(read for task in tasks for read in reads_of(task, self.log))
        status = WriteStatus(number, incarnation, results, stats, size=100 * len(results), reads=reads)
        *pieces, last = tree.status_ops(status)
        groups = [group for group in tree.batched(pieces, [last]) if group]
        self.seconds += time.process_time() - began
        for group in groups:
            self.keeper.write(group)


def costs(sizes: Iterable[tuple[int, int]] = SIZES) -> Iterator[Cost]:
    for workers, partitions in sizes:
        yield Scale(workers, partitions).cost()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", action="store_true", help="write docs/scale.md and docs/scale.png")
    options = parser.parse_args()
    print(*(field.name for field in fields(Cost)), sep="\t")
    measured = []
    for cost in costs():
        measured.append(cost)
        print(*asdict(cost).values(), sep="\t", flush=True)
    if options.docs:
        (DOCS / "scale.md").write_text(_page(measured))
        _draw(measured, DOCS / "scale.png")
    return 0


def _page(costs: Sequence[Cost]) -> str:
    headings = [field.name.replace("_", " ") for field in fields(Cost)]
    rows = [[f"{value:,}" for value in asdict(cost).values()] for cost in costs]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, ["---:"] * len(headings), *rows))
    return f"""\
# Scale

Written by `python -m tests.simulation.scale --docs`: do not edit.

What one transaction costs ZooKeeper and the protocol, simulated: the machines that the workers run, against ZooKeeper
in memory. Every partition has new records; every worker has a write task and reports its slices with a Hudi write stat
of real length. `reads` are requests of the coordinator and all participants; `written` and `read` are bytes; `seconds`
is CPU time of the coordinator and all reports. ZooKeeper refuses more than {ZNODE_LIMIT:,} bytes at once: larger
contents are cut. A worker costs 15 to 24 reads: five more where a plan no longer fits into one multi. Real topics of
up to 1,024 partitions are in the [benchmarks](benchmarks.md#by-number-of-partitions).

{table}

![Cost of a transaction by partitions and by workers](scale.png)
"""


def _draw(costs: Sequence[Cost], path: Path) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4))
    for axis, (varied, fixed) in zip(axes, (("partitions", "workers"), ("workers", "partitions")), strict=True):
        constant = Counter(getattr(cost, fixed) for cost in costs).most_common(1)[0][0]
        selected = (cost for cost in costs if getattr(cost, fixed) == constant)
        line = sorted(selected, key=lambda cost: getattr(cost, varied))
        for figure_name, label in (("written", "MB written"), ("operations", "operations"), ("seconds", "seconds")):
            values = [getattr(cost, figure_name) / (1e6 if figure_name == "written" else 1) for cost in line]
            axis.loglog([getattr(cost, varied) for cost in line], values, marker="o", label=label)
        axis.set_xlabel(f"{varied} ({constant:,} {fixed})")
        axis.grid(visible=True, alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    sys.exit(main())
