"""The engine of upsert tables: Python decodes the changes, Hudi's index and merge write them.

Guarantee: that of `sink.write.engine`, except for files: each attempt changes the file groups that it finds. The same
slices give the same rows in the table, but not the same files. The coordinator gives a transaction to one worker, and
runs one transaction at a time. The engine does not begin, complete or roll back instants.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from sink.hudi.changes import ordering_fields
from sink.hudi.client import HudiClient
from sink.write.change_keys import change_keys
from sink.write.hudi_engine import HudiEngine
from sink.write.last_changes import last_changes
from sink.write.record_columns import RowSpec


class UpsertEngine(HudiEngine):
    """For write.operation=upsert and insert."""

    def spec(self, columns: str) -> RowSpec:
        """Keeps columns NOT NULL that the settings declare so: in an upsert table every column is nullable."""
        spec = super().spec(columns)
        strict = {field.name for field in self._schema.value_struct.fields if not field.nullable}
        fields = [
            T.StructField(field.name, field.dataType, field.nullable and field.name not in strict)
            for field in spec.schema.value_struct.fields
        ]
        return replace(spec, schema=replace(spec.schema, value_struct=T.StructType(fields)))

    def _write(self, hudi: HudiClient, rows: DataFrame, instant: str, tasks: int) -> list[str]:
        if self._settings.operation == "upsert":
            parts = max(self._spark.sparkContext.defaultParallelism, tasks)
            rows = last_changes(rows, change_keys(self._settings), ordering_fields(self._settings), parts)
        return hudi.write_records(rows._jdf, instant)
