"""Adds the column ranges of base files that Hudi has written, read from their footers, to their write stats.

Hudi 1.2 takes a column without statistics for one of nulls only, and leaves NaN out of a range: readers that skip by
its ranges would miss rows (apache/hudi#18755, #18754). Guarantee: that of `sink.layout.column_ranges`. Nulls that a
footer does not count are counted in the file, some megabytes at a time: such a column is read again as a whole. Hudi
reads the footer where Python cannot reach the table, and where a nested column has no statistics. Raises what the store
raises.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock

import pyarrow.parquet as pq

from sink.layout.column_ranges import KEY, chunks_without_nulls, ranges_of
from sink.storage.files import Storage, cached_storage
from sink.storage.store import Store

_AT_ONCE = 8
"""Footers that are read at once."""
_BATCH_ROWS = 64
"""The most values that are decoded at once: a dictionary may repeat a long one."""
_BATCH_BYTES = 4 << 20
_BUFFER_BYTES = 1 << 20
"""Bytes that are read at once of a column: a chunk of long values is large."""
_counting = Lock()
"""Held by the thread that counts: a page of long values may be as large as its chunk."""


def with_footer_ranges(store: Store, stats: Sequence[str]) -> list[str]:
    """Returns the write stats, as JSON, those of base files with the ranges of their columns."""
    if not store.is_reachable():
        return list(stats)
    storage = cached_storage(store.base_path, store.access)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(partial(_with_ranges, storage), stats))


def _with_ranges(storage: Storage, stat_json: str) -> str:
    stat = json.loads(stat_json)
    if not stat["path"].endswith(".parquet"):
        return stat_json
    with storage.files.open_input_file(storage.locate(stat["path"])) as source:
        file = pq.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        uncounted = chunks_without_nulls(file.metadata)
        counted = {chunk: nulls for chunk in uncounted if (nulls := _count_nulls(file, *chunk)) is not None}
        ranges = ranges_of(file.metadata, counted=counted) if file.metadata.num_rows else None
    return stat_json if ranges is None else json.dumps({**stat, KEY: ranges})


def _count_nulls(file: pq.ParquetFile, group: int, column: int) -> int | None:
    """Returns None for a nested column, whose nulls Parquet counts otherwise."""
    name = file.metadata.schema.column(column).path
    if name not in file.schema_arrow.names:
        return None
    chunk = file.metadata.row_group(group).column(column)
    average = chunk.total_uncompressed_size // max(1, chunk.num_values)
    rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, average)))
    with _counting:
        return sum(int(batch.column(0).null_count) for batch in file.iter_batches(rows, [group], [name]))
