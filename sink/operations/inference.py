"""Reads a sample of topics once and derives columns that hold it, for `sink infer`.

Guarantee: it changes nothing: it commits no offset and leaves no group behind. A sample has committed records only. The
sink's own decoder has decoded every value of it into the columns, but for those in `bad`. Raises ConfigError (nothing
can be inferred, with the reason), UnknownTopic, AccessDenied, Unavailable, and what the registry raises.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka as ck
import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from coordination.errors import ConfigError, SinkError, Unavailable
from coordination.state.model import LogView, TopicPartition
from sink.clients.kafka import DEFAULTS, AccessDenied, Log, topics_of
from sink.config import Settings
from sink.decode.column_records import HEADER_BYTES, message_paths, schema_ids
from sink.decode.cursors import Cursors
from sink.decode.formats import WIRE
from sink.decode.records import TOMBSTONE
from sink.decode.registry import Registry, UnknownSchema, registry
from sink.infer.json_samples import infer_json, nameable
from sink.infer.protobuf import columns_of_message
from sink.infer.registered import SchemaSelection, columns_of_avro, columns_of_registered, nullable
from sink.schema import parse_ddl
from sink.schema.ddl import to_ddl
from sink.schema.warnings import SchemaWarning
from sink.write.row_spec import registry_access, value_format

GROUP = "sink-infer"
"""The client asks for a name. No client ever joins that group, nor commits for it."""
QUIET_SECONDS = 30.0
BATCH = 1000
MOST_BYTES = 256 * 1024**2
"""A sample ends here, whatever was asked for: it is held in memory."""

# librdkafka repeats on standard error what the exceptions below already say.
_QUIET = logging.getLogger("sink.infer.librdkafka")
_QUIET.setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class SampleRequest:
    topics: tuple[str, ...] = ()
    """A subset of kafka.topic.names; empty means all of them."""
    records: int = 10_000
    from_beginning: bool = False
    """Not the newest records, but the oldest."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Values in the order of their partitions and offsets."""

    places: tuple[tuple[TopicPartition, int], ...]
    values: tuple[bytes | None, ...]
    cut: bool = False
    """Whether it ended for its size."""

    def where(self, index: int) -> str:
        return "{} offset {}".format(*self.places[index])


@dataclass(frozen=True, slots=True)
class Inference:
    """`origin` says where the columns come from; `bad` has the values that do not decode, with coordinates."""

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
    """Values that are known to be bad by now."""


def infer(settings: Settings, request: SampleRequest) -> Inference:
    topics = _topics(settings, request)
    if settings.value_format in ("string", "bytes"):
        raise ConfigError(
            f"value.format={settings.value_format}: there is nothing to infer, a value is the one column; no schema.ddl"
            " is needed, but to give it another name"
        )
    sample = read_sample(settings.kafka_native, topics, request)
    match settings.value_format.removesuffix(WIRE):
        case "json":
            draft = _columns_of_json(settings, topics, sample)
        case "avro":
            draft = _columns_of_avro(settings, topics, sample)
        case _:
            draft = _columns_of_protobuf(settings, topics, sample)
    warnings = list(draft.warnings)
    columns = nameable(draft.columns, warnings)
    if not columns.fields:
        raise ConfigError(f"{draft.origin}: not one column can be made of it{_because(warnings)}")
    bad = _refused(settings, columns, sample, draft.bad)
    return Inference(columns, draft.origin, sample, tuple(map(str, warnings)), draft.null, draft.missing, bad)


def _topics(settings: Settings, request: SampleRequest) -> tuple[str, ...]:
    topics = topics_of(settings)
    for topic in request.topics:
        if topic not in topics:
            raise ConfigError(f"--topic {topic} is not among the sink's topics ({', '.join(topics)}); name one of them")
    return request.topics or topics


def _because(warnings: Sequence[SchemaWarning]) -> str:
    return f" ({warnings[0]})" if warnings else ""


def _refused(settings: Settings, columns: T.StructType, sample: Sample, known: Mapping[int, str]) -> tuple[str, ...]:
    """Decodes the sample as the sink will, and returns the values that fail."""
    decoder = value_format(settings).decoder(parse_ddl(to_ddl(columns), settings.provenance))
    bad = dict(known)
    rest = [index for index in range(len(sample.values)) if index not in bad]
    for start in range(0, len(rest), BATCH):
        some = rest[start : start + BATCH]
        decoded = decoder.decode(pa.array([sample.values[index] for index in some], pa.binary()))
        bad |= {some[bad_value.index]: bad_value.reason for bad_value in decoded.bad}
    return tuple(f"{sample.where(index)}: {reason}" for index, reason in sorted(bad.items()))


