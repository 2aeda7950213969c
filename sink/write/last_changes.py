"""Reduces the changes of a transaction to the last one of each key.

Guarantee: the result does not depend on the order in which Spark brings the changes: every attempt gives the same rows.
The change with the greatest ordering value wins; among equals, or without ordering columns, the one with the highest
topic, partition and offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sink.write.changes import LOG_POSITION

_RANK = "_sink_rank"


def last_changes(changes: DataFrame, keys: Mapping[str, Column], ordering: Sequence[str], parts: int) -> DataFrame:
    """Returns the last change of each key, without the log position, in `parts` Spark partitions."""
    newest = [F.col(name).desc() for name in (*ordering, *LOG_POSITION.names)]
    rank = F.row_number().over(Window.partitionBy(*keys).orderBy(*newest))
    keyed = changes.withColumns(dict(keys)).repartition(parts, *keys)
    rows = keyed.withColumn(_RANK, rank).where(F.col(_RANK) == 1)
    return rows.select(*(name for name in changes.columns if name not in LOG_POSITION.names))
