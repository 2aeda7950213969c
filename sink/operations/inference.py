"""Reads a sample of topics once and derives columns that hold it, for `sink infer`.

Guarantee: it changes nothing, commits no offset and leaves no group behind. A sample has committed records only. The
sink's own decoder has decoded every value of it into the columns, except those in `bad`. Raises ConfigError (nothing
can be inferred, with the reason), UnknownTopic, AccessDenied, Unavailable, and the errors of the registry.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import confluent_kafka as ck
import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from coordination.errors import ConfigError, SinkError, Unavailable
from coordination.state.model import LogView, PartitionLog, TopicPartition
from sink.clients.kafka import AccessDenied, Log, topics_of
from sink.config import Settings
from sink.decode.column_records import HEADER_BYTES, message_paths, schema_ids
from sink.decode.cursors import Cursors
from sink.decode.formats import WIRE
from sink.decode.records import TOMBSTONE
from sink.decode.registry import RegisteredSchema, Registry, UnknownSchema, registry
from sink.infer.json_samples import infer_json, nameable
from sink.infer.protobuf import columns_of_message
from sink.infer.record_types import names_of, selected
from sink.infer.registered import SchemaSelection, columns_of_avro, columns_of_registered, nullable
from sink.librdkafka import LogConsumer, damage_of
from sink.schema import parse_ddl
from sink.schema.ddl import to_ddl
from sink.schema.warnings import SchemaWarning, sentences, shown_reason
from sink.write.row_spec import registry_access, value_format

GROUP = "sink-infer"
"""The client asks for a name. No client ever joins that group, nor commits for it."""
QUIET_SECONDS = 30.0
BATCH = 1000
MAX_SAMPLE_BYTES = 256 * 1024**2
"""A sample ends at this size, whatever its request: it is held in memory."""

# librdkafka repeats the exceptions below on standard error.
_QUIET = logging.getLogger("sink.infer.librdkafka")
_QUIET.setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class SampleRequest:
    topics: tuple[str, ...] = ()
    """A subset of kafka.topic.names; empty means all of them."""
    records: int = 10_000
    from_beginning: bool = False
    """Reads the oldest records instead of the newest."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Values in the order of their partitions and offsets."""

    positions: tuple[tuple[TopicPartition, int], ...]
    values: tuple[bytes | None, ...]
    cut: bool = False
    """Whether it ended because of its size."""
    held_back: Mapping[TopicPartition, PartitionLog] = field(default_factory=dict)
    """The partitions of which an open Kafka transaction held records back."""

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
class Inference:
    """`origin` names the source of the columns; `bad` has the values that do not decode, with coordinates."""

    columns: T.StructType
    origin: str
    sample: Sample
    warnings: tuple[str, ...]
    null: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()

    @property
    def ddl(self) -> str:
        return to_ddl(self.columns)


@dataclass(frozen=True, slots=True)
class _Columns:
    columns: T.StructType
    origin: str
    warnings: Sequence[SchemaWarning] = ()
    null: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    bad: Mapping[int, str] = field(default_factory=dict)
    """The values that are already known to be bad."""


def infer(settings: Settings, request: SampleRequest) -> Inference:
    topics = _topics(settings, request)
    if settings.value_format in ("string", "bytes"):
        raise ConfigError(
            f"value.format={settings.value_format}: there is nothing to infer, a value is the one column; no schema.ddl"
            " is needed, but to give it another name"
        )
    sample = read_sample(settings.kafka_native_consumer, topics, request)
    if settings.value_format.removesuffix(WIRE) == "json":
        draft = _columns_of_json(settings, topics, sample)
    elif settings.value_format.endswith(WIRE):
        draft = _columns_of_registry(settings, topics, sample)
    else:
        draft = _columns_of_file(settings)
    warnings = [*draft.warnings, *filter(None, [sample.waiting])]
    columns = nameable(draft.columns, warnings)
    if not columns.fields:
        reason = f" ({warnings[0]})" if warnings else ""
        raise ConfigError(f"{draft.origin}: not one column can be made of it{reason}")
    bad_values = _undecodable(settings, columns, sample, draft.bad)
    return Inference(columns, draft.origin, sample, tuple(sentences(warnings)), draft.null, draft.missing, bad_values)


