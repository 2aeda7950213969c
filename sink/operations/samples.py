"""Reads a sample of topics once, for `sink infer` and `sink validate`, as the tasks of a worker read.

Guarantee: it changes nothing, commits no offset and joins no group. A sample has committed records only, in the columns
that the writer's decoders take. It is bounded in records, bytes and seconds, and says which bound ended it. Raises
UnknownTopic, AccessDenied, DamagedLog, WrongLog and Unavailable.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import confluent_kafka as ck
import numpy as np
import pyarrow as pa

from coordination.errors import SinkError, Unavailable
from coordination.state.model import LogView, PartitionLog, TopicPartition
from sink.clients.kafka.log import AccessDenied, Log
from sink.config import Settings
from sink.decode.formats import ValueFormat
from sink.decode.header_ids import wire_column
from sink.librdkafka import LogConsumer, damage_of
from sink.write.reading.kafka_reader import IGNORED_ERRORS
from sink.write.reading.message_columns import message_columns
from sink.write.reading.record_headers import headers_of

QUIET_SECONDS = 30.0
BATCH = 1000
_QUEUE_BYTES = 64 * 1024**2
_MIB = 1024**2

# librdkafka repeats the exceptions below on standard error.
_QUIET = logging.getLogger("sink.samples.librdkafka")
_QUIET.setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class SampleRequest:
    topics: tuple[str, ...] = ()
    """A subset of the sink's topics; empty means all of them."""
    records: int = 10_000
    from_beginning: bool = False
    """Reads the oldest records instead of the newest."""
    bytes_max: int = 256 * _MIB
    """Bytes of keys and values after which a sample ends: it is held in memory."""
    seconds: float = 300.0


@dataclass(frozen=True)
class Sample:
    """Records of each topic, in the order of their partitions and offsets."""

    batches: tuple[tuple[str, pa.RecordBatch], ...] = ()
    """Topics with the columns of `sink.write.reading.message_columns`."""
    cut: str = ""
    """The bound that ended the sample early; empty if none did."""
    held_back: Mapping[TopicPartition, PartitionLog] = field(default_factory=dict)
    """The partitions of which an open Kafka transaction held records back."""

    @cached_property
    def positions(self) -> tuple[tuple[TopicPartition, int], ...]:
        return tuple(
            (TopicPartition(topic, partition), offset)
            for topic, batch in self.batches
            for partition, offset in zip(
                batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True
            )
        )

    def column(self, name: str, form: ValueFormat | None = None) -> list[bytes | None]:
        """Returns the values, or the keys, of all records. In the wire format of a registry ids of headers come before
        them."""
        return [value for _, batch in self.batches for value in wire_column(batch, name, form).to_pylist()]

    @property
    def waiting(self) -> str:
        """Tells what open Kafka transactions hold back; empty without any."""
        if not self.held_back:
            return ""
        offsets = sum(log.held_back for log in self.held_back.values())
        places = [f"{partition} from offset {log.end}" for partition, log in sorted(self.held_back.items())]
        return (
            f"open Kafka transactions hold back {offsets:,} acknowledged offsets, which cannot be read before they end:"
            f" {', '.join(places[:5])}"
        )

    def where(self, index: int) -> str:
        return "{} offset {}".format(*self.positions[index])


@dataclass(frozen=True, slots=True)
class SampledRange:
    """Offsets `[start, end)` to read, and at most `max_records` of their records."""

    start: int
    end: int
    max_records: int


def read_sample(settings: Settings, topics: Sequence[str], request: SampleRequest) -> Sample:
    """Reads a sample. A sample of empty topics is empty."""
    with closing(Log(settings.kafka_native_consumer)) as log:
        view = log.view(topics)
    sample = _read(settings, view, spans(view, request.records, request.from_beginning), request)
    if not sample.batches and not request.from_beginning:
        # Compaction and aborted transactions leave offsets without a record: there may be older records.
        sample = _read(settings, view, spans(view, request.records, from_beginning=True), request)
    return replace(sample, held_back={p: log for p, log in view.partitions.items() if log.held_back})


