"""What a write through Hudi's own writer tells of its slices: counts, digests, and the records that are bad.

Guarantee: of every slice the same count and digest as from the Arrow engine, however often Spark runs a task. Raises
SinkError for records of a slice that nobody asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import AccumulatorParam
from pyspark.accumulators import Accumulator

from coordination.errors import BadRecord, SinkError
from coordination.model import SetAside, Slice, SliceResult
from sink.java_errors import everything
from sink.write.bad_offsets import BadOffset, bad_offsets, too_many
from sink.write.batch_sizes import Held
from sink.write.engine import DIGEST_MASK, Written
from sink.write.record_columns import BadRow
from sink.write.source import data_loss

_BAD = "sink-bad-record:"


class Count(NamedTuple):
    """What a slice held: good records, the digest of all, bytes of their values, bytes of the largest, bad ones."""

    records: int
    digest: int
    size: int
    largest: int
    bad: tuple[BadOffset, ...] = ()


Counts = dict[int, Count]
"""By position of the slice."""


class MergedCounts(AccumulatorParam[Counts]):
    """A task that ran twice says the same of its slice twice."""

    def zero(self, value: Counts) -> Counts:
        return {**value}

    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:
        return {**value1, **value2}


class SliceCounter:
    """Counts the batches of one task, which all belong to one slice. `tolerated`: most bad records of it."""

    def __init__(self, slices: Sequence[Slice], tolerated: int) -> None:
        self._slices = slices
        self._tolerated = tolerated
        self._index = -1
        self._records = self._digest = self._size = self._largest = 0
        self._bad: list[BadOffset] = []

    def count(self, batch: pa.RecordBatch, good: pa.RecordBatch, bad: Sequence[BadRow]) -> None:
        """A batch, its good records and its bad rows. Fails, for `named` to understand, when too many are bad."""
        if self._index < 0:
            self._index = _slice_of(self._slices, batch)
        self._bad += bad_offsets(batch, bad)
        if len(self._bad) > self._tolerated:
            each, first = self._slices[self._index], self._bad[0]
            said = [each.topic, each.partition, first.offset, too_many(first.reason, self._tolerated)]
            raise ValueError(f"{_BAD}{json.dumps(said)}")
        self._records += good.num_rows
        self._digest += int(batch.column("digest").to_numpy().view(np.uint64).sum(dtype=np.uint64))
        sizes = pc.binary_length(batch.column("value"))
        self._size += pc.sum(sizes).as_py() or 0
        self._largest = max(self._largest, pc.max(sizes).as_py() or 0)

    def close(self, counts: Accumulator[Counts]) -> None:
        if self._index >= 0:
            digest = self._digest & DIGEST_MASK
            counts.add({self._index: Count(self._records, digest, self._size, self._largest, tuple(self._bad))})


def named(error: Exception, slices: Sequence[Slice]) -> SinkError | None:
    """The error as what it says of a record or a log; None for any other."""
    text = everything(error)
    _, found, rest = text.partition(_BAD)
    if not found:
        return data_loss(error, slices)
    topic, partition, offset, reason = json.JSONDecoder().raw_decode(rest)[0]
    return BadRecord(topic, partition, offset, reason)


def held(slices: Sequence[Slice], counts: Mapping[int, Count]) -> Iterator[Held]:
    for index, count in counts.items():
        yield Held(slices[index].source, count.records + len(count.bad), count.size, count.largest)


def bad_of(slices: Sequence[Slice], counts: Mapping[int, Count]) -> dict[Slice, Sequence[BadOffset]]:
    return {slices[index]: count.bad for index, count in counts.items() if count.bad}


def written(
    slices: Sequence[Slice], counts: Mapping[int, Count], stats: Sequence[str], errors: tuple[SetAside, ...]
) -> Written:
    found = (counts.get(index, Count(0, 0, 0, 0)) for index in range(len(slices)))
    results = (
        SliceResult(each, count.records, count.digest, len(count.bad))
        for each, count in zip(slices, found, strict=True)
    )
    return Written(tuple(results), tuple(stats), sum(count.size for count in counts.values()), errors)


def _slice_of(slices: Sequence[Slice], batch: pa.RecordBatch) -> int:
    topic, partition, offset = (batch.column(name)[0].as_py() for name in ("topic", "partition", "offset"))
    for index, each in enumerate(slices):
        if (each.topic, each.partition) == (topic, partition) and each.start <= offset < each.end:
            return index
    raise SinkError(
        f"{topic}-{partition} offset {offset} was read, but is in none of the slices that were asked for"
    )
