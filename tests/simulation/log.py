"""A Kafka log in memory, with the registry of its records' schemas.

Partitions grow, have holes, lose their oldest or their newest records, have open transactions, and are added or
recreated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from random import Random
from zlib import crc32

from coordination.state.log_records import Anchor
from coordination.state.model import LogView, PartitionLog, Slice, TopicPartition


@dataclass(frozen=True)
class LogState:
    """The records of a partition at one moment. Without leader epochs, none of them was ever replaced."""

    start: int
    epochs: tuple[tuple[int, int], ...] = ()
    holes: frozenset[int] = frozenset()

    def has_another(self, record: Anchor, before: int) -> bool:
        """Whether another record has the offset of this one, below `before`."""
        offset = record.offset
        if not self.epochs or not self.start <= offset < before or offset in self.holes:
            return False
        return max(epoch for start, epoch in self.epochs if start <= offset) != record.epoch


@dataclass
class _Partition:
    start: int = 0
    end: int = 0
    holes: set[int] = field(default_factory=set)
    schemas: list[tuple[int, int]] = field(default_factory=list)
    """Pairs of the first offset of a schema and the schema's number; both rise."""
    replaced: int = 0
    """Below this offset records may differ from the planned ones: the log was truncated, and grew again."""
    truncations: list[int] = field(default_factory=list)
    """The ends to which the log was truncated, oldest first."""
    elections: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """Pairs of the first offset of a leader epoch and the epoch; both rise."""
    open_from: int | None = None
    """The first offset of an open transaction: brokers hold back what follows."""

    @property
    def readable_end(self) -> int:
        return self.end if self.open_from is None else self.open_from

    def state(self) -> LogState:
        if not self.truncations:
            return LogState(self.start)
        return LogState(self.start, tuple(self.epochs), frozenset(self.holes))

    def elect(self) -> None:
        self.elections += 1
        self.epochs.append((self.end, self.elections))

    def record(self, topic_id: str, offset: int) -> Anchor:
        epoch = max(epoch for start, epoch in self.epochs if start <= offset)
        return Anchor(offset, epoch, crc32(f"{topic_id} {offset} {epoch}".encode()))

    def last_record(self, topic_id: str, start: int, end: int) -> Anchor | None:
        """Returns the last record of `[start, end)`; None if there is none."""
        offsets = range(end - 1, max(start, self.start) - 1, -1)
        last = next((offset for offset in offsets if offset not in self.holes), None)
        return None if last is None else self.record(topic_id, last)


