"""Open Kafka transactions, as a reader of the log sees them: records are acknowledged and cannot be read.

Guarantee: a transaction is open since a reading that first showed the partition's readable end where it still is, with
records behind it, or since the time of its first record, where that is known. A topic with one transaction after
another has an end that moves, and so a short one each time. Times are seconds since 1970. Raises nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from coordination.state.model import PartitionLog, TopicPartition


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that holds `offsets` offsets of a partition back, from `offset` on."""

    partition: TopicPartition
    offset: int
    offsets: int
    since: float


class OpenTransactions:
    """Remembers readings of one sink's log. One thread calls `look`; any thread may read `open`, which a new reading
    replaces as a whole.
    """

    def __init__(self) -> None:
        self.open: tuple[OpenTransaction, ...] = ()

    def look(
        self,
        partitions: Mapping[TopicPartition, PartitionLog],
        wall: float,
        begun: Mapping[TopicPartition, float] = MappingProxyType({}),
    ) -> None:
        """Adds a reading of the log. `begun` has times of first records, for some partitions."""
        known = {(transaction.partition, transaction.offset): transaction.since for transaction in self.open}
        self.open = tuple(
            OpenTransaction(partition, log.end, log.held_back, min(begun.get(partition, wall), seen))
            for partition, log in partitions.items()
            if log.high_watermark > log.end
            for seen in [known.get((partition, log.end), wall)]
        )

    def longest(self, wall: float) -> float:
        """Returns for how many seconds the oldest of them has been open at least; 0 without any."""
        return max((max(0.0, wall - transaction.since) for transaction in self.open), default=0.0)
