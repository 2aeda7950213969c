"""Reads the slices of a write task from Kafka into Arrow, with one librdkafka consumer, in the order of the task.

Guarantee: exactly the committed records of each slice, slice after slice, by rising offset. A slice is complete when
the consumer has seen a record, or the end of the partition, at or beyond its end: compaction, transaction markers and
aborted transactions leave gaps. Memory is bounded in bytes, whatever the number of partitions: the reader assigns
partitions ahead as far as their records are estimated to fit a window, and unassigns the last ones if their records
were larger. The records come from the cluster and the topic ids that the consumer is bound to (`sink.librdkafka`), and
`reads` says so for each range, with the records by which the log can be told from another one. Raises WrongLog,
DataLoss for an offset that the log does not have, DamagedLog for a batch that has changed, Unavailable when it waits
`SILENT_SECONDS` without a record, and SinkError.

A message without a timestamp, which is -1 in Kafka's protocol, or without headers has null;
`sink.write.reading.record_headers` reports headers that cannot be read. A timestamp that microseconds cannot hold is
cut to one far beyond the year 9999.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import KafkaError, Message, TopicPartition

from coordination.errors import DataLoss, Unavailable
from coordination.state.log_records import Anchor, ReadRange
from coordination.state.model import NO_ANCHOR, Slice, WriteTask
from sink.librdkafka import LogConsumer, damage_of
from sink.write.reading.anchors import LastMessage
from sink.write.reading.headers_column import headers_column
from sink.write.reading.kafka_consumer import KeptConsumer
from sink.write.reading.read_batches import BatchBuilder, ReadBatch, SliceIndex
from sink.write.reading.record_digests import Hashes, partition_seed, record_digests
from sink.write.reading.record_headers import Headers, headers_of

SILENT_SECONDS = 60.0
_WAIT_SECONDS = 0.02
_MESSAGES = 4096
_SMALL_PART = 4
IGNORED_ERRORS = {KafkaError.GROUP_AUTHORIZATION_FAILED}
"""librdkafka looks up the consumer group, which the sink does not use."""
_TIME = pa.timestamp("us", "UTC")
_NO_TIME = -1
MOST_MILLIS = (2**63 - 1) // 1000
"""The last milliseconds since 1970 that a timestamp of microseconds holds."""
_INT_MAX = (1 << 31) - 1
_TOO_MANY = f"values or keys of more than {_INT_MAX} bytes were read at a time"


def message_columns(
    messages: Sequence[Message],
    partitions: npt.NDArray[np.int32],
    offsets: npt.NDArray[np.int64],
    seeds: Hashes,
    headers: Sequence[Headers] | None,
) -> pa.RecordBatch:
    """Returns the columns value, key, partition, offset, timestamp, digest and, if there are `headers`, headers.

    `seeds` has the digest seed of each message's partition.
    """
    values = list(map(Message.value, messages))
    keys = list(map(Message.key, messages))
    times = np.fromiter([time for _, time in map(Message.timestamp, messages)], np.int64, len(messages))
    columns = {
        "value": _binary(values),
        "key": _binary(keys),
        "partition": pa.array(partitions),
        "offset": pa.array(offsets),
        "timestamp": pa.array(np.clip(times, -MOST_MILLIS, MOST_MILLIS) * 1000, mask=times == _NO_TIME).view(_TIME),
        "digest": pa.array(record_digests(seeds, offsets, keys, values).view(np.int64)),
    }
    if headers is not None:
        columns["headers"] = headers_column(headers)
    return pa.RecordBatch.from_pydict(columns)


def _binary(values: list[bytes | None]) -> pa.BinaryArray:
    """Builds the array from one joined buffer if there are no nulls: half the time of `pa.array`."""
    if None in values:
        return pa.array(values, pa.binary())
    present = cast("list[bytes]", values)
    ends = np.zeros(len(present) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, present), np.int64, len(present)), out=ends[1:])
    if ends[-1] > _INT_MAX:
        raise pa.ArrowCapacityError(_TOO_MANY)
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(present))]
    return pa.Array.from_buffers(pa.binary(), len(present), buffers)


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits in bytes of keys and values."""

    queue_bytes: int
    """The queue of librdkafka."""
    window_bytes: int
    """Records that were read ahead of the current slice."""
    batch_bytes: int


@dataclass(slots=True)
class _Run:
    """Offsets `[start, end)` of one partition: adjacent slices of the task. Reading begins at its anchor."""

    range: Slice
    position: int
    """The offset to read next."""
    pieces: deque[pa.RecordBatch] = field(default_factory=deque)
    bytes: int = 0
    is_complete: bool = False
    before: Anchor | None = None
    """The last record before `start`, from the slice's anchor on."""
    last: LastMessage | None = None
    """The last record so far, while the run is read: its bytes are among those of the window."""
    last_anchor: Anchor | None = None
    """The last record, once the run is complete."""

    @classmethod
    def of(cls, range: Slice) -> _Run:
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
    def source(self) -> tuple[str, int]:
        return self.range.topic, self.range.partition

    def read(self, read_from: tuple[str, str]) -> ReadRange:
        cluster, topic_id = read_from
        where = (cluster, self.topic, topic_id, self.partition, self.start, self.end)
        return ReadRange(*where, self.before, self.last_anchor)

    def complete(self) -> None:
        self.is_complete = True
        if self.last is not None:
            self.last_anchor, self.last = self.last.anchor(), None


