"""Reduces the changes of a transaction to the last one of each key.

Guarantee: a pure function of the changes, whatever order Spark brings them in: every attempt gives the same rows. The
greatest by the ordering columns holds, and among equals, or without such columns, the latest in the log. Of one key in
several Kafka partitions, the later partition counts as the later part of the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sink.write.changes import LOG_POSITION

_RANK = "_sink_rank"


def last_changes(changes: DataFrame, keys: Mapping[str, Column], ordering: Sequence[str], parts: int) -> DataFrame:
    """The rows without their places, in `parts` partitions. Changes that are equal in the `keys` are of one row."""
    newest = [F.col(name).desc() for name in (*ordering, *LOG_POSITION.names)]
    rank = F.row_number().over(Window.partitionBy(*keys).orderBy(*newest))
    keyed = changes.withColumns(dict(keys)).repartition(parts, *keys)
    rows = keyed.withColumn(_RANK, rank).where(F.col(_RANK) == 1)
    return rows.select(*(name for name in changes.columns if name not in LOG_POSITION.names))
