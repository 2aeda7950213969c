"""Which changes are of one row, as Hudi tells rows apart: by the text of the record key and by that of the partition.

Guarantee: two changes are equal in these columns where Hudi's key generator gives them one key, and nowhere else, so
that it need not compare them again. Voided by a slash in one of several partition columns that are not encoded, which
Hudi itself cannot read. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from sink.config import Settings
from sink.hudi.changes import key_is_global
from sink.hudi.options import partition_columns, record_key_fields
from sink.layout.partition_paths import NULL_PARTITION
from sink.layout.record_keys import EMPTY

_KEY = "_sink_key"
_PARTITION = "_sink_partition"


def change_keys(settings: Settings) -> Mapping[str, Column]:
    """By name; some are columns of the changes themselves."""
    key = _record_key(record_key_fields(settings))
    return key if key_is_global(settings) else {**key, **_partition(partition_columns(settings))}


def _record_key(fields: Sequence[str]) -> dict[str, Column]:
    """The text of several fields: ("1,b:2", "3") and ("1", "2,b:3") are one key."""
    if len(fields) == 1:
        return {fields[0]: F.col(fields[0])}
    return {_KEY: F.concat_ws(",", *(F.concat(F.lit(f"{name}:"), _key_text(name, EMPTY)) for name in fields))}


def _partition(columns: Sequence[str]) -> dict[str, Column]:
    """Null and the empty text are one partition."""
    return {f"{_PARTITION}_{name}": _key_text(name, NULL_PARTITION) for name in columns}


def _key_text(name: str, empty: str) -> Column:
    as_string = F.col(name).cast("string")
    return F.coalesce(F.nullif(as_string, F.lit("")), F.lit(empty))