class TaskReader:
    """Reads the slices of a task once. Iterate over it, then `close` it."""

    def __init__(self, consumer: KeptConsumer, task: WriteTask, limits: ReadLimits, headers: bool = False) -> None:
        # Errors of an earlier task do not explain errors of this one.
        consumer.forget_errors()
        self._consumer = consumer
        self._client: LogConsumer = consumer.client
        self._limits = limits
        self._index = SliceIndex(task.slices)
        self._ahead = deque(map(_Run.of, task.ranges))
        self._window: dict[tuple[str, int], _Run] = {}
        self._headers = headers
        self._topics = len({piece.topic for piece in task.slices})
        self._offsets_read = self._bytes_read = 0
        self._silent_seconds = 0.0
        """How long it has waited in vain since the last message; the engine's work between two polls is not a wait."""
        self._last_end = ""
        self.reads: list[ReadRange] = []
        """One for each of the task's ranges that was read to its end."""

    def __iter__(self) -> Iterator[ReadBatch]:
        builder = BatchBuilder(self._limits.batch_bytes)
        while self._window or self._ahead:
            self._extend()
            head = next(iter(self._window.values()))
            if not head.is_complete and not head.pieces:
                self._receive(head)
                self._shrink()
            while head.pieces:
                piece = head.pieces.popleft()
                head.bytes -= piece.nbytes
                offsets = piece.column("offset").to_numpy()
                parts = self._index.parts(head.topic, head.partition, offsets)
                yield from builder.add(head.topic, piece, parts)
            if head.is_complete:
                del self._window[head.source]
                self.reads.append(head.read(self._client.read_from(head.topic)))
        yield from builder.flush()

    def close(self) -> None:
        """Unassigns all partitions; the connections stay."""
        self._client.unassign()

    # The window

    def _extend(self) -> None:
        """Assigns the next partitions, as far as their records are estimated to fit the window.

        It waits until half of the window is free and then assigns many: each call waits for librdkafka's own thread.
        """
        room = self._limits.window_bytes - sum(self._expected(run) for run in self._window.values())
        if self._window and room < self._limits.window_bytes // 2:
            return
        added = []
        while self._ahead and self._ahead[0].source not in self._window:
            run = self._ahead[0]
            room -= self._expected(run)
            if room < 0 and self._window:
                break
            self._window[run.source] = self._ahead.popleft()
            added.append(TopicPartition(run.topic, run.partition, run.position))
        if added:
            self._client.incremental_assign(added)

    def _expected(self, run: _Run) -> int:
        offsets_left = 0 if run.is_complete else run.end - run.position
        return run.bytes + int(offsets_left * self._record_bytes)

    @property
    def _record_bytes(self) -> float:
        """The mean size of a record so far."""
        return (self._bytes_read + 1024.0) / (self._offsets_read + 1)

    def _shrink(self) -> None:
        """Unassigns the last partitions, and drops their records, if the window holds twice its bytes."""
        runs = list(self._window.values())
        held_bytes = sum(run.bytes for run in runs[1:])
        while held_bytes > 2 * self._limits.window_bytes and len(runs) > 1:
            run = runs.pop()
            held_bytes -= run.bytes
            if not run.is_complete:
                self._client.incremental_unassign([TopicPartition(run.topic, run.partition)])
            del self._window[run.source]
            self._ahead.appendleft(_Run.of(run.range))

    # Messages

    def _receive(self, head: _Run) -> None:
        with _no_garbage_collection():
            has_records = self._consume()
        self._finish()
        if not has_records:
            self._require_progress(head)

    def _consume(self) -> bool:
        """Returns whether there were records. It keeps no message: the garbage collector would visit each of them."""
        started = time.monotonic()
        try:
            messages = self._client.consume(self._message_limit(), _WAIT_SECONDS)
        except SystemError as error:
            # The client wraps its MemoryError in this error, and Spark's traceback omits causes.
            raise (error.__cause__ or error) from None
        # At most what it asked for: a machine that was suspended has not waited for Kafka.
        self._silent_seconds += min(time.monotonic() - started, _WAIT_SECONDS)
        error_messages: list[Message] = []
        if any(error is not None for error in map(Message.error, messages)):
            error_messages = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
        if messages:
            self._silent_seconds = 0.0
            self._distribute(messages)
        # After the records: a partition's end-of-partition message follows its last records.
        for message in error_messages:
            self._handle_event(message)
        return bool(messages)

    def _message_limit(self) -> int:
        """Returns the number of messages to ask for: no more than the slices still have, so that `consume` does not
        wait for records that nobody produced, and no more than fit a batch."""
        offsets_left = sum(run.end - run.position for run in self._window.values() if not run.is_complete)
        return max(1, min(_MESSAGES, offsets_left, int(self._limits.batch_bytes / self._record_bytes)))

    def _handle_event(self, message: Message) -> None:
        """Handles a message that is not a record: end of partition, or an error."""
        error = message.error()
        assert error is not None
        code = error.code()
        run = self._window.get((message.topic() or "", message.partition() or 0))
        if code == KafkaError._PARTITION_EOF:
            if run is not None:
                self._silent_seconds = 0.0
                self._at_end(run, message.offset() or 0)
        elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            if run is not None and run.position < run.start:
                self._begin_at_start(run)
            elif run is not None and run.position < run.end:
                reason = f"the log no longer has this offset of [{run.start}, {run.end}). See on.data.loss."
                raise DataLoss(run.topic, run.partition, run.position, reason)
        elif (damage := damage_of(message)) is not None:
            if run is not None:
                if damage.offset < run.end:
                    raise damage
                self._at_end(run, damage.offset)
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise Unavailable(f"Kafka: {message.topic()}: {error.str()}. Grant this user READ on the topic.")
        elif code not in IGNORED_ERRORS:
            self._consumer.last_error = error.str()

    def _begin_at_start(self, run: _Run) -> None:
        """Reads a range without its anchor, which the log no longer has."""
        run.position = run.start
        self._client.incremental_unassign([TopicPartition(run.topic, run.partition)])
        self._client.incremental_assign([TopicPartition(run.topic, run.partition, run.position)])

    def _at_end(self, run: _Run, end: int) -> None:
        if end >= run.end:
            run.position = run.end
        else:
            self._last_end = f". The log of {run.topic}-{run.partition} ends at {end}, before {run.end}"

    def _distribute(self, messages: list[Message]) -> None:
        """Converts the messages to columns, and gives each partition's messages to its run."""
        partitions = np.fromiter(map(Message.partition, messages), np.int32, len(messages))
        topics = list(map(Message.topic, messages)) if self._topics > 1 else None
        offsets = np.fromiter(map(Message.offset, messages), np.int64, len(messages))
        changes = partitions[1:] != partitions[:-1]
        if topics is not None:
            changes |= np.fromiter((a != b for a, b in pairwise(topics)), np.bool_, len(changes))
        bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(messages)]
        seeds = np.empty(len(messages), np.uint64)
        for start, stop in pairwise(bounds):
            seeds[start:stop] = partition_seed(messages[start].topic() or "", int(partitions[start]))
        headers = headers_of(messages) if self._headers else None
        records = message_columns(messages, partitions, offsets, seeds, headers)
        for start, stop in pairwise(bounds):
            run = self._window.get((messages[start].topic() or "", int(partitions[start])))
            if run is not None and not run.is_complete:
                rows = self._add_records(run, records, offsets, start, stop)
                before = rows.start - 1
                if before >= start and NO_ANCHOR < run.range.anchor <= offsets[before] < run.start:
                    run.before = LastMessage.of(messages, headers, before).anchor()
                if rows:
                    run.last = LastMessage.of(messages, headers, rows.stop - 1)

    def _add_records(self, run: _Run, records: pa.RecordBatch, offsets: Any, start: int, stop: int) -> range:
        """Adds the records from the position of the run up to its end. Returns their rows."""
        first_row = start + int(np.searchsorted(offsets[start:stop], max(run.position, run.start)))
        end_row = start + int(np.searchsorted(offsets[start:stop], run.end))
        earlier_position = run.position
        if offsets[stop - 1] >= run.position:
            run.position = min(int(offsets[stop - 1]) + 1, run.end) if end_row == stop else run.end
        if first_row < end_row:
            piece = _rows_of(records, first_row, end_row - first_row)
            run.pieces.append(piece)
            run.bytes += piece.nbytes
            self._bytes_read += piece.nbytes
        self._offsets_read += run.position - earlier_position
        return range(first_row, end_row)

    def _finish(self) -> None:
        """Unassigns the partitions that were read to their end."""
        finished = [run for run in self._window.values() if not run.is_complete and run.position >= run.end]
        for run in finished:
            run.complete()
        if finished:
            self._client.incremental_unassign([TopicPartition(run.topic, run.partition) for run in finished])

    def _require_progress(self, head: _Run) -> None:
        if self._consumer.is_exhausted:
            raise MemoryError(f"Kafka: {self._consumer.last_error}")
        if self._silent_seconds > SILENT_SECONDS:
            cause = f": {self._consumer.last_error}" if self._consumer.last_error else ""
            raise Unavailable(
                f"Kafka: no record of {head.topic}-{head.partition} from offset {head.position} on came for"
                f" {self._silent_seconds:.0f} s{cause}{self._last_end}. The sink reads the slices again."
            )


def _rows_of(records: pa.RecordBatch, first_row: int, count: int) -> pa.RecordBatch:
    """Returns rows of a batch. A small part is copied, because a view would keep the whole batch in memory."""
    piece = records.slice(first_row, count)
    return pa.concat_batches([piece]) if piece.nbytes * _SMALL_PART < records.nbytes else piece


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disables the garbage collector: looking for cycles among the messages takes longer than reading them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
