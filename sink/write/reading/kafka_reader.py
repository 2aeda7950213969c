"""Reads the slices of a write task from Kafka into Arrow batches, with one librdkafka consumer.

The reader joins adjacent slices of a partition into ranges, and reads the ranges in the order of the task. The first
range that is not read to its end is the head. Ranges after it are read ahead, in a window of bounded size: the reader
assigns their partitions as long as it estimates that their records fit the window. If their records turn out larger, it
unassigns the last of them, drops their records and reads them later. So memory is bounded in bytes, whatever the number
of partitions.

Guarantee: the reader yields exactly the committed records of each slice, slice after slice, by rising offset. A range
is complete once the consumer has returned a record at or beyond its end, or the end of the partition there: a slice's
last offset may have no record, because of compaction, transaction markers and aborted transactions. All records come
from the cluster and the topic ids to which the consumer is bound (`sink.librdkafka`). `reads` names these for each
range, with the records by which a later reader recognises this log.

Raises WrongLog, DataLoss for an offset that the log does not have, DamagedLog for a batch whose bytes have changed,
Unavailable after `SILENT_SECONDS` without a record, MemoryError, and ArrowCapacityError for more bytes than an Arrow
array holds.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, Message, TopicPartition

from coordination.errors import DataLoss, Unavailable
from coordination.state.log_records import Anchor, ReadRange
from coordination.state.model import NO_ANCHOR, Slice, WriteTask
from sink.librdkafka import LogConsumer, damage_of
from sink.write.reading.anchors import LastMessage
from sink.write.reading.kafka_consumer import KeptConsumer
from sink.write.reading.message_columns import message_columns
from sink.write.reading.read_batches import BatchBuilder, ReadBatch, SliceIndex
from sink.write.reading.record_digests import partition_seed
from sink.write.reading.record_headers import headers_of

SILENT_SECONDS = 60.0
_POLL_SECONDS = 0.02
_POLL_MESSAGES = 4096
"""The most messages that one poll asks for."""
_COPIED_SHARE = 4
"""Rows that are less than this fraction (1/4) of their batch's bytes are copied out of it."""
IGNORED_ERRORS = {KafkaError.GROUP_AUTHORIZATION_FAILED}
"""librdkafka looks up the consumer group, which the sink does not use."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How much a reader keeps in memory."""

    queue_bytes: int
    """Limits librdkafka's queue of fetched messages. The consumer's settings apply it, not the reader."""
    window_bytes: int
    """Limits the records that are read ahead. They may reach twice as much before some are dropped."""
    batch_bytes: int
    """The approximate size of a batch, and of the records of one poll."""


@dataclass(slots=True)
class _RangeProgress:
    """How far a range was read. Reading begins at the range's anchor, the last record before its start: `before` then
    shows whether the log is still the same.
    """

    range: Slice
    """Adjacent slices of one partition, joined."""
    position: int
    """The offset to read next."""
    batches: deque[pa.RecordBatch] = field(default_factory=deque)
    """Records that were read, and not yet yielded."""
    bytes: int = 0
    """The size of `batches`."""
    is_complete: bool = False
    before: Anchor | None = None
    """The last record from the range's anchor up to its start."""
    last: LastMessage | None = None
    """The last record of the range so far; None before the first one, and once the range is complete."""
    last_anchor: Anchor | None = None
    """The last record of the range, once it is complete."""

    @classmethod
    def begin(cls, range: Slice) -> _RangeProgress:
        return cls(range, range.start if range.anchor == NO_ANCHOR else range.anchor)

    @property
    def topic(self) -> str:
        return self.range.topic

    @property
    def partition(self) -> int:
        return self.range.partition

    @property
    def start(self) -> int:
        return self.range.start

    @property
    def end(self) -> int:
        return self.range.end

    @property
    def topic_partition(self) -> tuple[str, int]:
        return self.range.topic, self.range.partition

    def read_range(self, cluster: str, topic_id: str) -> ReadRange:
        """Describes the range, once it is complete, and the log that it was read from."""
        where = (cluster, self.topic, topic_id, self.partition, self.start, self.end)
        return ReadRange(*where, self.before, self.last_anchor)

    def complete(self) -> None:
        """Keeps only the anchor of the last record: the message itself may be large."""
        self.is_complete = True
        if self.last is not None:
            self.last_anchor, self.last = self.last.anchor(), None