def _topics(settings: Settings, request: SampleRequest) -> tuple[str, ...]:
    topics = topics_of(settings)
    for topic in request.topics:
        if topic not in topics:
            raise ConfigError(f"--topic {topic} is not among the sink's topics ({', '.join(topics)}); name one of them")
    return request.topics or topics


def _undecodable(settings: Settings, columns: T.StructType, sample: Sample, bad: Mapping[int, str]) -> tuple[str, ...]:
    """Returns the values that the sink's decoder cannot decode."""
    declared = parse_ddl(to_ddl(columns), settings.provenance, bounds=settings.schema_bounds)
    decoder = value_format(settings).decoder(declared.value_struct)
    bad_values = dict(bad)
    remaining = [index for index in range(len(sample.values)) if index not in bad_values]
    for start in range(0, len(remaining), BATCH):
        batch = remaining[start : start + BATCH]
        decoded = decoder.decode(pa.array([sample.values[index] for index in batch], pa.binary()))
        bad_values |= {batch[failure.index]: failure.reason for failure in decoded.bad}
    return tuple(f"{sample.where(index)}: {reason}" for index, reason in sorted(bad_values.items()))


def _columns_of_json(settings: Settings, topics: Sequence[str], sample: Sample) -> _Columns:
    _require_records(topics, sample)
    reasons: dict[int, str] = {}
    values = list(sample.values)
    if settings.value_format.endswith(WIRE):
        _, reasons = _headers(values)
        values = [None if row in reasons or value is None else value[HEADER_BYTES:] for row, value in enumerate(values)]
    inferred = infer_json(values, sample.where)
    bad = {failure.index: reasons.get(failure.index, failure.reason) for failure in inferred.bad}
    if len(bad) == len(values):
        first_bad = min(bad)
        raise ConfigError(
            f"not one of the {len(values):,} values read of {', '.join(topics)} is a record of"
            f" value.format={settings.value_format}: {sample.where(first_bad)}: {bad[first_bad]}"
        )
    return _Columns(
        inferred.columns, f"{len(values) - len(bad):,} records", inferred.warnings, inferred.null, inferred.missing, bad
    )


def _require_records(topics: Sequence[str], sample: Sample) -> None:
    if not sample.values and sample.waiting:
        raise ConfigError(f"{', '.join(topics)}: no record can be read yet: {sample.waiting}. Try again then.")
    if not sample.values:
        is_single = len(topics) == 1
        raise ConfigError(
            f"{', '.join(topics)} {'has' if is_single else 'have'} no record to infer columns from: produce some, or"
            " write schema.ddl by hand"
        )


def _columns_of_file(settings: Settings) -> _Columns:
    """Returns the columns of value.schema.file."""
    file = settings.value_schema_file
    assert file is not None
    if settings.value_format == "avro":
        avro_warnings: list[SchemaWarning] = []
        columns = columns_of_avro(file.read_text("utf-8"), (), avro_warnings, settings.schema_bounds)
        return _Columns(columns, f"value.schema.file ({file})", avro_warnings)
    # The descriptors that the decoder will use.
    protobuf_format = value_format(settings)
    name, columns, warnings = columns_of_message(
        protobuf_format.writer, protobuf_format.message, settings.schema_bounds
    )
    return _Columns(columns, f"{name} of value.schema.file ({file})", warnings)


