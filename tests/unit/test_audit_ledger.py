"""The audit's ledger names each row by the topic and partition that it has."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pyarrow as pa

from sink.audit.checkpoints import LogPartition
from sink.audit.rows import PROVENANCE, OffsetLedger


def test_partitions_below_zero_are_named_as_they_are_and_stay_of_their_topic(tmp_path: Path) -> None:
    places = [("orders", -1), ("orders", 0), ("returns", -1), ("returns", 2**31 - 1), ("more", -(2**31))]
    topics, partitions = (list(column) for column in zip(*places, strict=True))
    columns = [pa.array(topics), pa.array(partitions, pa.int32()), pa.array(range(len(places)), pa.int64())]
    batch = pa.RecordBatch.from_arrays(columns, PROVENANCE)
    with closing(OffsetLedger(tmp_path)) as ledger:
        ledger.add("file", lambda: iter([batch]))
        ledger.sweep()
        found = {source: counts.first for source, counts in ledger.counts().items()}
    assert found == {LogPartition(*place): offset for offset, place in enumerate(places)}
