"""Runs the sink itself over the filled topic, as real worker processes.

The clock runs from the moment the first counted transaction was opened to the moment the last one was
COMMITTED. The first transactions, which take the lead of the topic or a part of it, are what the other peers have as
their warm-up; where two are in flight they are counted, cold as they are, for no moment parts them from the next.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field

from coordination.errors import Unavailable
from coordination.model import Phase
from tests.bench.fleet import Fleet, phases
from tests.bench.lab import Lab, Window, measured
from tests.bench.orders import PARTITIONS
from tests.bench.results import Run
from tests.bench.sampler import Sampler

WITHOUT_META = {"hoodie.populate.meta.fields": "false"}
ROW_WRITER = {"write.engine": "hudi"}
TWO_IN_FLIGHT = {"transactions.in.flight": 2}
JOIN_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Variant:
    """`workers` processes of `cores` cores each. `parts`: into how many a transaction is divided."""

    workers: int
    cores: int
    parts: int = 1
    settings: Mapping[str, object] = field(default_factory=dict)


def run(lab: Lab, peer: str, number: int, variant: Variant) -> Run:
    each = lab.load.transaction // PARTITIONS // variant.parts
    settings = {
        "flush.size": each,
        "slice.records": each,
        # A full partition does not wait for the interval.
        "transaction.interval.ms": 60_000,
        "spark.master": f"local[{variant.cores}]",
        **variant.settings,
    }
    with Fleet(lab, f"{peer}-{number}", lab.topic, settings) as fleet:
        # The first transaction is the warm-up: all have to be members when it is planned.
        workers = [fleet.launch(f"worker-{n}", held=True) for n in range(variant.workers)]
        with Sampler(worker.pid for worker in workers) as own, Sampler([lab.kafka.pid]) as broker:
            fleet.wait(lambda view: len(view.members) >= variant.workers, "the workers", JOIN_SECONDS)
            fleet.let_go()
            fleet.wait_landed(dict.fromkeys(range(PARTITIONS), lab.load.total // PARTITIONS))
        summaries = fleet.committed()
    moved = sum(summary.records for summary in summaries)
    if moved != lab.load.total:
        raise Unavailable(f"peer {peer} moved {moved} records, not {lab.load.total}")
    skipped = 0 if variant.settings == TWO_IN_FLIGHT else lab.load.lead // lab.load.transaction
    counted = summaries[skipped:]
    window = Window(
        counted[0].times[Phase.PLANNED.value],
        counted[-1].times[Phase.COMMITTED.value],
        sum(summary.records for summary in counted),
    )
    cold = summaries[-1].times[Phase.COMMITTED.value] - summaries[0].times[Phase.PLANNED.value]
    shutil.rmtree(fleet.table)
    details = {"end_to_end_seconds": cold, "end_to_end_records": float(moved)}
    return measured(peer, number, window, (own, broker), phases(summaries)[max(skipped, 1) :], details)