class TaskReader:
    """Reads the slices of a task, once. Iterating yields the batches. Call `close` after the last one."""

    def __init__(self, consumer: KeptConsumer, task: WriteTask, limits: ReadLimits, headers: bool = False) -> None:
        """`headers`: whether the batches have the column headers."""
        # Errors of an earlier task do not explain errors of this one.
        consumer.forget_errors()
        self._consumer = consumer
        self._client: LogConsumer = consumer.client
        self._limits = limits
        self._index = SliceIndex(task.slices)
        self._not_begun = deque(map(_RangeProgress.begin, task.ranges))
        """The ranges after those of the window, in the order of the task."""
        self._window: dict[tuple[str, int], _RangeProgress] = {}
        """The head and the ranges that are read ahead, by topic and partition, in the order of the task."""
        self._with_headers = headers
        self._has_several_topics = len({slice_.topic for slice_ in task.slices}) > 1
        self._offsets_read = self._bytes_read = 0
        self._silent_seconds = 0.0
        """How long polls have waited since the last message. The engine's work between two polls is not a wait."""
        self._early_end = ""
        """Names the last partition that ended before its range did, for an error message."""
        self.reads: list[ReadRange] = []
        """One entry for each range that was read to its end, in the order of the task."""

    def __iter__(self) -> Iterator[ReadBatch]:
        builder = BatchBuilder(self._limits.batch_bytes)
        while self._window or self._not_begun:
            self._extend()
            head = next(iter(self._window.values()))
            if not head.is_complete and not head.batches:
                self._receive(head)
                self._shrink()
            while head.batches:
                records = head.batches.popleft()
                head.bytes -= records.nbytes
                offsets = records.column("offset").to_numpy()
                parts = self._index.parts(head.topic, head.partition, offsets)
                yield from builder.add(head.topic, records, parts)
            if head.is_complete:
                del self._window[head.topic_partition]
                self.reads.append(head.read_range(*self._client.read_from(head.topic)))
        yield from builder.flush()

    def close(self) -> None:
        """Unassigns all partitions. The consumer's connections stay open for the next task."""
        self._client.unassign()

    # The window

    def _extend(self) -> None:
        """Moves the next ranges into the window and assigns their partitions, as long as their records are expected to
        fit. Two ranges of one partition are never in the window together.

        Waits until half of the window is free, and then assigns many: each call waits for librdkafka's own thread.
        """
        room = self._limits.window_bytes - sum(self._expected_bytes(progress) for progress in self._window.values())
        if self._window and room < self._limits.window_bytes // 2:
            return
        added = []
        while self._not_begun and self._not_begun[0].topic_partition not in self._window:
            progress = self._not_begun[0]
            room -= self._expected_bytes(progress)
            if room < 0 and self._window:
                break
            self._window[progress.topic_partition] = self._not_begun.popleft()
            added.append(TopicPartition(progress.topic, progress.partition, progress.position))
        if added:
            self._client.incremental_assign(added)

    def _expected_bytes(self, progress: _RangeProgress) -> int:
        """Estimates the size of the range's records that are or will be in memory."""
        offsets_left = 0 if progress.is_complete else progress.end - progress.position
        return progress.bytes + int(offsets_left * self._record_bytes)

    @property
    def _record_bytes(self) -> float:
        """The mean number of bytes for each offset that was read, which begins at 1024."""
        return (self._bytes_read + 1024.0) / (self._offsets_read + 1)

    def _shrink(self) -> None:
        """Takes the last ranges out of the window, and drops their records, while the ranges after the head hold more
        than twice `window_bytes`.
        """
        window = list(self._window.values())
        held_bytes = sum(progress.bytes for progress in window[1:])
        while held_bytes > 2 * self._limits.window_bytes and len(window) > 1:
            progress = window.pop()
            held_bytes -= progress.bytes
            if not progress.is_complete:
                self._client.incremental_unassign([TopicPartition(progress.topic, progress.partition)])
            del self._window[progress.topic_partition]
            self._not_begun.appendleft(_RangeProgress.begin(progress.range))

    # Messages

    def _receive(self, head: _RangeProgress) -> None:
        """Polls once. Without a record, raises what `_require_progress` raises."""
        with _no_garbage_collection():
            has_records = self._consume()
        self._complete_ranges()
        if not has_records:
            self._require_progress(head)

    def _consume(self) -> bool:
        """Polls once, and handles all messages. Returns whether there were records. No message is referenced after
        this, except the last one of each range: the garbage collector would visit each of them.
        """
        started = time.monotonic()
        try:
            messages = self._client.consume(self._message_limit(), _POLL_SECONDS)
        except SystemError as error:
            # confluent-kafka wraps its MemoryError in this error, and Spark's traceback omits causes.
            raise (error.__cause__ or error) from None
        # A host that was suspended during the poll has not waited for Kafka all that time.
        self._silent_seconds += min(time.monotonic() - started, _POLL_SECONDS)
        error_messages: list[Message] = []
        if any(error is not None for error in map(Message.error, messages)):
            error_messages = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
        if messages:
            self._silent_seconds = 0.0
            self._distribute(messages)
        # After the records, because the end of a partition follows its last record.
        for message in error_messages:
            self._handle_event(message)
        return bool(messages)

    def _message_limit(self) -> int:
        """Returns how many messages a poll asks for. `consume` waits until it has all of them or its time is over: so
        they are no more than the window's ranges still lack. They are also no more than fit a batch.
        """
        offsets_left = sum(
            progress.end - progress.position for progress in self._window.values() if not progress.is_complete
        )
        return max(1, min(_POLL_MESSAGES, offsets_left, int(self._limits.batch_bytes / self._record_bytes)))

    def _handle_event(self, message: Message) -> None:
        """Handles a message that is not a record: the end of a partition, or an error."""
        error = message.error()
        assert error is not None
        code = error.code()
        progress = self._window.get((message.topic() or "", message.partition() or 0))
        if code == KafkaError._PARTITION_EOF:
            if progress is not None:
                self._silent_seconds = 0.0
                self._at_end(progress, message.offset() or 0)
        elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            if progress is not None and progress.position < progress.start:
                self._begin_at_start(progress)
            elif progress is not None and progress.position < progress.end:
                reason = f"the log no longer has this offset of [{progress.start}, {progress.end}). See on.data.loss."
                raise DataLoss(progress.topic, progress.partition, progress.position, reason)
        elif (damage := damage_of(message)) is not None:
            if progress is not None:
                if damage.offset < progress.end:
                    raise damage
                self._at_end(progress, damage.offset)
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise Unavailable(f"Kafka: {message.topic()}: {error.str()}. Grant this user READ on the topic.")
        elif code not in IGNORED_ERRORS:
            self._consumer.last_error = error.str()

    def _begin_at_start(self, progress: _RangeProgress) -> None:
        """Reads a range from its start, because the log no longer has its anchor."""
        progress.position = progress.start
        self._client.incremental_unassign([TopicPartition(progress.topic, progress.partition)])
        self._client.incremental_assign([TopicPartition(progress.topic, progress.partition, progress.position)])

    def _at_end(self, progress: _RangeProgress, end: int) -> None:
        """Notes that the consumer has returned all readable records before offset `end`."""
        if end >= progress.end:
            progress.position = progress.end
        else:
            self._early_end = f". The log of {progress.topic}-{progress.partition} ends at {end}, before {progress.end}"

    def _distribute(self, messages: list[Message]) -> None:
        """Converts the messages to columns, and adds each partition's rows to its range. `consume` returns the messages
        of a partition in one stretch or in several, each by rising offset.
        """
        partitions = np.fromiter(map(Message.partition, messages), np.int32, len(messages))
        topics = list(map(Message.topic, messages)) if self._has_several_topics else None
        offsets = np.fromiter(map(Message.offset, messages), np.int64, len(messages))
        changes = partitions[1:] != partitions[:-1]
        if topics is not None:
            changes |= np.fromiter((a != b for a, b in pairwise(topics)), np.bool_, len(changes))
        bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(messages)]
        seeds = np.empty(len(messages), np.uint64)
        for start, stop in pairwise(bounds):
            seeds[start:stop] = partition_seed(messages[start].topic() or "", int(partitions[start]))
        headers = headers_of(messages) if self._with_headers else None
        records = message_columns(messages, partitions, offsets, seeds, headers)
        for start, stop in pairwise(bounds):
            progress = self._window.get((messages[start].topic() or "", int(partitions[start])))
            if progress is not None and not progress.is_complete:
                rows = self._add_records(progress, records, offsets, start, stop)
                before = rows.start - 1
                # The row before them is a record between the range's anchor and its start.
                if before >= start and NO_ANCHOR < progress.range.anchor <= offsets[before] < progress.start:
                    progress.before = LastMessage.of(messages, headers, before).anchor()
                if rows:
                    progress.last = LastMessage.of(messages, headers, rows.stop - 1)

    def _add_records(
        self, progress: _RangeProgress, records: pa.RecordBatch, offsets: Any, start: int, stop: int
    ) -> range:
        """Adds those of the rows `[start, stop)` that belong to the range and were not added before. Returns these."""
        first_row = start + int(np.searchsorted(offsets[start:stop], max(progress.position, progress.start)))
        end_row = start + int(np.searchsorted(offsets[start:stop], progress.end))
        earlier_position = progress.position
        if offsets[stop - 1] >= progress.position:
            progress.position = min(int(offsets[stop - 1]) + 1, progress.end) if end_row == stop else progress.end
        if first_row < end_row:
            added = _rows_of(records, first_row, end_row - first_row)
            progress.batches.append(added)
            progress.bytes += added.nbytes
            self._bytes_read += added.nbytes
        self._offsets_read += progress.position - earlier_position
        return range(first_row, end_row)

    def _complete_ranges(self) -> None:
        """Completes the ranges that were read to their end, and unassigns their partitions."""
        finished = [
            progress
            for progress in self._window.values()
            if not progress.is_complete and progress.position >= progress.end
        ]
        for progress in finished:
            progress.complete()
        if finished:
            self._client.incremental_unassign(
                [TopicPartition(progress.topic, progress.partition) for progress in finished]
            )

    def _require_progress(self, head: _RangeProgress) -> None:
        """Raises MemoryError if librdkafka lacks memory or threads, and Unavailable after `SILENT_SECONDS`."""
        if self._consumer.is_exhausted:
            raise MemoryError(f"Kafka: {self._consumer.last_error}")
        if self._silent_seconds > SILENT_SECONDS:
            cause = f": {self._consumer.last_error}" if self._consumer.last_error else ""
            raise Unavailable(
                f"Kafka: no record of {head.topic}-{head.partition} from offset {head.position} on came for"
                f" {self._silent_seconds:.0f} s{cause}{self._early_end}. The sink reads the slices again."
            )


def _rows_of(records: pa.RecordBatch, first_row: int, count: int) -> pa.RecordBatch:
    """Returns rows of a batch. A small part is copied, because a view would keep the whole batch in memory."""
    view = records.slice(first_row, count)
    return pa.concat_batches([view]) if view.nbytes * _COPIED_SHARE < records.nbytes else view


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disables the garbage collector: its search for cycles among the messages takes longer than reading them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
