"""Lists and groups the rows of an errors table without Spark: hudi-rs reads them, DuckDB selects.

Memory is bounded by the rows shown. Raises TableError for a table that cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
from hudi import HudiReadOptions

from coordination.errors import TableError
from sink.bad_records.selection import Selection
from sink.hudi.commits import active_names, any_commit
from sink.storage.access import Access
from sink.storage.hudi_rs import raised_by_hudi, rust_table
from sink.storage.table_files import open_table

GROUPS = {
    "reason": "reason",
    "kind": "kind",
    "topic": "_kafka_topic",
    "partition": "_kafka_topic, _kafka_partition",
    "transaction": "transaction",
}
_TYPES = {
    "sink": pa.string(),
    "_kafka_topic": pa.string(),
    "topic_id": pa.string(),
    "_kafka_partition": pa.int32(),
    "_kafka_offset": pa.int64(),
    # In UTC: with a zone DuckDB needs a package for time zones.
    "_kafka_timestamp": pa.timestamp("us"),
    "_kafka_key": pa.binary(),
    "value": pa.binary(),
    "kind": pa.string(),
    "reason": pa.string(),
    "generation": pa.int32(),
    "transaction": pa.int64(),
    "instant": pa.string(),
    "replayed_instant": pa.string(),
}
_NARROW_TYPES = {name: kind for name, kind in _TYPES.items() if name not in ("value", "_kafka_key")}
"""The types without those of columns that may be large."""
_BATCH_ROWS = 8192
_FIRST = 'struct_pack(topic := _kafka_topic, partition := _kafka_partition, "offset" := _kafka_offset)'
_KEY_COLUMNS = "_kafka_topic, topic_id, _kafka_partition, _kafka_offset, generation"


def list_errors(base_path: str, access: Access, selection: Selection, limit: int) -> tuple[list[dict[str, Any]], int]:
    """Returns the first rows by key, and the number of all rows."""
    condition, values = selection.sql()
    query = f"SELECT count(*) AS records FROM errors WHERE {condition}"
    [total] = _fetch(_rows(base_path, access, _NARROW_TYPES), query, values)
    query = f"SELECT * FROM errors WHERE {condition} ORDER BY {_KEY_COLUMNS} LIMIT {limit}"
    return _fetch(_rows(base_path, access, _TYPES), query, values), int(total["records"])


def group_errors(base_path: str, access: Access, selection: Selection, by: str, limit: int) -> list[dict[str, Any]]:
    """Returns the largest groups: their common values, their number of records, and the first record of each."""
    condition, values = selection.sql()
    query = (
        f"SELECT {GROUPS[by]}, count(*) AS records, min({_FIRST}) AS first FROM errors WHERE {condition}"
        f" GROUP BY {GROUPS[by]} ORDER BY records DESC, {GROUPS[by]} LIMIT {limit}"
    )
    return _fetch(_rows(base_path, access, _NARROW_TYPES), query, values)


def _fetch(rows: pa.RecordBatchReader, query: str, values: list[Any]) -> list[dict[str, Any]]:
    """Returns the result of a query of the rows, which it names `errors`."""
    with duckdb.connect() as connection:
        connection.register("errors", rows)
        result = connection.execute(query, values)
        names = [column[0] for column in result.description or ()]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def _rows(base_path: str, access: Access, types: dict[str, pa.DataType]) -> pa.RecordBatchReader:
    schema = pa.schema(list(types.items()))

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for batch in _stored(base_path, access, list(types)):
                yield pa.RecordBatch.from_arrays(
                    [batch.column(name).cast(kind) for name, kind in types.items()], schema=schema
                )
        except (pa.ArrowInvalid, KeyError) as error:
            raise TableError(f"{base_path} is not an errors table of a sink: {error}") from error
        except Exception as error:
            if not raised_by_hudi(error):
                raise
            raise TableError(f"{base_path}: hudi-rs cannot read the errors table: {str(error)[:300]}") from error

    return pa.RecordBatchReader.from_batches(schema, batches())


def _stored(base_path: str, access: Access, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yields the table's rows."""
    files = open_table(base_path, access)
    if not any_commit(active_names(files)):
        return
    options = HudiReadOptions(projection=columns).with_batch_size(_BATCH_ROWS)
    table = rust_table(files)
    reader = table.create_file_group_reader_with_options(HudiReadOptions())
    for file_slice in table.get_file_slices(HudiReadOptions()):
        paths = file_slice.base_file_relative_path(), file_slice.log_files_relative_paths()
        yield from reader.read_file_slice_from_paths_stream(*paths, options)
