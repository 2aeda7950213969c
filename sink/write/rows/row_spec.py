"""Derives from a sink's specifications how records become rows: columns, value format, record keys, table partitions.

Asks the registry for the columns of schema.subject. Raises ConfigError.

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
from coordination.state.failures import HaltKind, SchemaConflict
from coordination.state.model import LogView, PartitionLog, TopicPartition
from sink.decode.debezium import row_of_event
from sink.decode.field_names import columns_of_fields
from sink.decode.fingerprints import fingerprint
from sink.decode.formats import WIRE
from sink.decode.registry.client import RegisteredSchema, UnknownSchema, registry
from sink.hudi.options import require_usable
from sink.hudi.specification import TableSpecification
from sink.hudi.table import Table
from sink.infer.json_samples import with_valid_names
from sink.infer.record_types import landing_types, select_message
from sink.infer.registered import columns_of_registered, nullable
from sink.layout.record_keys import DEFAULT_KEY, RecordKeys
from sink.schema.table_schema import TableSchema, check_columns, parse_ddl
from sink.schema.warnings import OmittedField, SchemaWarning, sentences
from sink.write.rows.changes import ChangeSpec
from sink.write.rows.record_columns import RowSpec
from sink.write.rows.specification import RecordSpecification
from sink.write.rows.value_rules import require_columns

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
    table: TableSpecification,
    records: RecordSpecification,
    origin: str = "schema",
    warn: Callable[[str], object] | None = None,
    used: list[RegisteredSchema] | None = None,
) -> TableSchema:
    """Returns the table's schema. For schema.subject it asks the registry for the newest version, and raises what the
    registry raises. `origin` names the text in an error. `warn` gets sentences for the fields that no column holds,
    or only a STRING, in place of the log; `used` gets the registry's schema."""
    source, has_provenance = records.schema, table.has_provenance
    if source.subject is None:
        schema = parse_ddl(source.ddl, has_provenance, origin, records.form.bounds)
        named = () if source.message is None else (source.message,)
        schema = replace(schema, types=source.types or named)
    else:
        warnings: list[SchemaWarning] = []
        is_event = table.changes.envelope == "debezium"
        columns, types = newest_columns(records, source.subject, is_event, warnings, used)
        schema = TableSchema(columns, has_provenance, left_out=tuple(_left_out(is_event, warnings)), types=types)
        texts = [f"schema.subject {source.subject}: {sentence}" for sentence in sentences(warnings)]
        if warn is None:
            _log(table.sink, texts)
        else:
            for text in texts:
                warn(text)
    time = table.partition_time
    generated = () if time is None else (time.name,)
    return replace(
        schema,
        key=_KEYS.get(records.key_column),
        headers=records.header_column,
        generated=generated,
        change=table.change_columns,
        specification=records.decoding,
    )


def newest_columns(
    records: RecordSpecification,
    subject: str,
    is_event: bool,
    warnings: list[SchemaWarning],
    used: list[RegisteredSchema] | None = None,
) -> tuple[T.StructType, tuple[str, ...]]:
    """Returns the columns of the subject's newest schema, which `is_event` says is a Debezium event's, and the record
    types that land. All columns are nullable: a NOT NULL column would halt the sink once a newer schema drops its
    field."""
    source, bounds = records.schema, records.form.bounds
    assert records.registry is not None
    schema = registry(records.registry).latest(subject)
    if used is not None:
        used.append(schema)
    newest = select_message(schema, source.message, source.types, bounds)
    origin, registered = columns_of_registered(newest, records.form.name.removesuffix(WIRE).upper(), warnings, bounds)
    types = landing_types(newest, source.types, bounds)
    if is_event:
        registered = row_of_event(registered, f"schema.subject {subject}: {origin}")
    columns = with_valid_names(columns_of_fields(registered, dict(records.form.rules.names)), warnings)
    if not columns.fields:
        raise ConfigError(f"schema.subject {subject}: {origin} has no field that can be a column.")
    return nullable(columns), types


