"""Folds the changes of each key to the one whose row the table has, in Spark, as `docs/how-to/upserts.md` says.

Of a transaction's changes of a key the one with the greatest ordering values counts, among equal ones the last in the
log; a later transaction's counts unless its values are smaller than those of the row. A delete is forgotten with its
row. Raises nothing of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sink.relanding.survey import NUMBER
from sink.schema.table_schema import IS_DELETED
from sink.write.rows.changes import LOG_POSITION

_RANK, _CHANGES, _WINNER = "_sink_rank", "_sink_changes", "_sink_winner"
_PLACE = (NUMBER, *LOG_POSITION.names)


def winners(changes: DataFrame, keys: Mapping[str, Column], ordering: Sequence[str]) -> DataFrame:
    """Returns the changes that are the rows of their keys, with the columns of `changes`."""
    keyed = changes.withColumns(dict(keys))
    newest = [F.col(name).desc() for name in (*ordering, *LOG_POSITION.names)]
    rank = F.row_number().over(Window.partitionBy(*keys, NUMBER).orderBy(*newest))
    last = keyed.withColumn(_RANK, rank).where(F.col(_RANK) == 1)
    values = [F.col(name).alias(f"o{place}") for place, name in enumerate(ordering)] or [F.lit(0).alias("o0")]
    change = F.struct(
        F.col(NUMBER),
        F.struct(*values).alias("order"),
        F.col(IS_DELETED).alias("deletes"),
        *(F.col(name) for name in LOG_POSITION.names),
    )
    listed = last.groupBy(*keys).agg(F.sort_array(F.collect_list(change)).alias(_CHANGES))
    none = F.slice(F.col(_CHANGES), 1, 0)
    folded = listed.withColumn(_WINNER, F.aggregate(_CHANGES, none, _later)).where(F.size(_WINNER) == 1)
    row = F.col(_WINNER)[0]
    places = folded.select(*(row[name].alias(name) for name in _PLACE))
    return changes.join(places, list(_PLACE), "left_semi")


def _later(row: Column, change: Column) -> Column:
    """Returns the row of a key after a change, as a list: an empty one is not a row."""
    is_older = (F.size(row) == 1) & (change["order"] < row[0]["order"])
    without = F.slice(row, 1, 0)
    return F.when(is_older, row).when(change["deletes"], without).otherwise(F.array(change))
