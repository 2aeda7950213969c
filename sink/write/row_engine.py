"""The row engine: Python decodes the records, Hudi's bulk-insert row writer writes them.

Guarantee: that of `sink.write.engine`; rows, keys, counts and digests are those of the Arrow engine. Hudi chooses new
file ids in every attempt, so that two attempts never share a file group. It works on every file system that Hudi
supports.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from sink.hudi.client import HudiClient
from sink.write.hudi_engine import HudiEngine


class RowEngine(HudiEngine):
    """For write.operation=append with write.engine=hudi."""

    def _write(self, hudi: HudiClient, rows: DataFrame, instant: str, _tasks: int) -> list[str]:
        return hudi.bulk_insert_rows(rows._jdf, instant)