def _columns_of_json(settings: Settings, topics: Sequence[str], sample: Sample) -> _Columns:
    _require_records(topics, sample)
    reasons: dict[int, str] = {}
    values = list(sample.values)
    if settings.value_format.endswith(WIRE):
        reasons = _headers(values)
        values = [None if at in reasons or value is None else value[HEADER_BYTES:] for at, value in enumerate(values)]
    inferred = infer_json(values, sample.where)
    bad = {bad_value.index: reasons.get(bad_value.index, bad_value.reason) for bad_value in inferred.bad}
    if len(bad) == len(values):
        first = min(bad)
        raise ConfigError(
            f"not one of the {len(values):,} values read of {', '.join(topics)} is a record of"
            f" value.format={settings.value_format}: {sample.where(first)}: {bad[first]}"
        )
    return _Columns(
        inferred.columns, f"{len(values) - len(bad):,} records", inferred.warnings, inferred.null, inferred.missing, bad
    )


def _require_records(topics: Sequence[str], sample: Sample) -> None:
    if not sample.values:
        one = len(topics) == 1
        raise ConfigError(
            f"{', '.join(topics)} {'has' if one else 'have'} no record to infer columns from: produce some, or write"
            " schema.ddl by hand"
        )


def _headers(values: Sequence[bytes | None], places: bool = False) -> dict[int, str]:
    """Returns the error of each value whose registry header is invalid."""
    array = pa.array(values, pa.binary())
    cursors, rows = Cursors(array), np.arange(len(values))
    cursors.fail(rows[array.is_null().to_numpy(zero_copy_only=False)], TOMBSTONE)
    schema_ids(cursors, rows)
    if places:
        message_paths(cursors, rows)
    return cursors.reasons


# Avro


def _columns_of_avro(settings: Settings, topics: Sequence[str], sample: Sample) -> _Columns:
    if settings.value_format == "avro":
        file = settings.value_schema_file
        assert file is not None
        warnings: list[SchemaWarning] = []
        return _Columns(columns_of_avro(file.read_text("utf-8"), (), warnings), f"value.schema.file ({file})", warnings)
    return _columns_of_registry(settings, topics, sample)


# Protobuf


def _columns_of_protobuf(settings: Settings, topics: Sequence[str], sample: Sample) -> _Columns:
    if settings.value_format == "protobuf":
        # The descriptors as the decoder will have them.
        given = value_format(settings)
        name, columns, warnings = columns_of_message(given.writer, given.message)
        return _Columns(columns, f"{name} of value.schema.file ({settings.value_schema_file})", warnings)
    return _columns_of_registry(settings, topics, sample)


# A registry's


def _columns_of_registry(settings: Settings, topics: Sequence[str], sample: Sample) -> _Columns:
    """Columns are nullable throughout: writers' schemas change, and a column that is NOT NULL would halt the sink at
    the first record of one that has the field no more."""
    access = registry_access(settings)
    assert access is not None
    asked = registry(access)
    kind = settings.value_format.removesuffix(WIRE).upper()
    named = _named(sample.values, places=kind == "PROTOBUF")
    warnings: list[SchemaWarning] = []
    if not named:
        newest = _latest(asked, topics, sample, places=kind == "PROTOBUF")
        if kind == "PROTOBUF":
            warnings.append(f"no record says which message it is: taken is the first of schema id {newest.schema.id}")
    else:
        # Ids rise; of one schema's messages the one that most records are.
        schema_id, message_index = max(named, key=lambda key: (key[0], named[key]))
        newest = SchemaSelection(asked.schema(schema_id), message_index)
    origin, columns = columns_of_registered(newest, kind, warnings)
    for schema_id, message_index in sorted(set(named) - {(newest.schema.id, newest.message_path)}, reverse=True):
        try:
            other, more = columns_of_registered(SchemaSelection(asked.schema(schema_id), message_index), kind, [])
        except (ConfigError, UnknownSchema) as error:
            warnings.append(
                f"schema id {schema_id} ({named[schema_id, message_index]:,} records) cannot be used: {error}"
            )
            continue
        lost = [name for name in more.names if name not in columns.names]
        difference = f"has also {', '.join(lost)}, of which no column is made" if lost else "has no other fields"
        warnings.append(f"{other} ({named[schema_id, message_index]:,} records) {difference}")
    return _Columns(nullable(columns), origin, warnings)


def _named(values: Sequence[bytes | None], places: bool) -> Counter[tuple[int, tuple[int, ...]]]:
    """Counts the values that name each schema, and message of it."""
    array = pa.array([value for value in values if value], pa.binary())
    cursors, rows = Cursors(array), np.arange(len(array))
    ids, _ = schema_ids(cursors, rows)
    known, codes = message_paths(cursors, rows) if places else ([(0,)], np.zeros(len(rows), np.int64))
    good = ~cursors.failed & (ids >= 0)
    return Counter((int(i), known[c]) for i, c in zip(ids[good], codes[good].tolist(), strict=True))


