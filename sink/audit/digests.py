"""Computes the digest of each committed slice again from the log, and compares it with the one in the commit.

The digest of a slice is the sum, modulo 2**64, of the digests of its records, good and bad. The digest of a record is
a chain of XXH64 hashes: of its topic (UTF-8) with seed 42, partition (4 bytes, little-endian), offset (8 bytes,
little-endian), key and value, each with the hash before as its seed. A key or value that is null is left out. Headers
and timestamps are not covered.

Guarantee: a slice is compared if the log delivers as many records of it as its commit counts, or more; every other one
is counted, with the reason. Two bounds of slices enclose a sum, so that memory grows with slices and not with records.
It shares no code with the writer. Raises nothing.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from itertools import repeat
from typing import cast

import numpy as np
import numpy.typing as npt
from xxhash import xxh64_intdigest

from sink.audit.chain import CommittedRange
from sink.audit.checkpoints import AuditedResult, LogPartition
from sink.audit.log import Cleanup, LogRange
from sink.audit.log_records import LogRecords
from sink.audit.report import AuditFindings, DigestCount, FindingKind

_SEED = 42
_LITTLE_ENDIAN_LONG = struct.Struct("<q").pack


class NotCompared(Enum):
    """Why the digest of a slice could not be compared."""

    TOPIC_ID = "another topic id"
    GONE = "no longer in Kafka"
    EXPIRED = "expired"
    COMPACTED = "compacted"
    HOLE = "records missing in the log"
    LEFT_OUT = "left out"


class _Sums:
    """Numbers and sums of the digests of one partition's records, between neighbouring bounds of its slices."""

    def __init__(self, topic: str, partition: int, bounds: Iterable[int]) -> None:
        self._seed = _partition_hash(topic, partition)
        self._bounds = np.array(sorted(set(bounds)), np.int64)
        self._counts = np.zeros(len(self._bounds) + 1, np.int64)
        self._digests = np.zeros(len(self._bounds) + 1, np.uint64)

    def add(self, records: LogRecords) -> None:
        places = np.searchsorted(self._bounds, np.array(records.offsets, np.int64), "right")
        np.add.at(self._counts, places, 1)
        np.add.at(self._digests, places, _record_digests(self._seed, records))

    def between(self, start: int, end: int) -> tuple[int, int]:
        """Returns number and digest of the records from one bound to another."""
        first, last = np.searchsorted(self._bounds, np.array([start, end]), "right")
        return int(self._counts[first:last].sum()), int(self._digests[first:last].sum(dtype=np.uint64))


class LogDigests:
    """The digests of the log's records, by slice of `ranges`. `left_out` is how many slices are not compared."""

    def __init__(self, ranges: Sequence[CommittedRange], left_out: int = 0) -> None:
        self._ranges = ranges
        self._left_out = left_out
        bounds: dict[LogPartition, list[int]] = {}
        for slice_ in (entry.result.slice for entry in ranges):
            bounds.setdefault(slice_.source, []).extend((slice_.start, slice_.end))
        self._sums = {source: _Sums(source.topic, source.partition, found) for source, found in bounds.items()}

    def add(self, source: LogPartition, records: LogRecords) -> None:
        """Adds records that the log delivered: each of them once."""
        if records.offsets and (sums := self._sums.get(source)) is not None:
            sums.add(records)

    def compare(
        self,
        spans: Mapping[LogPartition, LogRange],
        topic_ids: Mapping[str, str | None],
        cleanup: Mapping[str, Cleanup],
        findings: AuditFindings,
    ) -> DigestCount:
        """Compares every slice, and reports those that differ. `spans`: the part of the log that was read of each
        partition. `topic_ids`: those of Kafka, None for a topic that is gone.
        """
        reasons: Counter[str] = Counter()
        different = 0
        for entry in self._ranges:
            result, topic = entry.result, entry.result.slice.topic
            span = spans.get(entry.source)
            if span is None:
                known = topic_ids.get(topic)
                reason = NotCompared.GONE if known in (None, result.slice.topic_id) else NotCompared.TOPIC_ID
                reasons[reason.value] += 1
            elif result.slice.topic_id != topic_ids.get(topic):
                reasons[NotCompared.TOPIC_ID.value] += 1
            else:
                records, digest = self._sums[entry.source].between(result.slice.start, result.slice.end)
                counted = result.records + result.errors
                if records < counted:
                    reasons[_missing(result, span, cleanup.get(topic)).value] += 1
                elif (records, digest) != (counted, result.digest):
                    different += 1
                    findings.add(FindingKind.DIGEST, _sentence(entry, records, digest))
        same = len(self._ranges) - different - reasons.total()
        if self._left_out:
            reasons[NotCompared.LEFT_OUT.value] = self._left_out
        return DigestCount(same, different, dict(reasons))


def _missing(result: AuditedResult, span: LogRange, cleanup: Cleanup | None) -> NotCompared:
    """Tells why the log has fewer records than the commit counts."""
    if result.slice.start < span.start:
        return NotCompared.EXPIRED
    return NotCompared.COMPACTED if cleanup is Cleanup.COMPACT else NotCompared.HOLE


def _sentence(entry: CommittedRange, records: int, digest: int) -> str:
    counted = entry.result.records + entry.result.errors
    return (
        f"{entry}: the log has {records:,} records with digest {digest:016x}, the commit {counted:,} with"
        f" {entry.result.digest:016x}: the sink read other records than these"
    )


@lru_cache(100_000)
def _partition_hash(topic: str, partition: int) -> int:
    return int(xxh64_intdigest(struct.pack("<i", partition), xxh64_intdigest(topic.encode(), _SEED)))


def _record_digests(seed: int, records: LogRecords) -> npt.NDArray[np.uint64]:
    hashes = list(map(xxh64_intdigest, map(_LITTLE_ENDIAN_LONG, records.offsets), repeat(seed)))
    for parts in (records.keys, records.values):
        if None not in parts:
            hashes = list(map(xxh64_intdigest, cast("list[bytes]", parts), hashes))
        elif any(part is not None for part in parts):
            pairs = zip(parts, hashes, strict=True)
            hashes = [before if part is None else xxh64_intdigest(part, before) for part, before in pairs]
    return np.array(hashes, np.uint64)