class SimLog:
    """`holes` are offsets that never become records: transaction markers, aborted or compacted records. `schema` is the
    number of the newest schema, which has all columns of the earlier ones. `bad` is the share of bad records."""

    def __init__(self, cluster: str, bad: float = 0.0) -> None:
        self._cluster = cluster
        self.schema = 0
        self._bad = bad
        self.ids: dict[str, str] = {}
        self.partitions: dict[TopicPartition, _Partition] = {}

    def add(self, source: TopicPartition) -> None:
        self.ids.setdefault(source.topic, f"id-{source.topic}-1")
        self.partitions.setdefault(source, _Partition())

    def grow(self, rng: Random, source: TopicPartition, offsets: int, hole: float) -> None:
        partition = self.partitions[source]
        for offset in range(partition.end, partition.end + offsets):
            if rng.random() < hole:
                partition.holes.add(offset)
        if self.schema and (not partition.schemas or partition.schemas[-1][1] != self.schema):
            partition.schemas.append((partition.end, self.schema))
        partition.end += offsets

    def delete_before(self, source: TopicPartition, offset: int) -> None:
        partition = self.partitions[source]
        partition.start = min(max(partition.start, offset), partition.readable_end)

    def follow(self, other: SimLog, rng: Random, is_clone: bool) -> None:
        """Becomes a log with the topics of another cluster's: the same ids if it was cloned from that, and at least as
        many offsets."""
        for source, partition in sorted(other.partitions.items()):
            topic_id = other.ids[source.topic]
            self.ids[source.topic] = topic_id if is_clone else f"{self._cluster} {topic_id}"
            own = self.partitions.setdefault(source, _Partition())
            own.start, own.end = partition.start, max(own.end, partition.end + rng.randint(0, 20))

    def truncate(self, source: TopicPartition, end: int) -> None:
        """Loses the newest records, as after an unclean leader election."""
        partition = self.partitions[source]
        partition.replaced = max(partition.replaced, partition.end)
        partition.end = end
        partition.truncations.append(end)
        partition.epochs = [(start, epoch) for start, epoch in partition.epochs if start < end]
        partition.elect()
        if partition.open_from is not None and partition.open_from >= end:
            partition.open_from = None
        partition.holes = {offset for offset in partition.holes if offset < end}
        partition.schemas = [(offset, schema) for offset, schema in partition.schemas if offset < end]

    def end_transaction(self, source: TopicPartition, is_aborted: bool) -> None:
        """Ends the open transaction with a marker. Its records are those since its beginning."""
        partition = self.partitions.get(source)
        if partition is None or partition.open_from is None:
            return
        if is_aborted:
            partition.holes.update(range(partition.open_from, partition.end))
        partition.holes.add(partition.end)
        partition.end += 1
        partition.open_from = None

    def recreate(self, topic: str, partitions: int) -> None:
        stem, _, generation = self.ids[topic].rpartition("-")
        self.ids[topic] = f"{stem}-{int(generation) + 1}"
        other_topics = {source: log_range for source, log_range in self.partitions.items() if source.topic != topic}
        self.partitions = other_topics | {TopicPartition(topic, number): _Partition() for number in range(partitions)}

    def delete(self, topic: str) -> None:
        del self.ids[topic]
        self.partitions = {source: log_range for source, log_range in self.partitions.items() if source.topic != topic}

    def view(self, topics: tuple[str, ...], pattern: str | None = None, optional: tuple[str, ...] = ()) -> LogView:
        matching = tuple(sorted(topic for topic in self.ids if pattern and re.fullmatch(pattern, topic)))
        return LogView(
            self._cluster,
            {
                source: PartitionLog(self.ids[source.topic], p.start, max(p.start, p.readable_end))
                for source, p in sorted(self.partitions.items())
                if source.topic in {*topics, *matching, *optional}
            },
            matching=matching if pattern else None,
            deleted=tuple(topic for topic in optional if topic not in self.ids),
        )

    def origin(self, topic: str) -> tuple[str, str]:
        """Returns the cluster and the id of the topic that has this name now."""
        return self._cluster, self.ids.get(topic, "")

    def has_offsets(self, piece: Slice) -> bool:
        """Whether the topic of that name has records to read up to the slice's end."""
        partition = self.partitions.get(piece.source)
        return partition is not None and partition.start <= piece.start and piece.end <= partition.readable_end

    def newest_schema(self, piece: Slice) -> int:
        """Returns the newest schema of a slice's records; 0 if other records may have replaced the planned ones."""
        partition = self.partitions[piece.source]
        if piece.start < partition.replaced:
            return 0
        return max((schema for offset, schema in partition.schemas if offset < piece.end), default=0)

    def read(self, piece: Slice) -> tuple[int, int, int]:
        """Returns the number of good records of a slice, the digest of all records, and the number of bad ones."""
        offsets = self._records(piece)
        bad = len(self.bad(piece))
        return len(offsets) - bad, sum(offset * 0x9E3779B97F4A7C15 + 1 for offset in offsets) % 2**64, bad

    def bad(self, piece: Slice) -> list[int]:
        """Returns the offsets of the slice's bad records, the same in every process."""
        if not self._bad:
            return []
        return [o for o in self._records(piece) if hash((piece.partition, o)) % 1009 < self._bad * 1009]

    def _records(self, piece: Slice) -> list[int]:
        holes = self.partitions[piece.source].holes
        return [offset for offset in range(piece.start, piece.end) if offset not in holes]
