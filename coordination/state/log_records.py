"""Records of the log by what no other log has, what a task read, and both as JSON.

A decoder raises TypeError or ValueError for anything else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from coordination.state.require import require_int, require_str


@dataclass(frozen=True, slots=True)
class Anchor:
    """A record of the log by what no other log has: offset, leader epoch (-1 if unknown), and unsigned 64-bit digest.
    The digest covers key, value, timestamp and headers.
    """

    offset: int
    epoch: int
    digest: int

    def __str__(self) -> str:
        return f"offset {self.offset}: leader epoch {self.epoch}, digest {self.digest:016x}"


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Offsets `[start, end)` of one partition that a task read, and where: `cluster` and `topic_id` are those
    that its client had while the records came. `before` is the last record before `start`, None if the log has none
    from the slice's anchor on; `last` the last record of the range, None if it has none.
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
    return None if anchor is None else [anchor.offset, anchor.epoch, f"{anchor.digest:016x}"]


def decode_anchor(value: Any) -> Anchor | None:
    if value is None:
        return None
    offset, epoch, digest = value
    return Anchor(require_int(offset), require_int(epoch), int(require_str(digest), 16))


def encode_reads(reads: Iterable[ReadRange]) -> list[Any]:
    """`[[cluster, topic, topic id, [[partition, start, end, before, last], ...]], ...]`, in the order of `reads`."""
    return [
        [*where, [[r.partition, r.start, r.end, encode_anchor(r.before), encode_anchor(r.last)] for r in run]]
        for where, run in groupby(reads, lambda r: (r.cluster, r.topic, r.topic_id))
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
