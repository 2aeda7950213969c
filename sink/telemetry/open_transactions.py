"""Tracks open Kafka transactions: records behind a partition's last stable offset are acknowledged but unreadable.

Guarantee: `since` is the time of the reading that first showed the last stable offset (LSO) where it still is, with
acknowledged records behind it, or the timestamp of the record at the LSO, if that is known and earlier. The producer
sets that timestamp (CreateTime) unless the topic has LogAppendTime. Transactions that follow one another move the LSO:
each counts as new. Times are seconds since 1970. Raises nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from coordination.state.model import PartitionLog, TopicPartition


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The oldest open transaction of a partition. It holds back `held_back` offsets: from `offset`, the LSO, on."""

    partition: TopicPartition
    offset: int
    held_back: int
    since: float


class OpenTransactions:
    """The open transactions of one sink's partitions, by its readings of the log. One thread calls `look`; any thread
    may read `open`, which each call replaces as a whole.
    """

    def __init__(self) -> None:
        self.open: tuple[OpenTransaction, ...] = ()

    def look(
        self,
        partitions: Mapping[TopicPartition, PartitionLog],
        wall: float,
        begun: Mapping[TopicPartition, float] = MappingProxyType({}),
    ) -> None:
        """Replaces `open` by the transactions of this reading. `wall` is its time; `begun` has the timestamps of the
        records at the LSO, for some partitions. Both are seconds since 1970.
        """
        known = {(transaction.partition, transaction.offset): transaction.since for transaction in self.open}
        found = []
        for partition, log in partitions.items():
            if log.held_back:
                since = min(begun.get(partition, wall), known.get((partition, log.end), wall))
                found.append(OpenTransaction(partition, log.end, log.held_back, since))
        self.open = tuple(found)

    def longest(self, wall: float) -> float:
        """Returns for how many seconds the oldest open transaction has been known; 0 if there is none."""
        return max((max(0.0, wall - transaction.since) for transaction in self.open), default=0.0)
