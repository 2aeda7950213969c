"""Derives from the settings how records become rows: columns, value format, record keys, table partitions.

Reads the file in value.schema.file, and asks the registry for the columns of schema.subject. Raises ConfigError.

`ColumnResolver` resolves the columns of the next transaction: the table's columns, and the new ones in the registry's
schema. Guarantee: it asks the registry after the coordinator read the log's end offsets, so the newest schema covers
every record below those offsets. It gives no columns of a schema whose fingerprint is not that which decoded records
under its id: the registry is another one. Voided by another registry whose newest id has decoded nothing yet, and by
producers that register a schema under another subject. Raises what the registry raises.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import types as T

from coordination.errors import ConfigError, TableError
from coordination.planning.schema_identity import conflict
from coordination.state.model import LogView, PartitionLog, TopicPartition
from sink.config import Settings
from sink.decode.debezium import row_of_event
from sink.decode.field_names import columns_of_fields
from sink.decode.fingerprints import fingerprint
from sink.decode.formats import WIRE
from sink.decode.registry import RegisteredSchema, UnknownSchema, registry
from sink.hudi.options import (
    change_columns,
    merges_on_read,
    ordering_fields,
    partition_columns,
    partition_paths,
    partition_time,
    require_usable,
)
from sink.hudi.table import Table
from sink.infer.json_samples import with_valid_names
from sink.infer.record_types import landing_types, selected
from sink.infer.registered import columns_of_registered, nullable
from sink.layout.record_keys import DEFAULT_KEY, RecordKeys
from sink.schema.evolution import Compatibility, evolved
from sink.schema.table_schema import TableSchema, check_columns, parse_ddl
from sink.schema.warnings import OmittedField, SchemaWarning, sentences
from sink.write.changes import ChangeSpec
from sink.write.record_columns import RowSpec
from sink.write.specification import specification
from sink.write.value_formats import key_format, registry_access, value_format
from sink.write.value_rules import require_columns

LOG = logging.getLogger(__name__)
_KEYS: dict[str, T.StringType | T.BinaryType] = {"string": T.StringType(), "bytes": T.BinaryType()}
REMEDY = (
    "Change the table with Spark SQL, register a schema that fits, or choose another schema.compatibility. Then clear"
    " the halt with `sink reset`."
)


_LOGGED: dict[str, frozenset[str]] = {}
"""The warnings of each sink's newest schema, by the name of the sink."""


def _log(sink: str, warnings: Sequence[str]) -> None:
    """Logs each warning once, however often the sink asks the registry for the same schema."""
    known = _LOGGED.get(sink, frozenset())
    for warning in warnings:
        if warning not in known:
            LOG.warning("%s", warning)
    _LOGGED[sink] = frozenset(warnings)


def table_schema(
    settings: Settings,
    origin: str = "schema",
    warn: Callable[[str], object] | None = None,
    used: list[RegisteredSchema] | None = None,
) -> TableSchema:
    """Returns the table's schema. For schema.subject it asks the registry for the newest version, and raises what the
    registry raises. `origin` names the text in an error. `warn` gets sentences for the fields that no column holds,
    or only a STRING, in place of the log; `used` gets the registry's schema."""
    if settings.schema_subject is None:
        schema = parse_ddl(settings.schema_text, settings.provenance, origin, settings.schema_bounds)
        named = () if settings.value_message is None else (settings.value_message,)
        schema = replace(schema, types=settings.schema_types or named)
    else:
        warnings: list[SchemaWarning] = []
        columns, types = newest_columns(settings, settings.schema_subject, warnings, used)
        schema = TableSchema(columns, settings.provenance, left_out=tuple(_left_out(settings, warnings)), types=types)
        texts = [f"schema.subject {settings.schema_subject}: {sentence}" for sentence in sentences(warnings)]
        if warn is None:
            _log(settings.name, texts)
        else:
            for text in texts:
                warn(text)
    time = partition_time(settings)
    generated = () if time is None else (time.name,)
    return replace(
        schema,
        key=_KEYS.get(settings.key_format),
        headers=settings.headers,
        generated=generated,
        change=change_columns(settings),
        specification=specification(settings),
    )


