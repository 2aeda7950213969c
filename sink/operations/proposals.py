"""Proposes the settings that the records of a sample need and the configuration lacks, and decodes the sample with
them.

Raises ConfigError for columns that the format cannot fill, and the errors of the registry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.config import Settings
from sink.config.groups.meanings import written_path
from sink.config.record_formats import key_format, registry_access, value_format
from sink.decode.field_names import columns_of_fields
from sink.decode.fields import NO_RULES, Columns, Path
from sink.decode.formats import WIRE
from sink.decode.json.reasons import Undecodable
from sink.decode.json.text import JsonObject
from sink.decode.json.values import document_of
from sink.decode.registry.client import UnknownSchema, registry
from sink.infer.field_names import MOST_PROPOSED, placed_columns
from sink.infer.json_envelopes import unwrapped
from sink.infer.json_samples import with_valid_names
from sink.infer.registered import SchemaSelection, columns_of_registered
from sink.layout.partition_paths import PartitionPaths
from sink.layout.record_keys import RecordKeys
from sink.operations.samples import Sample
from sink.operations.written_schemas import ids_of, without_headers
from sink.schema.ddl import to_ddl
from sink.schema.table_schema import parse_ddl
from sink.schema.warnings import OmittedField, SchemaWarning
from sink.write.rows.changes import ChangeSpec
from sink.write.rows.record_columns import RowSpec, separate_bad

_KINDS: Mapping[str, type[T.DataType]] = {
    "time_unit": T.TimestampType,
    "date_unit": T.DateType,
    "decimal_format": T.DecimalType,
}
"""The type of the columns that a setting is for."""
_OF_KEYS = ("record_key_fields", "delete_key_format")
_NO_KEY = (
    "record.key.fields is not set, and the keys of the records do not name their fields: set it to the columns of the"
    " source's primary key"
)


@dataclass(frozen=True)
class Proposal:
    """Changes to the settings, by the names of their attributes, and the columns of a sample's fields."""

    settings: Settings
    changes: Mapping[str, Any]

    def columns(self, fields: T.StructType, warnings: list[SchemaWarning] | None = None) -> T.StructType:
        """Returns the columns of fields, with the names that are set or proposed."""
        return self._named(fields, [] if warnings is None else warnings)[0]

    def by_name(self, fields: T.StructType) -> dict[str, str]:
        """Returns the changes as they are written in a configuration."""
        known = type(self.settings).model_fields
        return {str(known[name].alias): _written(value) for name, value in self._changes(fields).items()}

    def left_open(self, fields: T.StructType) -> list[str]:
        """Returns what has to be set besides, in sentences."""
        proposed = self._proposed(fields)
        return [_NO_KEY] if proposed.operation == "upsert" and not proposed.record_key_fields else []

    def refusals(self, fields: T.StructType, sample: Sample) -> dict[int, str]:
        """Returns the records that the sink's decoder cannot decode to the columns of these fields."""
        columns = self.columns(fields)
        if not columns.fields:
            return {}
        decode, first = _spec(self._proposed(fields), columns).decoder(), 0
        bad: dict[int, str] = {}
        for topic, records in sample.batches:
            _, _, bad_rows = separate_bad(records, topic, decode)
            bad |= {first + bad_row.row: bad_row.reason for bad_row in bad_rows}
            first += records.num_rows
        return bad

    def _proposed(self, fields: T.StructType) -> Settings:
        """Returns the settings with the changes that a table of these fields can have."""
        return self.settings.model_copy(update=self._changes(fields))

    def _named(self, fields: T.StructType, warnings: list[SchemaWarning]) -> tuple[T.StructType, dict[str, Path]]:
        """Returns the columns of fields, and the fields of those that have another name."""
        known = dict(self.settings.field_names)
        new = (placed for placed in placed_columns(fields, known) if placed.is_new)
        names = known | {placed.path: placed.source for placed in islice(new, MOST_PROPOSED)}
        return with_valid_names(columns_of_fields(fields, names), warnings), names

    def _changes(self, fields: T.StructType) -> dict[str, Any]:
        (columns, placed), changes = self._named(fields, []), dict(self.changes)
        # An element has the path of its array, and comes after it.
        kinds = {field.path: field.kind for field in Columns.of(columns, NO_RULES).all_fields}
        known = dict(self.settings.field_names)
        names = {path: source for path, source in placed.items() if path in kinds or path in known}
        if names != known:
            changes["field_names"] = tuple(sorted(names.items()))
        if "record_key_fields" in changes:
            columns_by_field = {source: path for path, source in names.items()}
            keys = tuple(columns_by_field.get((name,), name) for name in changes["record_key_fields"])
            changes["record_key_fields"] = keys
            if not set(keys) <= set(columns.names):
                # The keys are of something else than the rows.
                changes = {name: value for name, value in changes.items() if name not in _OF_KEYS}
        paths = {".".join(column.source): column.path for column in placed_columns(fields, known)}
        for name in _KINDS.keys() & changes.keys():
            pairs = [(paths.get(path, path), choice) for path, choice in changes[name]]
            fitting = [pair for pair in pairs if not pair[0] or isinstance(kinds.get(pair[0]), _KINDS[name])]
            changes[name] = tuple(sorted({**dict(fitting), **dict(getattr(self.settings, name))}.items()))
            if not fitting:
                del changes[name]
        return changes


