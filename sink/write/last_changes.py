"""Of the changes of a transaction the one of each key that holds after all of them.

Guarantee: a pure function of the changes, whatever order Spark brings them in: every attempt gives the same rows. The
greatest by the ordering columns holds, and among equals, or without such columns, the latest in the log. Of one key in
several Kafka partitions, the later partition counts as the later part of the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from sink.write.changes import PLACE

_RANK = "_sink_rank"


def last_changes(changes: DataFrame, key: Sequence[str], ordering: Sequence[str], parts: int) -> DataFrame:
    """The rows without their places, in `parts` partitions."""
    newest = [F.col(name).desc() for name in (*ordering, *PLACE.names)]
    rank = F.row_number().over(Window.partitionBy(*key).orderBy(*newest))
    rows = changes.repartition(parts, *key).withColumn(_RANK, rank).where(F.col(_RANK) == 1)
    return rows.drop(_RANK, *PLACE.names)
