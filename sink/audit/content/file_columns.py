"""Compares the columns of a base file with those of its table.

Guarantee: without a fault, readers that convert a file's values to the table's types lose nothing of them, and each
column of the file is one of the table, by the same name. What the sink and its table services write is of the table's
type, or of a narrower one from before a column was widened. Other writers may have widened columns as Hudi does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

META = frozenset(
    {
        "_hoodie_commit_time",
        "_hoodie_commit_seqno",
        "_hoodie_record_key",
        "_hoodie_partition_path",
        "_hoodie_file_name",
        "_hoodie_operation",
    }
)
"""The columns that Hudi gives to rows, which are not in a table's schema."""
_WIDER = frozenset({(pa.int32(), pa.int64()), (pa.int32(), pa.float64()), (pa.float32(), pa.float64())})
_WIDER_BY_HUDI = _WIDER | {(pa.int32(), pa.float32()), (pa.int64(), pa.float32()), (pa.int64(), pa.float64())}
_TEXT_BY_HUDI = frozenset({pa.int32(), pa.int64(), pa.float32(), pa.float64()})


def column_faults(found: pa.Schema, table: pa.Schema, by_others: bool) -> Iterator[tuple[str, str]]:
    """Yields a column of a file and what is wrong with it. `table` has the columns that readers see, `by_others`: the
    file is of another writer.
    """
    known = {column.name.lower(): column for column in table}
    spellings = Counter(name.lower() for name in found.names)
    yield from ((name, f"is there {count:,} times: readers take one") for name, count in spellings.items() if count > 1)
    for column in found:
        own = known.get(column.name.lower(), pa.field(column.name, pa.string()) if column.name in META else None)
        if own is None:
            yield column.name, "is none of the table's: readers leave it out"
        elif own.name != column.name and spellings[column.name.lower()] == 1:
            yield column.name, f"is {own.name} in the table: some readers leave it out"
        elif not _holds(own.type, column.type, by_others):
            yield column.name, f"has type {column.type} there, the table's is {own.type}"


def _holds(wide: pa.DataType, narrow: pa.DataType, by_others: bool) -> bool:
    """Whether readers get each value of the type `narrow` of a file from a column of the type `wide` of its table."""
    if _same(wide, narrow) or (narrow, wide) in (_WIDER_BY_HUDI if by_others else _WIDER):
        return True
    if pa.types.is_decimal(wide) and pa.types.is_decimal(narrow):
        return bool(wide.scale == narrow.scale and wide.precision >= narrow.precision)
    return by_others and ((_is_text(wide) and narrow in _TEXT_BY_HUDI) or _are_moments(wide, narrow))


def _same(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Whether both have the same values: within other types no type widens, and a struct may have got fields."""
    if pa.types.is_struct(wide) and pa.types.is_struct(narrow):
        fields = {field.name: field.type for field in wide}
        return all(field.name in fields and _same(fields[field.name], field.type) for field in narrow)
    if pa.types.is_map(wide) and pa.types.is_map(narrow):
        return _same(wide.key_type, narrow.key_type) and _same(wide.item_type, narrow.item_type)
    if _is_list(wide) and _is_list(narrow):
        return _same(wide.value_type, narrow.value_type)
    if pa.types.is_timestamp(wide) and pa.types.is_timestamp(narrow):
        # Parquet says only whether a moment has a zone.
        return bool(wide.unit == narrow.unit and (wide.tz is None) == (narrow.tz is None))
    # Bytes of a text are those of the text.
    return bool(wide == narrow or (_is_text(wide) and _is_text(narrow)))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in (*tests, pa.types.is_fixed_size_binary))


def _are_moments(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Whether both are moments: Hudi before 1.1 gave them another unit in the schema than in the files."""
    return bool(pa.types.is_timestamp(wide) and pa.types.is_timestamp(narrow))
