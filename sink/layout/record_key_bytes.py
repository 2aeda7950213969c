"""Reads the record key's columns from the Kafka key, for deletes whose value does not have them.

Guarantee: rows that need it get the columns from the Kafka key, or are bad with a reason. Raises ConfigError for
columns that the key's format cannot fill.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from sink.decode.debezium import if_else, take_or_null
from sink.decode.formats import ValueFormat
from sink.schema import KEY, TableSchema

_NO_FORMAT = (
    "the value is null (a tombstone) or has no record key, and delete.key.format does not say how to read the Kafka"
    " key. Set it."
)
_NO_KEY = "it has no key to delete: the value is null or has no record key, and the Kafka key is null"
_PAYLOAD = "payload"

Flags = npt.NDArray[np.bool_]


class KeyBytes:
    """Decodes Kafka keys. `form` is None if delete.key.format is `none`. With `wrapped` a JSON key may have Kafka
    Connect's `schema` and `payload` around it."""

    def __init__(self, fields: Sequence[str], schema: TableSchema, form: ValueFormat | None, wrapped: bool) -> None:
        self._fields = [name for name in fields if name != KEY]
        self._form = form
        self._wrapped = wrapped and form is not None and form.name.startswith("json") and _PAYLOAD not in self._fields
        if form is None or not self._fields:
            self._decoder = None
            return
        key = T.StructType([T.StructField(name, schema.spark[name].dataType) for name in self._fields])
        self._kinds = [field.type for field in TableSchema(key, provenance=False).stored_arrow]
        if form.name == "string":
            key = T.StructType([T.StructField(self._fields[0], T.StringType())])
        elif self._wrapped:
            key = T.StructType([*key.fields, T.StructField(_PAYLOAD, key)])
        self._decoder = form.decoder(TableSchema(key, provenance=False))

    def fill(self, columns: dict[str, pa.Array], keys: pa.BinaryArray, needs_key: Flags) -> dict[int, str]:
        """Fills the key columns of the `needs_key` rows from their Kafka keys. Returns the bad rows with reasons."""
        if not needs_key.any() or not self._fields:
            return {}
        rows = np.flatnonzero(needs_key)
        if self._decoder is None:
            return dict.fromkeys(rows.tolist(), _NO_FORMAT)
        chosen_keys = keys.take(pa.array(rows))
        if chosen_keys.null_count:
            return dict.fromkeys(rows[chosen_keys.is_null().to_numpy(zero_copy_only=False)].tolist(), _NO_KEY)
        decoded = self._decoder.decode(chosen_keys)
        if decoded.bad:
            return {int(rows[bad_value.index]): f"its key: {bad_value.reason}" for bad_value in decoded.bad}
        source_rows = np.full(len(needs_key), -1, np.int64)
        source_rows[rows] = np.arange(len(rows))
        for name, kind, column in zip(self._fields, self._kinds, self._key_columns(decoded.rows), strict=True):
            if mismatches := _unlike(column, kind):
                return {
                    int(rows[index]): f"its key is not of type {kind}: {value[:60]!r}"
                    for index, value in mismatches.items()
                }
            columns[name] = if_else(needs_key, take_or_null(column.cast(kind), source_rows), columns[name])
        return {}

    def _key_columns(self, rows: pa.RecordBatch) -> list[pa.Array]:
        plain = [rows.column(name) for name in self._fields]
        if not self._wrapped:
            return plain
        payload = rows.column(_PAYLOAD)
        wrapped = payload.is_valid().to_numpy(zero_copy_only=False)
        return [if_else(wrapped, inner, outer) for inner, outer in zip(payload.flatten(), plain, strict=True)]


def _unlike(column: pa.Array, kind: pa.DataType) -> dict[int, str]:
    """Returns the texts that do not convert to the type of the column, by position. Other types were checked before."""
    if not pa.types.is_string(column.type) or pa.types.is_string(kind):
        return {}
    # Arrow also parses hexadecimal numbers, which are no record keys.
    is_hexadecimal = pc.match_substring(column, "x", ignore_case=True).to_numpy(
        zero_copy_only=False
    ) & pa.types.is_integer(kind)
    if not is_hexadecimal.any() and _casts(column, kind):
        return {}
    return {
        index: column[index].as_py()
        for index in range(len(column))
        if is_hexadecimal[index] or not _casts(column[index : index + 1], kind)
    }


def _casts(texts: pa.Array, kind: pa.DataType) -> bool:
    try:
        texts.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True
