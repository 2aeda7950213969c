"""Runs the sink itself over the filled topic, as real worker processes.

The clock runs from the moment the first counted transaction was opened to the moment the last one was
COMMITTED. The first transactions, which take the lead of the topic or a part of it, are what the other peers have as
their warm-up.
"""

from __future__ import annotations

import re
import shutil
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path

from coordination.errors import Unavailable
from coordination.state.model import Phase
from sink.audit.timeline import active_names, read_timeline
from sink.storage.table_files import TableFiles
from tests.bench.fleet import Fleet, phases
from tests.bench.lab import Lab, StoreSampler, Window, measured_run
from tests.bench.results import Run
from tests.bench.sampler import Sampler

WITHOUT_META = {"hoodie.populate.meta.fields": "false"}
ROW_WRITER = {"write.engine": "hudi"}
TWO_IN_FLIGHT = {"transactions.in.flight": 2}
JOIN_SECONDS = 600.0
_WRITE_TOKEN = re.compile(r"_(\d+-\d+-\d+)_\d+\.")
"""In the name of a data file: the Spark task that wrote it."""


@dataclass(frozen=True, slots=True)
class Variant:
    """`workers` processes of `cores` cores each. `parts`: into how many a transaction is divided. The records fill
    `table_partitions`."""

    workers: int
    cores: int
    parts: int = 1
    settings: Mapping[str, object] = field(default_factory=dict)
    table_partitions: int = 1


@dataclass(frozen=True, slots=True)
class CommitMedians:
    """Files and tasks of a commit, medians."""

    files: float
    tasks: float


def run(lab: Lab, peer: str, number: int, variant: Variant) -> Run:
    partitions = lab.shape.partitions
    partition_records = lab.load.transaction // partitions // variant.parts
    settings = {
        "flush.size": partition_records,
        "slice.records": partition_records,
        # A full partition does not wait for the interval.
        "transaction.interval.ms": 60_000,
        "spark.master": f"local[{variant.cores}]",
        **variant.settings,
    }
    with Fleet(lab, f"{peer}-{number}", lab.topic, settings) as fleet:
        # The first transaction is the warm-up: all have to be members when it is planned.
        workers = [fleet.launch(f"worker-{n}", gated=True) for n in range(variant.workers)]
        with (
            Sampler(worker.pid for worker in workers) as peer_sampler,
            Sampler([lab.kafka.pid]) as broker_sampler,
            StoreSampler(lab.store) as store_sampler,
        ):
            fleet.wait(lambda view: len(view.members) >= variant.workers, "the workers", JOIN_SECONDS)
            fleet.open_gate()
            fleet.wait_landed(dict.fromkeys(range(partitions), lab.load.total // partitions))
        summaries, in_flight = fleet.committed(), fleet.in_flight
    moved = sum(summary.records for summary in summaries)
    if moved != lab.load.total:
        raise Unavailable(f"peer {peer} moved {moved} records, not {lab.load.total}")
    skipped = leading([summary.records for summary in summaries], lab.load.lead)
    # From commit to commit, as for Kafka Connect. Without the last one, during which nothing else was written.
    last = len(summaries) - (in_flight > 1)
    counted = summaries[skipped:last]
    if not skipped or not counted:
        raise Unavailable(f"{len(summaries)} commits are too few to take a rate from: raise --records")
    window = Window(
        summaries[skipped - 1].times[Phase.COMMITTED.value],
        counted[-1].times[Phase.COMMITTED.value],
        sum(summary.records for summary in counted),
    )
    cold = summaries[-1].times[Phase.COMMITTED.value] - summaries[0].times[Phase.PLANNED.value]
    medians = commit_medians(fleet.files(), {str(summary.instant) for summary in counted})
    fleet.audit()
    shutil.rmtree(fleet.table, ignore_errors=True)
    details = {"end_to_end_seconds": cold, "end_to_end_records": float(moved), **store_sampler.details(window)}
    run = measured_run(
        lab, peer, number, window, (peer_sampler, broker_sampler), phases(summaries)[skipped:last], details
    )
    return replace(run, files=medians.files, write_tasks=medians.tasks, table_partitions=variant.table_partitions)


def leading(records: Sequence[int], lead: int) -> int:
    """Returns how many transactions it takes until the lead of the topic has been moved."""
    return sum(1 for before in accumulate(records, initial=0) if before < lead)


def commit_medians(table: TableFiles, instants: Collection[str]) -> CommitMedians:
    """Returns the medians of these commits. Two workers' tasks can have the same name: they then count once."""
    commits = [commit for commit in read_timeline(table, active_names(table)).commits if commit.instant in instants]
    names = [[Path(file.path).name for file in commit.files] for commit in commits]
    tasks = [len({match[1] for name in paths if (match := _WRITE_TOKEN.search(name))}) for paths in names]
    return CommitMedians(statistics.median(map(len, names)), statistics.median(tasks))