def _columns_of_registry(settings: Settings, topics: Sequence[str], sample: Sample) -> _Columns:
    """Returns nullable columns only. Writers' schemas change, and a NOT NULL column would halt the sink at the first
    record of a schema without the field."""
    access = registry_access(settings)
    assert access is not None
    schemas = registry(access)
    kind = settings.value_format.removesuffix(WIRE).upper()
    counts, bad_headers = _headers(sample.values, with_paths=kind == "PROTOBUF")
    warnings: list[SchemaWarning] = []
    if not counts:
        latest = _latest(schemas, topics, sample, bad_headers)
        newest = selected(latest, settings.value_message, (), settings.schema_bounds)
    else:
        # Ids rise. Among the messages of one schema, most records decide.
        schema_id, message_index = max(counts, key=lambda key: (key[0], counts[key]))
        newest = SchemaSelection(schemas.schema(schema_id), message_index)
    origin, columns = columns_of_registered(newest, kind, warnings, settings.schema_bounds)
    types = names_of(newest, settings.schema_bounds)
    for schema_id, message_index in sorted(set(counts) - {(newest.schema.id, newest.message)}, reverse=True):
        try:
            selection = SchemaSelection(schemas.schema(schema_id), message_index)
            other, fields = columns_of_registered(selection, kind, [], settings.schema_bounds)
            names = names_of(selection, settings.schema_bounds)
        except (ConfigError, UnknownSchema) as error:
            warnings.append(
                f"schema id {schema_id} ({counts[schema_id, message_index]:,} records) cannot be used:"
                f" {shown_reason(str(error))}"
            )
            continue
        if names and names[0] not in types:
            warnings.append(
                f"schema id {schema_id} ({counts[schema_id, message_index]:,} records) is of type {names[0]}, and the"
                f" columns are those of {types[0]}: its records are bad, unless schema.types lists both"
            )
            continue
        omitted = [name for name in fields.names if name not in columns.names]
        more = f"has also {shown_reason(', '.join(omitted))}, of which no column is made"
        difference = more if omitted else "has no other fields"
        warnings.append(f"{other} ({counts[schema_id, message_index]:,} records) {difference}")
    return _Columns(nullable(columns), origin, warnings)


def _headers(
    values: Sequence[bytes | None], with_paths: bool = False
) -> tuple[Counter[tuple[int, tuple[int, ...]]], dict[int, str]]:
    """Counts the values by schema id and message path. Returns also the error of each value whose header is invalid."""
    array = pa.array(values, pa.binary())
    cursors, rows = Cursors(array), np.arange(len(values))
    cursors.fail(rows[array.is_null().to_numpy(zero_copy_only=False)], TOMBSTONE)
    ids, _ = schema_ids(cursors, rows)
    paths, codes = message_paths(cursors, rows) if with_paths else ([(0,)], np.zeros(len(rows), np.int64))
    valid = ~cursors.failed & (ids >= 0)
    counts = Counter((int(id_), paths[code]) for id_, code in zip(ids[valid], codes[valid].tolist(), strict=True))
    return counts, cursors.reasons


def _latest(
    schema_registry: Registry, topics: Sequence[str], sample: Sample, bad_headers: Mapping[int, str]
) -> RegisteredSchema:
    """Returns the registry's latest schema, for topics without a record that names one."""
    if sample.values:
        first_bad = min(bad_headers)
        raise ConfigError(
            f"not one of the {len(sample.values):,} values read of {', '.join(topics)} names a schema of the registry:"
            f" {sample.where(first_bad)}: {bad_headers[first_bad]}"
        )
    if len(topics) > 1:
        _require_records(topics, sample)
    try:
        return schema_registry.latest(f"{topics[0]}-value")
    except UnknownSchema as error:
        raise ConfigError(f"{topics[0]} has no record to infer columns from, and the {error}") from None


