"""Tells whether the index of the settings finds the rows that another writer has put into the table.

A table notes neither its index nor its buckets. Where the index looks for rows in other places than the writer before
has put them, each key would get a second row. Guarantee: for `bucket`, keys of up to `COMPARED_FILES` base files, from
all over the table, are in the buckets of the settings, and each file group is a bucket; for `bloom`, as many base files
have a bloom filter. `record` finds rows wherever they are. No sink has appended rows: a key may have several of those.
Voided where only Spark reaches the table. Reads timeline and keys without Hudi. Raises TableError and Unavailable.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coordination.errors import TableError, Unavailable
from sink.hudi.commits import StoredCommit, completed_commits, readable
from sink.hudi.file_groups import FileGroups
from sink.hudi.specification import TableSpecification
from sink.storage.files import Storage
from sink.storage.store import Store

COMPARED_FILES = 32
COMPARED_KEYS = 100
"""Keys of each file."""
_BLOOM_FILTER = b"org.apache.hudi.bloomfilter"
"""The key of the filter in a base file's footer."""
_BUCKET_INDEX = ".hoodie/.bucket_index"
"""Hudi's notes of buckets that divide, or whose number is another one in some table partitions."""
_IN_BUCKET = re.compile(r"00\d{6}-")
"""A file group's id that begins with a bucket's number. Other ids begin with random hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class _TableRows:
    """Where the table's rows are: base files by file group (table partition and file id), and the groups with rows in
    log files. `appending` are sinks that made rows whose files no key can be looked up in."""

    base_files: Mapping[tuple[str, str], str]
    logged: Collection[tuple[str, str]]
    appending: Collection[str]


def rows_conflict(table: TableSpecification, java_hudi: AbstractContextManager[Any]) -> str | None:
    """Tells why the settings' index would not find the table's rows; None if it does, or if there are none. `java_hudi`
    gives Hudi's Java package, which is only asked for buckets. The settings have passed the preflight.
    """
    if not table.store.is_reachable():
        return None
    try:
        rows = _table_rows(table.store)
        if rows.appending:
            return (
                f"the table has rows that sink {', '.join(sorted(rows.appending))} has appended: a key may have several"
                " there, of which an upsert would change one. Upsert into a table of its own (write.operation)."
            )
        if table.index == "record":
            return None
        conflict = _conflict(table, rows, java_hudi)
    except (OSError, pa.ArrowException) as error:
        raise Unavailable(f"{table.base_path}: its files cannot be read ({error}). Try again.") from error
    if conflict is None:
        return None
    location, remedy = conflict
    return (
        f"the table has {location}: index.type={table.index} would not find the rows there, and each key would"
        f" get a second row. Set index.type to {remedy}."
    )


def _conflict(
    table: TableSpecification, rows: _TableRows, java_hudi: AbstractContextManager[Any]
) -> tuple[str, str] | None:
    """Returns where the index does not look, and the value of `index.type` that does."""
    groups = sorted({*rows.base_files, *rows.logged})
    if not groups:
        return None
    storage = table.store.open()
    if table.index == "bloom":
        unfiltered = next((path for path in _sampled(rows) if not _has_bloom_filter(storage, path)), None)
        return None if unfiltered is None else (f"files without a bloom filter ({unfiltered})", "record")
    if storage.exists(_BUCKET_INDEX):
        return "buckets that divide, or whose number is not the same everywhere", "record"
    if unbucketed := next((file_id for _, file_id in groups if not _IN_BUCKET.match(file_id)), None):
        return f"file groups that are not buckets ({unbucketed})", "record, or to the index that it was written with"
    remedy = "record, or set the hoodie.bucket.index.num.buckets and hash.field that the table was written with"
    count = int(table.options["hoodie.bucket.index.num.buckets"])
    if beyond := next((file_id for _, file_id in groups if int(file_id[:8]) >= count), None):
        return f"file group {beyond}, whose number no bucket of the settings has", remedy
    is_compared = False
    with java_hudi as package:
        for path, key in _keys(storage, rows):
            is_compared, bucket = True, bucket_of(table, key, count, package.index.bucket.BucketIdentifier)
            if bucket != int(path.rpartition("/")[2][:8]):
                return f"key {key!r} in {path}, and by the settings it belongs into bucket {bucket}", remedy
    if is_compared:
        return None
    return "no base file with keys that could be compared", "record, or have the table compacted by its writer"


def _table_rows(store: Store) -> _TableRows:
    """Reads all commits, also archived ones. A timeline that cannot be read may be read later."""
    try:
        table = store.table()
    except TableError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise
    try:
        commits = completed_commits(table)
        with readable(store.base_path):
            return _rows_of(commits)
    except TableError as error:
        raise Unavailable(str(error)) from error


def _rows_of(commits: Iterable[StoredCommit]) -> _TableRows:
    """`commits` are in order of completion."""
    groups, appending = FileGroups(), set[str]()
    for commit in commits:
        inserted, _ = groups.add(commit)
        if inserted and commit.metadata["operationType"] == "BULK_INSERT":
            appending |= commit.checkpoints.keys()
    return _TableRows({group: file.path for group, file in groups.base_files.items()}, groups.logged, appending)


def _sampled(rows: _TableRows) -> list[str]:
    """Returns base files from all over the table: by chance, but the same in each worker. Any fixed step may meet the
    same bucket in each table partition.
    """
    paths = sorted(rows.base_files.values())
    return Random(0).sample(paths, min(COMPARED_FILES, len(paths)))


def _has_bloom_filter(storage: Storage, path: str) -> bool:
    with storage.files.open_input_file(storage.locate(path)) as file:
        return _BLOOM_FILTER in (pq.read_metadata(file).metadata or {})


def _keys(storage: Storage, rows: _TableRows) -> Iterator[tuple[str, str]]:
    """Yields base files with record keys of theirs: files from all over the table, the first keys of each."""
    for path in _sampled(rows):
        with storage.files.open_input_file(storage.locate(path)) as file:
            for batch in pq.ParquetFile(file).iter_batches(COMPARED_KEYS, columns=["_hoodie_record_key"]):
                yield from ((path, str(key)) for key in batch.column(0).to_pylist())
                break


def bucket_of(table: TableSpecification, key: str, count: int, identifier: Any) -> int:
    """Returns the bucket of a record key; `identifier` is Hudi's own class for that."""
    fields = table.options.get("hoodie.bucket.index.hash.field") or ",".join(table.record_key)
    return int(identifier.getBucketId(key, fields, count))
