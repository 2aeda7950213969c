"""Compares the rows of the errors table with the log: key, value and timestamp of each must be those of its record.

Headers, `kind` and `reason` are not compared: the sink itself writes the last two. Guarantee: each row of a topic in
the newest checkpoint is compared, if the log still has its record. Memory: 16 bytes for each bad record of the sink,
twice that while they are sorted, and one batch of rows.
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

COLUMNS = ("_kafka_timestamp", *PROVENANCE, "sink", "topic_id", "_kafka_key", "value")
"""The columns of the errors table that are read."""
_Found = tuple[NDArray[np.int64], NDArray[np.uint64]]


class ErrorsTableRows:
    """The bad records of a sink. Call `read`, then `receive` with the log's records; `findings` are the differences."""

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
            microseconds = batch.column(COLUMNS[0]).cast(pa.int64()).to_pylist()
            columns = (batch.column(name).to_pylist() for name in COLUMNS[1:])
            for moment, topic, number, offset, owner, topic_id, key, value in zip(microseconds, *columns, strict=True):
                if owner == self._sink and self._topic_ids.get(topic) == topic_id:
                    offsets, digests = found[LogPartition(topic, number)]
                    offsets.append(offset)
                    # Kafka gives -1 for a record without a timestamp; the errors table has null.
                    digests.append(_digest(-1 if moment is None else moment // 1000, key, value))
            for partition, (offsets, digests) in found.items():
                parts[partition].append((np.array(offsets, np.int64), np.array(digests, np.uint64)))
        self._found = {partition: _sorted(several) for partition, several in parts.items()}

    def receive(self, partition: LogPartition, records: LogRecords) -> None:
        """Compares records of one partition, which are in order of offset."""
        known, offsets = self._found.get(partition), records.offsets
        if known is None or not offsets:
            return
        low, high = np.searchsorted(known[0], [offsets[0], offsets[-1] + 1])
        positions = {offset: position for position, offset in enumerate(offsets)} if low < high else {}
        for offset, digest in zip(known[0][low:high].tolist(), known[1][low:high].tolist(), strict=True):
            if (position := positions.get(offset)) is None:
                continue
            if _digest(records.timestamps[position], records.keys[position], records.values[position]) != digest:
                self.findings.add(
                    FindingKind.ERRORS_ROW,
                    f"{partition} offset {offset}: key, value or timestamp in the errors table differs from the log's",
                )


def _sorted(parts: Sequence[_Found]) -> _Found:
    offsets, digests = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(offsets, kind="stable")
    return offsets[order], digests[order]


def _digest(milliseconds: int, key: object, value: object) -> int:
    return xxh64_intdigest(repr((milliseconds, key, value)).encode())
