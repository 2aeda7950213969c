"""Defines the anchor of a log record and the offset range that a task read, and encodes both as JSON.

A decoder raises TypeError or ValueError for JSON of another shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from coordination.state.require import require_int, require_str

_DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True)
class Anchor:
    """Identifies a record by more than its offset, because a recreated topic has other records at the same offsets.
    `epoch` is Kafka's leader epoch, -1 if unknown. `digest` is the record's XXH64 as an unsigned number, over key,
    value, timestamp and headers.
    """

    offset: int
    epoch: int
    digest: int

    def __str__(self) -> str:
        return f"offset {self.offset}: leader epoch {self.epoch}, digest {self.digest:016x}"


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Offsets `[start, end)` of one partition that a task read. `cluster` and `topic_id` are the ids that the task's
    Kafka client had. `before` is the last record between the slice's anchor and `start`, `last` the last record of the
    range; each is None if there is no such record.
    """

    cluster: str
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    before: Anchor | None = None
    last: Anchor | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}[{self.start}, {self.end})"


def encode_anchor(anchor: Anchor | None) -> list[Any] | None:
    # In hexadecimal: readers of JSON round numbers above 2**53.
    return None if anchor is None else [anchor.offset, anchor.epoch, f"{anchor.digest:016x}"]


def decode_anchor(value: Any) -> Anchor | None:
    if value is None:
        return None
    offset, epoch, digest = value
    digest_bytes = bytes.fromhex(require_str(digest))
    if len(digest_bytes) != _DIGEST_BYTES:
        raise ValueError(f"expected a digest of {_DIGEST_BYTES} bytes, found {len(digest_bytes)}")
    return Anchor(require_int(offset), require_int(epoch), int.from_bytes(digest_bytes, "big"))


def encode_reads(reads: Iterable[ReadRange]) -> list[Any]:
    """Returns `[[cluster, topic, topic id, [[partition, start, end, before, last], ...]], ...]`, in the order of
    `reads`. Adjacent ranges with the same cluster, topic and topic id share one entry.
    """
    return [
        [*origin, [[r.partition, r.start, r.end, encode_anchor(r.before), encode_anchor(r.last)] for r in run]]
        for origin, run in groupby(reads, lambda r: (r.cluster, r.topic, r.topic_id))
    ]


def decode_reads(value: Any) -> tuple[ReadRange, ...]:
    return tuple(
        ReadRange(
            require_str(cluster),
            require_str(topic),
            require_str(topic_id),
            require_int(partition),
            require_int(start),
            require_int(end),
            decode_anchor(before),
            decode_anchor(last),
        )
        for cluster, topic, topic_id, rows in value
        for partition, start, end, before, last in rows
    )
