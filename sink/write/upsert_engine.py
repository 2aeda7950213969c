"""The engine of upsert tables: Python decodes the changes, Hudi's index and merge write them.

Guarantee: that of `sink.write.engine`, except for files: each attempt changes the file groups that it finds. The same
slices give the same rows in the table, but not the same files. The coordinator gives a transaction to one worker, and
runs one transaction at a time. The engine does not begin, complete or roll back instants. Voided by
`spark.speculation=true`, which the settings refuse. Raises BadRecord, DataLoss, ConfigError.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from sink.hudi.changes import ordering_fields
from sink.hudi.client import HudiClient
from sink.hudi.preflight import require_usable
from sink.schema import TableSchema
from sink.write.change_keys import change_keys
from sink.write.changes import Changes, ChangeSpec
from sink.write.hudi_engine import Decode, Decoding, HudiEngine, decoding_of_rows
from sink.write.last_changes import last_changes
from sink.write.row_spec import change_spec, row_spec


class UpsertEngine(HudiEngine):
    """For write.operation=upsert and insert."""

    def check(self) -> None:
        """Refuses settings that this engine cannot serve."""
        require_usable(self._settings, self._schema)
        self._inputs.check()
        if self._upserts:
            Changes(change_spec(self._settings, self._schema))
        else:
            row_spec(self._settings, self._schema).format.decoder(self._schema)

    @property
    def _upserts(self) -> bool:
        return self._settings.operation == "upsert"

    def _with_columns(self, columns: str) -> TableSchema:
        """Keeps columns NOT NULL that the settings declare so: in an upsert table every column is nullable."""
        schema = super()._with_columns(columns)
        strict = {field.name for field in self._schema.value_struct.fields if not field.nullable}
        fields = (
            T.StructField(f.name, f.dataType, f.nullable and f.name not in strict) for f in schema.value_struct.fields
        )
        return replace(schema, value_struct=T.StructType(list(fields)))

    def _decoding(self, schema: TableSchema) -> Decoding:
        if not self._upserts:
            return decoding_of_rows(row_spec(self._settings, schema))
        spec = change_spec(self._settings, schema)
        return Decoding(partial(_decoder_of_changes, spec), spec.columns)

    def _write(self, hudi: HudiClient, rows: DataFrame, instant: str, tasks: int) -> list[str]:
        return hudi.write_records((self._last_changes(rows, tasks) if self._upserts else rows)._jdf, instant)

    def _last_changes(self, changes: DataFrame, tasks: int) -> DataFrame:
        parts = max(self._spark.sparkContext.defaultParallelism, tasks)
        return last_changes(changes, change_keys(self._settings), ordering_fields(self._settings), parts)


def _decoder_of_changes(spec: ChangeSpec) -> Decode:
    return Changes(spec).decode_batch