def newest_columns(
    settings: Settings, subject: str, warnings: list[SchemaWarning], used: list[RegisteredSchema] | None = None
) -> tuple[T.StructType, tuple[str, ...]]:
    """Returns the columns of the subject's newest schema, and the record types that land. All columns are nullable: a
    NOT NULL column would halt the sink once a newer schema drops its field."""
    access = registry_access(settings)
    assert access is not None
    schema = registry(access).latest(subject)
    if used is not None:
        used.append(schema)
    kind = settings.value_format.removesuffix(WIRE).upper()
    newest = selected(schema, settings.value_message, settings.schema_types, settings.schema_bounds)
    origin, registered = columns_of_registered(newest, kind, warnings, settings.schema_bounds)
    types = landing_types(newest, settings.schema_types, settings.schema_bounds)
    if settings.value_envelope == "debezium":
        registered = row_of_event(registered, f"schema.subject {subject}: {origin}")
    columns = with_valid_names(columns_of_fields(registered, dict(settings.field_names)), warnings)
    if not columns.fields:
        raise ConfigError(f"schema.subject {subject}: {origin} has no field that can be a column.")
    return nullable(columns), types


def _left_out(settings: Settings, warnings: Sequence[SchemaWarning]) -> Iterator[OmittedField]:
    """Yields the omitted fields that would be columns; for Debezium events these are the fields of `after`."""
    row = "after." if settings.value_envelope == "debezium" else ""
    for warning in warnings:
        if isinstance(warning, OmittedField) and warning.path.startswith(row):
            yield replace(warning, path=warning.path.removeprefix(row))


def spec_of(settings: Settings, schema: TableSchema) -> RowSpec:
    """Returns how records become rows, or changes where rows are upserted."""
    return (change_spec if settings.operation == "upsert" else row_spec)(settings, schema)


def row_spec(settings: Settings, schema: TableSchema) -> RowSpec:
    require_columns(settings, schema)
    form = replace(value_format(settings), quotes=settings.errors_quote_values, types=schema.types)
    return RowSpec(schema, form, record_keys(settings), partition_paths(settings))


def change_spec(settings: Settings, schema: TableSchema) -> ChangeSpec:
    rows = row_spec(settings, schema)
    return ChangeSpec(
        rows.schema,
        rows.format,
        rows.keys,
        rows.paths,
        settings.value_envelope,
        settings.debezium_ordering,
        ordering_fields(settings),
        key_format(settings),
        () if settings.key_is_global else rows.paths.sources,
        settings.delete_field,
    )


def record_keys(settings: Settings) -> RecordKeys:
    """Returns how record keys are made. With several fields, or several partition columns, Hudi writes the names of the
    fields into the key."""
    fields = tuple(settings.record_key_fields)
    if fields == DEFAULT_KEY:
        fields = ()
    return RecordKeys(fields, with_field_names=len(fields) > 1 or len(partition_columns(settings)) > 1)


class ColumnResolver:
    def __init__(self, settings: Settings, table: Table) -> None:
        self._settings = settings
        self._table = table
        self._compatibility = Compatibility(settings.schema_compatibility)
        self._seen_partitions: Mapping[TopicPartition, PartitionLog] = {}
        self._schema: TableSchema | None = None
        self._newest: list[RegisteredSchema] = []

    def resolve(self, log: LogView) -> LogView:
        """Returns the log view with the columns for its records, or with the reason why the table cannot have them."""
        try:
            schema = self._schema_for(log)
            if (failure := self._other_registry()) is not None:
                return replace(log, schema_conflict=f"{failure} (the newest schema of {self._settings.schema_subject})")
            change = schema.change.names if schema.change else ()
            added_columns = {*schema.added.names, *schema.generated, *change}
            table = T.StructType([field for field in self._table.columns.fields if field.name not in added_columns])
            on_read = merges_on_read(self._settings)
            widens = self._settings.schema_widen_decimals
            columns = evolved(table, schema.value_struct, self._compatibility, on_read, schema.left_out, widens)
            if columns != table:
                # Record keys and partition paths are texts: a key column that widens to DOUBLE would change them.
                require_usable(self._settings, replace(schema, value_struct=columns))
                # Each version may be small, and the table of all versions not.
                check_columns(columns, self._settings.schema_bounds)
        except (ConfigError, TableError, UnknownSchema) as error:
            return replace(log, schema_conflict=f"{self._settings.base_path}: {error}\n{REMEDY}")
        return replace(log, columns=replace(schema, value_struct=columns).columns_json)

    def _schema_for(self, log: LogView) -> TableSchema:
        if self._schema is None or (self._settings.schema_subject and log.partitions != self._seen_partitions):
            # Without new records the columns stay as they are, even if the registry does not answer.
            self._newest = []
            self._schema = table_schema(self._settings, used=self._newest)
            self._seen_partitions = log.partitions
        return self._schema

    def _other_registry(self) -> str | None:
        """Tells why the newest schema is another one than records were decoded with under its id; None if it is not."""
        access = registry_access(self._settings)
        if access is None:
            return None
        used = ((access.qualified(schema.id), schema) for schema in self._newest)
        known = self._table.known_schemas
        failure = conflict(known, [(name, fingerprint(schema)) for name, schema in used if name in known])
        return None if failure is None else failure.reason