def _latest(asked: Registry, topics: Sequence[str], sample: Sample, places: bool) -> SchemaSelection:
    """Takes the registry's latest schemas, for topics without a record that names one."""
    if sample.values:
        reasons = _headers(sample.values, places)
        first = min(reasons)
        raise ConfigError(
            f"not one of the {len(sample.values):,} values read of {', '.join(topics)} names a schema of the registry:"
            f" {sample.where(first)}: {reasons[first]}"
        )
    if len(topics) > 1:
        _require_records(topics, sample)
    try:
        return SchemaSelection(asked.latest(f"{topics[0]}-value"))
    except UnknownSchema as error:
        raise ConfigError(f"{topics[0]} has no record to infer columns from, and the {error}") from None


# The sample


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets `[start, end)` to read, and how many records at most."""

    start: int
    end: int
    most: int


def read_sample(native: Mapping[str, str], topics: Sequence[str], request: SampleRequest) -> Sample:
    """Reads a sample. Raises UnknownTopic for a missing topic; a sample of empty topics is empty."""
    log = Log(native)
    try:
        view = log.view(topics)
    finally:
        log.close()
    sample = _read(native, spans(view, request.records, request.from_beginning))
    if not sample.values and not request.from_beginning:
        # Compaction and transactions that were aborted leave offsets without a record: there may be older ones.
        sample = _read(native, spans(view, request.records, from_beginning=True))
    return sample


def spans(view: LogView, records: int, from_beginning: bool) -> dict[TopicPartition, Span]:
    """Divides `records` evenly between partitions; what short partitions leave goes to longer ones."""
    sizes = {source: part.end - part.start for source, part in view.partitions.items() if part.end > part.start}
    left, chosen = records, {}
    for position, source in enumerate(sorted(sizes, key=lambda partition: (sizes[partition], partition))):
        most = min(sizes[source], -(-left // (len(sizes) - position)))
        part = view.partitions[source]
        if most:
            start = part.start if from_beginning else part.end - most
            chosen[source] = Span(start, part.end, most)
        left -= most
    return chosen


def _read(native: Mapping[str, str], wanted: Mapping[TopicPartition, Span]) -> Sample:
    if not wanted:
        return Sample((), ())
    bootstrap, reading, heard = native["bootstrap.servers"], _Reading(wanted), time.monotonic()
    consumer = _consumer(native)
    try:
        # Assigned, not subscribed: no group is joined.
        consumer.assign([ck.TopicPartition(s.topic, s.partition, span.start) for s, span in wanted.items()])
        while reading.pending and reading.size < MOST_BYTES:
            messages = consumer.consume(BATCH, timeout=1.0)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > QUIET_SECONDS:
                raise Unavailable(
                    f"Kafka at {bootstrap} gave nothing of {min(reading.pending)} for {QUIET_SECONDS:.0f} s; check its"
                    " brokers and try again"
                )
            for message in messages:
                if done := reading.take(message):
                    consumer.pause([ck.TopicPartition(done.topic, done.partition)])
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
        self._records: dict[TopicPartition, list[tuple[int, bytes | None]]] = {source: [] for source in sorted(wanted)}

    def take(self, message: ck.Message) -> TopicPartition | None:
        """Takes a message. Returns its partition if that was the last of it. Raises lasting errors."""
        source, offset = TopicPartition(str(message.topic()), int(message.partition() or 0)), int(message.offset() or 0)
        error, span = message.error(), self.pending.get(source)
        at_end = error is not None and error.code() == ck.KafkaError._PARTITION_EOF
        if error is not None and not at_end:
            if not error.retriable():
                raise ck.KafkaException(error)
            return None
        if span is None:
            return None
        records = self._records[source]
        if not at_end and offset < span.end:
            value: Any = message.value()
            records.append((offset, value))
            self.size += len(value or b"")
        if not (at_end or offset + 1 >= span.end or len(records) >= span.most):
            return None
        del self.pending[source]
        return source

    def sample(self) -> Sample:
        flat = [(source, offset, value) for source, records in self._records.items() for offset, value in records]
        places = tuple((source, offset) for source, offset, _ in flat)
        return Sample(places, tuple(value for _, _, value in flat), cut=bool(self.pending))


def _consumer(native: Mapping[str, str]) -> ck.Consumer:
    settings: dict[str, Any] = {
        **DEFAULTS,
        **native,
        "group.id": GROUP,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        # Of offsets that were deleted meanwhile, what is left of the partition.
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
        "fetch.message.max.bytes": 4 * 1024 * 1024,
        "queued.max.messages.kbytes": 64 * 1024,
    }
    try:
        return ck.Consumer(settings, logger=_QUIET)
    except ck.KafkaException as error:
        raise ConfigError(f"kafka.*: {error.args[0].str()}; correct or remove the setting") from error


def _cannot_read(error: ck.KafkaError, bootstrap: str) -> SinkError:
    if error.code() == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return AccessDenied(f"Kafka at {bootstrap}: {error.str()}; grant this user READ on the topic")
    return Unavailable(f"Kafka at {bootstrap} cannot be read ({error.str()}); check the address and access")
