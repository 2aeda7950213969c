"""Reads a sample of topics once and derives columns and settings that land it, for `sink infer`.

Guarantee: it changes nothing. The sink's own decoder, with the settings that are proposed, has decoded every record of
the sample into the columns, except those in `bad`. Raises ConfigError (nothing can be inferred, with the reason), what
`sink.operations.samples` raises, and the errors of the registry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.clients.kafka.log import topics_of
from sink.config import Settings
from sink.config.record_formats import registry_access, value_format
from sink.decode.debezium import row_of_event
from sink.decode.formats import WIRE
from sink.decode.registry.client import RegisteredSchema, Registry, UnknownSchema, registry
from sink.infer.json_samples import NO_TYPES, infer_objects, refusals
from sink.infer.message_rows import message_rows
from sink.infer.record_types import record_type_names, select_message
from sink.infer.registered import SchemaSelection, columns_of_registered, nullable
from sink.operations.proposals import Proposal, is_event_type, of_row, proposal_of
from sink.operations.samples import Sample, SampleRequest, read_sample
from sink.operations.written_schemas import columns_of_file, ids_of, without_headers
from sink.schema.ddl import to_ddl
from sink.schema.warnings import SchemaWarning, sentences, shown_reason


@dataclass(frozen=True, slots=True)
class Inference:
    """`origin` names the source of the columns; `bad` has the records that do not decode, with coordinates."""

    columns: T.StructType
    origin: str
    sample: Sample
    warnings: tuple[str, ...]
    null: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings that the records need and the configuration lacks."""

    @property
    def ddl(self) -> str:
        return to_ddl(self.columns)


@dataclass(frozen=True, slots=True)
class _Draft:
    fields: T.StructType
    origin: str
    proposal: Proposal
    warnings: Sequence[SchemaWarning] = ()
    null: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def infer(settings: Settings, request: SampleRequest) -> Inference:
    topics = _topics(settings, request)
    if settings.value_format in ("string", "bytes"):
        raise ConfigError(
            f"value.format={settings.value_format}: there is nothing to infer, a value is the one column. No schema.ddl"
            " is needed, but to give it another name."
        )
    return inference_of(settings, topics, read_sample(settings, topics, request))


def inference_of(settings: Settings, topics: Sequence[str], sample: Sample) -> Inference:
    """Derives columns and settings from a sample of the topics."""
    if settings.value_format.removesuffix(WIRE) == "json":
        draft = _columns_of_json(settings, topics, sample)
    elif settings.value_format.endswith(WIRE):
        draft = _columns_of_registry(settings, topics, sample)
    else:
        draft = _columns_of_file(settings, sample)
    warnings = [*draft.warnings, *filter(None, [sample.waiting])]
    columns = draft.proposal.columns(draft.fields, warnings)
    if not columns.fields:
        reason = f" ({warnings[0]})" if warnings else ""
        raise ConfigError(f"{draft.origin}: not one column can be made of it{reason}")
    bad = draft.proposal.refusals(draft.fields, sample)
    warnings += draft.proposal.left_open(draft.fields)
    return Inference(
        columns,
        draft.origin,
        sample,
        tuple(sentences(warnings)),
        draft.null,
        draft.missing,
        tuple(f"{sample.where(index)}: {reason}" for index, reason in sorted(bad.items())),
        draft.proposal.by_name(draft.fields),
    )


def _topics(settings: Settings, request: SampleRequest) -> tuple[str, ...]:
    topics = topics_of(settings.kafka_native, settings.topics, settings.topic_pattern)
    for topic in request.topics:
        if topic not in topics:
            raise ConfigError(
                f"--topic {topic} is not among the sink's topics ({', '.join(topics)}). Name one of them."
            )
    return request.topics or topics


