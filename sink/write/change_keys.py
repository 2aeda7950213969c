"""Columns that are equal in two changes exactly if Hudi sees one row: the record key and the partition path, as text.

Guarantee: two changes agree in these columns if, and only if, Hudi's key generator gives them one key. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from sink.config import Settings
from sink.hudi.options import partition_columns, record_key_fields
from sink.layout.partition_paths import NULL_PARTITION
from sink.layout.record_keys import EMPTY

_KEY = "_sink_key"
_PARTITION = "_sink_partition"


def change_keys(settings: Settings) -> Mapping[str, Column]:
    """Returns the columns by name; some are columns of the changes themselves."""
    key = _record_key(record_key_fields(settings))
    return key if settings.key_is_global else {**key, **_partition(partition_columns(settings))}


def _record_key(fields: Sequence[str]) -> dict[str, Column]:
    """Joins the fields as Hudi does, for which ("1,b:2", "3") and ("1", "2,b:3") are one key."""
    if len(fields) == 1:
        return {fields[0]: F.col(fields[0])}
    return {_KEY: F.concat_ws(",", *(F.concat(F.lit(f"{name}:"), _key_text(name, EMPTY)) for name in fields))}


def _partition(columns: Sequence[str]) -> dict[str, Column]:
    """Maps null and the empty string to one partition, as Hudi does."""
    return {f"{_PARTITION}_{name}": _key_text(name, NULL_PARTITION) for name in columns}


def _key_text(name: str, empty: str) -> Column:
    as_string = F.col(name).cast("string")
    return F.coalesce(F.nullif(as_string, F.lit("")), F.lit(empty))
