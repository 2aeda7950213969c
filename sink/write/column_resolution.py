"""Resolves the columns of the next transaction: the table's columns, and the new ones in the registry's schema.

Guarantee: the resolver asks the registry after the coordinator read the log's end offsets. So the newest schema covers
every record below those offsets. Voided by producers that register a schema under another subject. Raises what the
registry raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import types as T

from coordination.errors import ConfigError, TableError
from coordination.state.model import LogView, PartitionLog, TopicPartition
from sink.config import Settings
from sink.decode.registry import UnknownSchema
from sink.hudi import Table
from sink.hudi.changes import merges_on_read
from sink.hudi.preflight import require_usable
from sink.schema import TableSchema
from sink.schema.evolution import Compatibility, evolved
from sink.write.row_spec import table_schema

REMEDY = (
    "Change the table with Spark SQL, register a schema that fits, or choose another schema.compatibility. Then clear"
    " the halt with `sink reset`."
)


class ColumnResolver:
    def __init__(self, settings: Settings, table: Table) -> None:
        self._settings = settings
        self._table = table
        self._compatibility = Compatibility(settings.schema_compatibility)
        self._seen_partitions: Mapping[TopicPartition, PartitionLog] = {}
        self._schema: TableSchema | None = None

    def resolve(self, log: LogView) -> LogView:
        """Returns the log view with the columns for its records, or with the reason why the table cannot have them."""
        try:
            schema = self._schema_for(log)
            change = schema.change.names if schema.change else ()
            added_columns = {*schema.added.names, *schema.generated, *change}
            table = T.StructType([field for field in self._table.columns.fields if field.name not in added_columns])
            on_read = merges_on_read(self._settings)
            columns = evolved(table, schema.value_struct, self._compatibility, on_read, schema.left_out)
            if columns != table:
                # Record keys and partition paths are texts: a key column that widens to DOUBLE would change them.
                require_usable(self._settings, replace(schema, value_struct=columns))
        except (ConfigError, TableError, UnknownSchema) as error:
            return replace(log, schema_conflict=f"{self._settings.base_path}: {error}\n{REMEDY}")
        return replace(log, columns=str(columns.json()))

    def _schema_for(self, log: LogView) -> TableSchema:
        if self._schema is None or (self._settings.schema_subject and log.partitions != self._seen_partitions):
            # Without new records the columns stay as they are, even if the registry does not answer.
            self._schema = table_schema(self._settings)
            self._seen_partitions = log.partitions
        return self._schema