def _columns_of_json(settings: Settings, topics: Sequence[str], sample: Sample) -> _Draft:
    _require_records(topics, sample)
    form = value_format(settings)
    values = sample.column("value", form)
    contents = without_headers(values) if form.is_wire else values
    messages = message_rows(contents, settings.value_envelope == "debezium")
    proposal = proposal_of(settings, sample, messages.are_events, messages.meanings)
    inferred = infer_objects(
        messages.rows, lambda fields: proposal.refusals(fields, sample), sample.where, messages.types
    )
    if not inferred.columns.fields and (not messages.rows or inferred.bad):
        reasons = refusals(NO_TYPES, dict(enumerate(contents)))
        reasons |= {value.index: value.reason for value in inferred.bad} | (ids_of(values)[1] if form.is_wire else {})
        first_bad = min(reasons, default=0)
        reason = reasons.get(first_bad, "it has no row")
        raise ConfigError(
            f"not one of the {len(values):,} values read of {', '.join(topics)} is a record of"
            f" value.format={settings.value_format}: {sample.where(first_bad)}: {reason}"
        )
    good = len(messages.rows) - len(inferred.bad)
    return _Draft(inferred.columns, f"{good:,} records", proposal, inferred.warnings, inferred.null, inferred.missing)


def _require_records(topics: Sequence[str], sample: Sample) -> None:
    if not sample.batches and sample.waiting:
        raise ConfigError(f"{', '.join(topics)}: no record can be read yet: {sample.waiting}. Try again then.")
    if not sample.batches:
        is_single = len(topics) == 1
        raise ConfigError(
            f"{', '.join(topics)} {'has' if is_single else 'have'} no record to infer columns from: produce some, or"
            " write schema.ddl by hand"
        )


def _columns_of_file(settings: Settings, sample: Sample) -> _Draft:
    """Returns the columns of value.schema.file."""
    # The form has the descriptors that the decoder will use.
    name, columns, warnings = columns_of_file(settings, value_format(settings))
    origin = f"{name} of value.schema.file ({settings.value_schema_file})"
    return _Draft(columns, origin, proposal_of(settings, sample), warnings)


def _columns_of_registry(settings: Settings, topics: Sequence[str], sample: Sample) -> _Draft:
    """Returns nullable columns only. Writers' schemas change, and a NOT NULL column would halt the sink at the first
    record of a schema without the field."""
    access = registry_access(settings)
    assert access is not None
    schemas = registry(access)
    kind = settings.value_format.removesuffix(WIRE).upper()
    values = sample.column("value", value_format(settings))
    counts, bad_headers = ids_of(values, with_paths=kind == "PROTOBUF")
    warnings: list[SchemaWarning] = []
    if not counts:
        latest = _latest(schemas, topics, sample, bad_headers)
        newest = select_message(latest, settings.value_message, (), settings.schema_bounds)
    else:
        # Ids rise. Among the messages of one schema, most records decide.
        schema_id, message_index = max(counts, key=lambda key: (key[0], counts[key]))
        newest = SchemaSelection(schemas.schema(schema_id), message_index)
    of_newest: list[SchemaWarning] = []
    origin, columns = columns_of_registered(newest, kind, of_newest, settings.schema_bounds)
    types = record_type_names(newest, settings.schema_bounds)
    are_events = settings.value_envelope == "debezium" or is_event_type(columns)
    if are_events:
        columns, of_newest = row_of_event(columns, origin), of_row(of_newest)
    warnings += of_newest
    for schema_id, message_index in sorted(set(counts) - {(newest.schema.id, newest.message)}, reverse=True):
        try:
            selection = SchemaSelection(schemas.schema(schema_id), message_index)
            other, fields = columns_of_registered(selection, kind, [], settings.schema_bounds)
            names = record_type_names(selection, settings.schema_bounds)
            fields = row_of_event(fields, other) if are_events else fields
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
    return _Draft(nullable(columns), origin, proposal_of(settings, sample, are_events), warnings)


def _latest(
    schema_registry: Registry, topics: Sequence[str], sample: Sample, bad_headers: Mapping[int, str]
) -> RegisteredSchema:
    """Returns the registry's latest schema, for topics without a record that names one."""
    if sample.batches:
        first_bad = min(bad_headers)
        raise ConfigError(
            f"not one of the {len(sample.positions):,} values read of {', '.join(topics)} names a schema of the"
            f" registry: {sample.where(first_bad)}: {bad_headers[first_bad]}"
        )
    if len(topics) > 1:
        _require_records(topics, sample)
    try:
        return schema_registry.latest(f"{topics[0]}-value")
    except UnknownSchema as error:
        raise ConfigError(f"{topics[0]} has no record to infer columns from, and the {error}") from None
