"""Tells whether the index of the settings finds the rows that another writer has put into the table.

A table notes neither its index nor its buckets. Where the index looks for rows in other places than the writer before
has put them, each key would get a second row. Guarantee: with buckets, a base file of the table has been compared with
the settings; without, no row is in a log file alone, as far as the newest commits tell. Rows are read from one file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sink.config import Settings
from sink.hudi.options import record_key_fields

COMPARED_KEYS = 100
_IN_BUCKET = re.compile(r"00\d{6}-")
"""A file group's id that begins with a bucket's number. Other ids begin with random hexadecimal digits."""

Stats = Iterable[Mapping[str, Any]]
ReadKeys = Callable[[str], Sequence[str]]
"""Returns some record keys of a base file, which is named relative to the table."""


def rows_conflict(settings: Settings, stats: Stats, read_keys: ReadKeys, java_hudi: Any) -> str | None:
    """Tells why the settings' index would not find the table's rows; None if it does, or if there are none. `stats`:
    the write stats of the newest commits, the newest first. `java_hudi`: Hudi's Java package.
    """
    conflict = _conflict(settings, list(stats), read_keys, java_hudi)
    if conflict is None:
        return None
    location, remedy = conflict
    return (
        f"the table has {location}: index.type={settings.index_type} would not find the rows there, and each key would"
        f" get a second row; set index.type to {remedy}"
    )


def _conflict(
    settings: Settings, stats: Sequence[Mapping[str, Any]], read_keys: ReadKeys, java_hudi: Any
) -> tuple[str, str] | None:
    """Returns where the index does not look, and the value of `index.type` that does."""
    if not stats or settings.index_type == "record":
        return None
    unbucketed = next((stat["fileId"] for stat in stats if not _IN_BUCKET.match(stat["fileId"])), None)
    if settings.index_type == "bloom":
        has_rows_in_logs = any(_is_log(stat) and stat.get("numInserts") for stat in stats)
        if settings.table_type == "copy_on_write" or (unbucketed and not has_rows_in_logs):
            return None
        return "keys that may be in log files alone", "record, or to the index that the table was written with"
    if unbucketed:
        return f"file groups that are no buckets ({unbucketed})", "bloom or record"
    remedy = "record, or set the hoodie.bucket.index.num.buckets and hash.field that the table was written with"
    for path in filter(None, map(_base_file, stats)):
        for key in read_keys(path):
            bucket = _bucket(settings, key, java_hudi)
            if bucket != int(path.rpartition("/")[2][:8]):
                return f"key {key!r} in {path}, and by the settings it belongs into bucket {bucket}", remedy
        return None
    return "buckets of log files alone, whose keys cannot be compared", "record, or have the table compacted once"


def _is_log(stat: Mapping[str, Any]) -> bool:
    return ".log." in stat["path"]


def _base_file(stat: Mapping[str, Any]) -> str:
    """Returns the path of the file slice's base file; empty if it has none."""
    if not _is_log(stat):
        return str(stat["path"])
    name = stat.get("baseFile") or ""
    return f"{stat['partitionPath']}/{name}".lstrip("/") if name else ""


def _bucket(settings: Settings, key: str, java_hudi: Any) -> int:
    fields = settings.hudi.get("hoodie.bucket.index.hash.field") or ",".join(record_key_fields(settings))
    count = int(settings.hudi["hoodie.bucket.index.num.buckets"])
    return int(java_hudi.index.bucket.BucketIdentifier.getBucketId(key, fields, count))