# The sample


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets `[start, end)` to read, and at most `max_records` of their records."""

    start: int
    end: int
    max_records: int


def read_sample(native: Mapping[str, str], topics: Sequence[str], request: SampleRequest) -> Sample:
    """Reads a sample. Raises UnknownTopic for a missing topic; a sample of empty topics is empty."""
    with closing(Log(native)) as log:
        view = log.view(topics)
    sample = _read(native, view, spans(view, request.records, request.from_beginning))
    if not sample.values and not request.from_beginning:
        # Compaction and aborted transactions leave offsets without a record: there may be older records.
        sample = _read(native, view, spans(view, request.records, from_beginning=True))
    return replace(sample, held_back={p: log for p, log in view.partitions.items() if log.held_back})


def spans(view: LogView, records: int, from_beginning: bool) -> dict[TopicPartition, Span]:
    """Divides `records` evenly between partitions. Longer partitions get the share that short ones cannot fill."""
    sizes = {partition: log.end - log.start for partition, log in view.partitions.items() if log.end > log.start}
    remaining, chosen_spans = records, {}
    for position, partition in enumerate(sorted(sizes, key=lambda candidate: (sizes[candidate], candidate))):
        most = min(sizes[partition], -(-remaining // (len(sizes) - position)))
        log = view.partitions[partition]
        if most:
            start = log.start if from_beginning else log.end - most
            chosen_spans[partition] = Span(start, log.end, most)
        remaining -= most
    return chosen_spans


def _read(native: Mapping[str, str], view: LogView, wanted: Mapping[TopicPartition, Span]) -> Sample:
    """Reads from the topics of the view, by their ids. Raises WrongLog for any others."""
    if not wanted:
        return Sample((), ())
    bootstrap, reading, last_message_at = native["bootstrap.servers"], _Reading(wanted), time.monotonic()
    consumer = _consumer(native)
    try:
        consumer.expect(view.cluster, {partition.topic: view.partitions[partition].topic_id for partition in wanted})
        # Assigned, not subscribed: no group is joined.
        consumer.assign([ck.TopicPartition(p.topic, p.partition, span.start) for p, span in wanted.items()])
        while reading.pending and reading.size < MAX_SAMPLE_BYTES:
            messages = consumer.consume(BATCH, 1.0)
            if messages:
                last_message_at = time.monotonic()
            elif time.monotonic() - last_message_at > QUIET_SECONDS:
                raise Unavailable(
                    f"Kafka at {bootstrap} gave nothing of {min(reading.pending)} for {QUIET_SECONDS:.0f} s; check its"
                    " brokers and try again"
                )
            for message in messages:
                if finished := reading.take(message):
                    consumer.pause([ck.TopicPartition(finished.topic, finished.partition)])
    except ck.KafkaException as error:
        raise _cannot_read(error.args[0], bootstrap) from error
    finally:
        consumer.close()
    return reading.sample()


class _Reading:
    """Collects the sample, and tracks which partitions have more to read."""

    def __init__(self, wanted: Mapping[TopicPartition, Span]) -> None:
        self.pending = dict(wanted)
        self.size = 0
        self._records: dict[TopicPartition, list[tuple[int, bytes | None]]] = {p: [] for p in sorted(wanted)}

    def take(self, message: ck.Message) -> TopicPartition | None:
        """Takes a message. Returns its partition if that was the last one to read of it. Raises lasting errors."""
        partition = TopicPartition(str(message.topic()), int(message.partition() or 0))
        offset, error, span = int(message.offset() or 0), message.error(), self.pending.get(partition)
        at_end = error is not None and error.code() == ck.KafkaError._PARTITION_EOF
        if error is not None and not at_end:
            if (damage := damage_of(message)) is not None:
                raise damage
            if not error.retriable():
                raise ck.KafkaException(error)
            return None
        if span is None:
            return None
        records = self._records[partition]
        if not at_end and offset < span.end:
            value: Any = message.value()
            records.append((offset, value))
            self.size += len(value or b"")
        if not (at_end or offset + 1 >= span.end or len(records) >= span.max_records):
            return None
        del self.pending[partition]
        return partition

    def sample(self) -> Sample:
        rows = [(partition, offset, value) for partition, records in self._records.items() for offset, value in records]
        positions = tuple((partition, offset) for partition, offset, _ in rows)
        return Sample(positions, tuple(value for _, _, value in rows), cut=bool(self.pending))


def _consumer(native: Mapping[str, str]) -> LogConsumer:
    settings: dict[str, Any] = {
        **native,
        "group.id": GROUP,
        # If offsets were deleted meanwhile, read the rest of the partition.
        "auto.offset.reset": "earliest",
        "fetch.message.max.bytes": 4 * 1024 * 1024,
        "queued.max.messages.kbytes": 64 * 1024,
    }
    return LogConsumer(settings, _QUIET)


def _cannot_read(error: ck.KafkaError, bootstrap: str) -> SinkError:
    if error.code() == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return AccessDenied(f"Kafka at {bootstrap}: {error.str()}; grant this user READ on the topic")
    return Unavailable(f"Kafka at {bootstrap} cannot be read ({error.str()}); check the address and access")
