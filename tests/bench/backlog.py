"""`python -m tests.bench.backlog`: one worker with the recommended heap, and a wide topic with records of all sizes.

Every 20,000th waiting record has 5 MB, and the table has 8 partitions. All other settings are the defaults. It prints
whether all records landed, how many transactions were aborted, and how much memory the worker's processes took.
`python -m tests.bench` runs it too, and puts the result into the docs. Exit status: 0 when all landed, else 1.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from coordination.errors import SinkError, Unavailable
from coordination.state.model import Phase
from coordination.state.tree import Summary
from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.bench.cases import TABLE_PARTITIONS
from tests.bench.fleet import Fleet
from tests.bench.lab import Lab, Load
from tests.bench.peers import SPREAD
from tests.bench.report_shapes import backlog_table
from tests.bench.results import Backlog, Shape
from tests.bench.running import BROKER_HEAP, CORES, begin, print_progress
from tests.bench.sampler import Role, Sampler
from tests.bench.topics import Topic, fill

HEAP = "1g"
RECORDS = 5_000_000
PARTITIONS = 1024
LARGE_EVERY = 20_000
LARGE_BYTES = 5_000_000
PATIENCE_SECONDS = 1200.0
JOIN_SECONDS = 300.0
_OUT_OF_MEMORY = re.compile(r"OutOfMemory|MemoryError|Cannot allocate memory|malloc of size|GC overhead")


def topic_of(records: int, partitions: int) -> Topic:
    partition_records = -(-records // partitions)
    return Topic(
        f"backlog-{partition_records}-{partitions}",
        partitions,
        partition_records,
        TABLE_PARTITIONS,
        LARGE_EVERY,
        LARGE_BYTES,
    )


def measure(
    lab: Lab, topic: Topic, report_progress: Callable[[str], None], patience: float = PATIENCE_SECONDS
) -> Backlog:
    """Lands the topic with one worker. `lab` gives the servers, the cores and the sink's heap.

    Raises `Unavailable` when the worker does not join.
    """
    filled = fill(lab.kafka.address, topic)
    size = f"{topic.records:,} records ({filled.bytes:,} bytes)"
    report_progress(f"{topic.name}: {size}, filled in {filled.seconds:.0f} s")
    with Fleet(lab, "backlog", topic.name, {**SPREAD, "spark.master": f"local[{lab.cores}]"}) as fleet:
        worker = fleet.launch("worker", gated=True)
        trouble = ""
        with Sampler([worker.pid], proportional=True) as sampler:
            fleet.wait(lambda view: bool(view.members), "the worker", JOIN_SECONDS)
            started = time.time()
            fleet.open_gate()
            try:
                fleet.wait_landed(dict.fromkeys(range(topic.partitions), topic.partition_records), patience)
            except Unavailable as error:
                trouble = str(error)
        ended = time.time()
        if not trouble:
            fleet.audit()
        # The logs of the worker and of its JVM.
        log_lines = [path.read_text(errors="replace").splitlines() for path in fleet.directory.glob("*.log")]
    usage = sampler.usage(started, ended)
    committed = [summary for summary in fleet.ended if summary.outcome == Phase.COMMITTED.value]
    aborted = [summary for summary in fleet.ended if summary.outcome != Phase.COMMITTED.value]
    shutil.rmtree(fleet.table, ignore_errors=True)
    return Backlog(
        partitions=topic.partitions,
        table_partitions=topic.regions,
        heap=lab.sink_heap,
        records=topic.records,
        large=topic.large,
        large_bytes=topic.large_bytes,
        landed=sum(summary.records for summary in committed),
        seconds=ended - started if trouble else _seconds(committed),
        committed=len(committed),
        aborted=len(aborted),
        out_of_memory=sum(1 for lines in log_lines for line in lines if _OUT_OF_MEMORY.search(line)),
        jvm=usage.peak.get(Role.JVM, 0),
        pythons=usage.peak.get(Role.PYTHON, 0) + usage.peak.get(Role.SPARK_PYTHON, 0),
        together=usage.together,
        proportional=usage.proportional,
        trouble=trouble or (aborted[-1].reason if aborted else ""),
    )


def _seconds(committed: list[Summary]) -> float:
    return committed[-1].times[Phase.COMMITTED.value] - committed[0].times[Phase.PLANNED.value]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.backlog", description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS, help="(default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="of the topic (default: %(default)s)")
    parser.add_argument("--heap", default=HEAP, help="of the worker's JVM (default: %(default)s)")
    parser.add_argument("--patience", type=float, default=PATIENCE_SECONDS, help="seconds (default: %(default)s)")
    parser.add_argument("--directory", type=Path, help="keep servers' data, logs and the topic there, use them again")
    options = parser.parse_args()
    begin("python -m tests.bench.backlog")
    topic = topic_of(options.records, options.partitions)
    directory = (options.directory or Path(tempfile.mkdtemp(prefix="sink-bench-"))).absolute()
    try:
        with ExitStack() as servers:
            zookeeper = servers.enter_context(ZooKeeperServer(directory / "zookeeper"))
            kafka = servers.enter_context(KafkaServer(directory / "kafka", heap=BROKER_HEAP))
            load = Load(topic.records, 0, topic.records)
            shape = Shape(topic.partitions, 0)
            lab = Lab(directory, zookeeper, kafka, topic.name, shape, load, CORES, options.heap, options.heap)
            result = measure(lab, topic, print_progress, options.patience)
    except SinkError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    finally:
        if options.directory is None:
            shutil.rmtree(directory, ignore_errors=True)
    print(backlog_table([result]))
    return 0 if result.all_landed else 1


if __name__ == "__main__":
    sys.exit(main())