def proposal_of(
    settings: Settings, sample: Sample, are_events: bool = False, meanings: Mapping[tuple[str, str], str] | None = None
) -> Proposal:
    """Proposes settings. `meanings` has values of `time_unit`, `date_unit` and `decimal_format` by paths of columns."""
    changes: dict[str, Any] = {}
    if are_events:
        changes |= {"operation": "upsert", "value_envelope": "debezium"}
    if are_events or settings.operation == "upsert":
        changes |= _keys(settings, sample)
    for (name, path), value in (meanings or {}).items():
        changes[name] = (*changes.get(name, ()), (path, value))
    return Proposal(settings, {name: value for name, value in changes.items() if value != getattr(settings, name)})


def _keys(settings: Settings, sample: Sample) -> dict[str, Any]:
    """Returns the settings by which the keys of the sample's records can be read."""
    keys = [key for key in sample.column("key") if key is not None]
    if not keys:
        return {}
    fields, name = _key_fields(settings, keys)
    changes: dict[str, Any] = {}
    if not settings.record_key_fields and fields:
        changes["record_key_fields"] = fields
    one_field = len(settings.record_key_fields) == 1
    if settings.delete_key_format == "none" and name and (fields or one_field):
        changes["delete_key_format"] = name
    return changes


def _key_fields(settings: Settings, keys: Sequence[bytes]) -> tuple[tuple[str, ...], str]:
    """Returns the fields that all keys have, and the format of the keys; empty where they say none."""
    if settings.value_format.endswith(WIRE):
        ids, invalid = ids_of(keys)
        if ids and not invalid:
            if settings.value_format == "avro-confluent":
                return _registered_fields(settings, max(schema_id for schema_id, _ in ids)), "avro-confluent"
            return _json_fields([content or b"" for content in without_headers(keys)])[0], "json-confluent"
    return _json_fields(keys)


def _json_fields(keys: Sequence[bytes]) -> tuple[tuple[str, ...], str]:
    try:
        payloads = [unwrapped(document_of(key)).payload for key in keys]
    except Undecodable:
        return (), "string" if all(map(_is_text, keys)) else ""
    names = [[name for name, _ in key] if type(key) is JsonObject else [] for key in payloads]
    are_alike = all(set(other) == set(names[0]) for other in names)
    return tuple(dict.fromkeys(names[0])) if are_alike else (), "json"


def _is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _registered_fields(settings: Settings, schema_id: int) -> tuple[str, ...]:
    access = registry_access(settings)
    assert access is not None
    try:
        selection = SchemaSelection(registry(access).schema(schema_id))
        return tuple(columns_of_registered(selection, "AVRO", [], settings.schema_bounds)[1].names)
    except (ConfigError, UnknownSchema):
        return ()


def is_event_type(columns: T.StructType) -> bool:
    """Whether the columns are those of a change event of Debezium's."""
    return {"op", "source", "after"} <= set(columns.names) and isinstance(columns["after"].dataType, T.StructType)


def of_row(warnings: Sequence[SchemaWarning]) -> list[SchemaWarning]:
    """Returns the warnings that are about the changed row of an event."""
    omitted = [warning for warning in warnings if isinstance(warning, OmittedField)]
    return [replace(field, path=field.path.removeprefix("after.")) for field in omitted if field.path[:6] == "after."]


def _spec(settings: Settings, columns: T.StructType) -> RowSpec:
    """Returns how a worker would decode records to these columns, of which the rest of the settings knows nothing."""
    schema = parse_ddl(to_ddl(columns), settings.provenance, bounds=settings.schema_bounds)
    form = value_format(settings)
    names = tuple(name for name in settings.record_key_fields if name in columns.names)
    rows = RowSpec(schema, form, RecordKeys(names, len(names) > 1), PartitionPaths((), True, False))
    if settings.operation != "upsert":
        return rows
    envelope, keys = settings.value_envelope, key_format(settings) if names else None
    keyed = (envelope, "log", (), keys, (), settings.delete_field)
    return ChangeSpec(rows.schema, rows.format, rows.keys, rows.paths, *keyed)


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value
    pairs = [("", item) if isinstance(item, str) else item for item in value]
    written = [(path, choice if isinstance(choice, str) else written_path(choice)) for path, choice in pairs]
    return ", ".join(f"{path}={choice}" if path else choice for path, choice in written)