def _left_out(is_event: bool, warnings: Sequence[SchemaWarning]) -> Iterator[OmittedField]:
    """Yields the omitted fields that would be columns; for Debezium events these are the fields of `after`."""
    row = "after." if is_event else ""
    for warning in warnings:
        if isinstance(warning, OmittedField) and warning.path.startswith(row):
            yield replace(warning, path=warning.path.removeprefix(row))


def spec_of(table: TableSpecification, records: RecordSpecification, schema: TableSchema) -> RowSpec:
    """Returns how records become rows, or changes where rows are upserted."""
    time = table.partition_time
    require_columns(records.form.rules, schema, None if time is None else time.field)
    rows = RowSpec(schema, replace(records.form, types=schema.types), record_keys(table), table.partitions)
    if not table.upserts:
        return rows
    return ChangeSpec(
        rows.schema,
        rows.format,
        rows.keys,
        rows.paths,
        table.changes.envelope,
        table.changes.ordering,
        table.ordering,
        records.key_form,
        () if table.key_is_global else rows.paths.sources,
        table.changes.delete_field,
    )


def record_keys(table: TableSpecification) -> RecordKeys:
    """Returns how record keys are made. With several fields, or several partition columns, Hudi writes the names of the
    fields into the key."""
    fields = () if table.key_fields == DEFAULT_KEY else table.key_fields
    return RecordKeys(fields, with_field_names=len(fields) > 1 or len(table.partition_columns) > 1)


class ColumnResolver:
    def __init__(self, specification: TableSpecification, records: RecordSpecification, table: Table) -> None:
        self._specification = specification
        self._records = records
        self._table = table
        self._seen_partitions: Mapping[TopicPartition, PartitionLog] = {}
        self._schema: TableSchema | None = None
        self._newest: list[RegisteredSchema] = []

    def resolve(self, log: LogView) -> LogView:
        """Returns the log view with the columns for its records, or with the reason why the table cannot have them."""
        try:
            schema = self._schema_for(log)
            if (failure := self._other_registry()) is not None:
                reason = f"{failure} (the newest schema of {self._records.schema.subject})"
                return replace(log, schema_conflict=SchemaConflict(HaltKind.SCHEMA_CHANGED, reason))
            change = schema.change.names if schema.change else ()
            added_columns = {*schema.added.names, *schema.generated, *change}
            table = T.StructType([field for field in self._table.columns.fields if field.name not in added_columns])
            columns = self._specification.evolved(table, schema.value_struct, schema.left_out)
            if columns != table:
                # Record keys and partition paths are texts: a key column that widens to DOUBLE would change them.
                require_usable(self._specification, replace(schema, value_struct=columns))
                # Each version may be small, and the table of all versions not.
                check_columns(columns, self._records.form.bounds)
        except (ConfigError, TableError, UnknownSchema) as error:
            reason = f"{self._specification.base_path}: {error}\n{REMEDY}"
            return replace(log, schema_conflict=SchemaConflict(HaltKind.COLUMNS, reason))
        return replace(log, columns=replace(schema, value_struct=columns).columns_json)

    def _schema_for(self, log: LogView) -> TableSchema:
        if self._schema is None or (self._records.schema.subject and log.partitions != self._seen_partitions):
            # Without new records the columns stay as they are, even if the registry does not answer.
            self._newest = []
            self._schema = table_schema(self._specification, self._records, used=self._newest)
            self._seen_partitions = log.partitions
        return self._schema

    def _other_registry(self) -> str | None:
        """Tells why the newest schema is another one than records were decoded with under its id; None if it is not."""
        access = self._records.registry
        if access is None:
            return None
        used = ((access.qualified(schema.id), schema) for schema in self._newest)
        known = self._table.known_schemas
        failure = conflict(known, [(name, fingerprint(schema)) for name, schema in used if name in known])
        return None if failure is None else failure.reason