def spans(view: LogView, records: int, from_beginning: bool) -> dict[TopicPartition, SampledRange]:
    """Divides `records` evenly between partitions. Longer partitions get the share that short ones cannot fill."""
    sizes = {partition: log.end - log.start for partition, log in view.partitions.items() if log.end > log.start}
    remaining, chosen_spans = records, {}
    for position, partition in enumerate(sorted(sizes, key=lambda candidate: (sizes[candidate], candidate))):
        most = min(sizes[partition], -(-remaining // (len(sizes) - position)))
        log = view.partitions[partition]
        if most:
            start = log.start if from_beginning else log.end - most
            chosen_spans[partition] = SampledRange(start, log.end, most)
        remaining -= most
    return chosen_spans


def _read(
    settings: Settings, view: LogView, wanted: Mapping[TopicPartition, SampledRange], request: SampleRequest
) -> Sample:
    """Reads from the topics of the view, by their ids. Raises WrongLog for any others."""
    if not wanted:
        return Sample()
    reading, started = _SampleReading(wanted), time.monotonic()
    last_message_at, cut = started, ""
    most = max(span.max_records for span in wanted.values())
    consumer = _consumer(settings, most)
    try:
        consumer.expect(view.cluster, {partition.topic: view.partitions[partition].topic_id for partition in wanted})
        # Assigned, not subscribed: no group is joined.
        consumer.assign([ck.TopicPartition(p.topic, p.partition, span.start) for p, span in wanted.items()])
        while reading.pending and not (cut := _bound_reached(reading, started, request)):
            messages = consumer.consume(BATCH, 1.0)
            if messages:
                last_message_at = time.monotonic()
            elif time.monotonic() - last_message_at > QUIET_SECONDS:
                raise _silent(settings, min(reading.pending), QUIET_SECONDS)
            for message in messages:
                if finished := reading.take(message):
                    consumer.pause([ck.TopicPartition(finished.topic, finished.partition)])
    except ck.KafkaException as error:
        raise _cannot_read(error.args[0], settings.bootstrap) from error
    finally:
        consumer.close()
    if cut and not reading.size:
        raise _silent(settings, min(reading.pending), request.seconds)
    return Sample(reading.batches(settings.records.reads_headers), cut)


def _bound_reached(reading: _SampleReading, started: float, request: SampleRequest) -> str:
    """Returns the bound that ends the sample, or an empty text."""
    if reading.size >= request.bytes_max:
        return f"no more than {request.bytes_max // _MIB} MiB"
    return f"no more within {request.seconds:.0f} s" if time.monotonic() - started > request.seconds else ""


class _SampleReading:
    """Collects the sample, and tracks which partitions have more to read."""

    def __init__(self, wanted: Mapping[TopicPartition, SampledRange]) -> None:
        self.pending = dict(wanted)
        self.size = 0
        """The bytes of keys and values, and one for each record."""
        self._messages: dict[TopicPartition, list[ck.Message]] = {p: [] for p in sorted(wanted)}

    def take(self, message: ck.Message) -> TopicPartition | None:
        """Takes a message. Returns its partition if that was the last one to read of it. Raises lasting errors."""
        partition = TopicPartition(str(message.topic()), int(message.partition() or 0))
        offset, error, span = int(message.offset() or 0), message.error(), self.pending.get(partition)
        at_end = error is not None and error.code() == ck.KafkaError._PARTITION_EOF
        if error is not None and not at_end:
            if (damage := damage_of(message)) is not None:
                raise damage
            if not (error.retriable() or error.code() in IGNORED_ERRORS):
                raise ck.KafkaException(error)
            return None
        if span is None:
            return None
        messages = self._messages[partition]
        if not at_end and offset < span.end:
            messages.append(message)
            self.size += 1 + len(message.value() or b"") + len(message.key() or b"")
        if not (at_end or offset + 1 >= span.end or len(messages) >= span.max_records):
            return None
        del self.pending[partition]
        return partition

    def batches(self, headers: bool) -> tuple[tuple[str, pa.RecordBatch], ...]:
        """Returns the records by topic."""
        by_topic: dict[str, list[ck.Message]] = {}
        for partition, messages in self._messages.items():
            if messages:
                by_topic.setdefault(partition.topic, []).extend(messages)
        return tuple((topic, columns_of(messages, headers)) for topic, messages in by_topic.items())


def columns_of(messages: Sequence[ck.Message], headers: bool) -> pa.RecordBatch:
    """Returns messages of one topic in the columns that the writer's decoders take."""
    partitions = np.array([message.partition() for message in messages], np.int32)
    offsets = np.array([message.offset() for message in messages], np.int64)
    seeds = np.zeros(len(messages), np.uint64)
    return message_columns(messages, partitions, offsets, seeds, headers_of(messages) if headers else None)


def _consumer(settings: Settings, records: int) -> LogConsumer:
    """Makes a consumer with the settings of a worker's tasks."""
    options: dict[str, Any] = {
        **settings.records.consumer.for_reading(_QUEUE_BYTES, records),
        # If offsets were deleted meanwhile, read the rest of the partition.
        "auto.offset.reset": "earliest",
    }
    return LogConsumer(options, _QUIET)


def _silent(settings: Settings, partition: TopicPartition, seconds: float) -> Unavailable:
    return Unavailable(
        f"Kafka at {settings.bootstrap} gave nothing of {partition} for {seconds:.0f} s. Check its brokers and try"
        " again."
    )


def _cannot_read(error: ck.KafkaError, bootstrap: str) -> SinkError:
    if error.code() == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return AccessDenied(f"Kafka at {bootstrap}: {error.str()}. Grant this user READ on the topic.")
    return Unavailable(f"Kafka at {bootstrap} cannot be read ({error.str()}). Check the address and access.")
