"""The row engine: Python decodes the records, Hudi's bulk-insert row writer writes them.

Guarantee: that of `sink.write.engine`; rows, keys, counts and digests are those of the Arrow engine. Hudi chooses new
file ids in every attempt, so that two attempts never share a file group. It works on every file system that Hudi
supports. Voided by `spark.speculation=true`, which the settings refuse. Raises BadRecord, DataLoss, ConfigError.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from sink.config import Settings
from sink.hudi.client import HudiClient
from sink.hudi.preflight import require_usable
from sink.schema import TableSchema
from sink.write.hudi_engine import Decoding, HudiEngine, decoding_of_rows
from sink.write.row_spec import row_spec


class RowEngine(HudiEngine):
    def __init__(self, spark: SparkSession, settings: Settings, schema: TableSchema) -> None:
        super().__init__(spark, settings, schema)
        self._spec = row_spec(settings, schema)

    def check(self) -> None:
        """Refuses settings that this engine cannot serve."""
        require_usable(self._settings, self._schema, "hudi")
        self._inputs.check()
        self._spec.format.decoder(self._schema)

    def _decoding(self, schema: TableSchema) -> Decoding:
        return decoding_of_rows(replace(self._spec, schema=schema))

    def _write(self, hudi: HudiClient, rows: DataFrame, instant: str, _tasks: int) -> list[str]:
        return hudi.bulk_insert_rows(rows._jdf, instant)
