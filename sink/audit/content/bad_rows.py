"""Compares the rows of the errors table with the log: key, value and timestamp of each bad record are the record's.

Headers are not compared, nor the kind and the reason, which are the writer's own words. Guarantee: each row whose
record the log still has is compared. Memory: 16 bytes for each bad record of the sink, twice while they are sorted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from xxhash import xxh64_intdigest

from sink.audit.checkpoints import LogPartition
from sink.audit.log_records import LogRecords
from sink.audit.report import AuditFindings, FindingKind
from sink.audit.rows import PROVENANCE

COLUMNS = (*PROVENANCE, "sink", "topic_id", "_kafka_timestamp", "_kafka_key", "value")
"""The columns of the errors table that are read."""
_Found = tuple[NDArray[np.int64], NDArray[np.uint64]]


class ErrorsTableRows:
    """The bad records of a sink, by offset. Call `read`, and then `receive` with the log's records."""

    def __init__(self, sink: str, topic_ids: Mapping[str, str]) -> None:
        """`topic_ids` are those of the newest checkpoint."""
        self._sink, self._topic_ids = sink, topic_ids
        self._found: dict[LogPartition, _Found] = {}
        self.findings = AuditFindings()

    def read(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Takes the rows of the errors table, with `COLUMNS`."""
        parts: dict[LogPartition, list[_Found]] = defaultdict(list)
        for batch in batches:
            found: dict[LogPartition, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
            moments = batch.column("_kafka_timestamp").cast(pa.int64()).to_pylist()
            names = (*PROVENANCE, "sink", "topic_id", "_kafka_key", "value")
            columns = (batch.column(name).to_pylist() for name in names)
            for moment, topic, partition, offset, owner, topic_id, key, value in zip(moments, *columns, strict=True):
                if owner == self._sink and self._topic_ids.get(topic) == topic_id:
                    offsets, digests = found[LogPartition(topic, partition)]
                    offsets.append(offset)
                    digests.append(_digest(-1 if moment is None else moment // 1000, key, value))
            for source, (offsets, digests) in found.items():
                parts[source].append((np.array(offsets, np.int64), np.array(digests, np.uint64)))
        self._found = {source: _sorted(several) for source, several in parts.items()}

    def receive(self, source: LogPartition, records: LogRecords) -> None:
        """Takes records of a partition, by rising offset."""
        known, offsets = self._found.get(source), records.offsets
        if known is None or not offsets:
            return
        low, high = np.searchsorted(known[0], [offsets[0], offsets[-1] + 1])
        numbers = {offset: number for number, offset in enumerate(offsets)} if low < high else {}
        for offset, digest in zip(known[0][low:high].tolist(), known[1][low:high].tolist(), strict=True):
            if (number := numbers.get(offset)) is None:
                continue
            if _digest(records.timestamps[number], records.keys[number], records.values[number]) != digest:
                self.findings.add(
                    FindingKind.ERRORS_ROW,
                    f"{source} offset {offset}: the errors table has another key, value or timestamp than the log",
                )


def _sorted(parts: Sequence[_Found]) -> _Found:
    offsets, digests = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(offsets, kind="stable")
    return offsets[order], digests[order]


def _digest(milliseconds: int, key: object, value: object) -> int:
    return xxh64_intdigest(repr((milliseconds, key, value)).encode())
