"""Decodes batches of JSON values to columns of the schema.

Guarantee: the result for a value depends on that value alone, not on where batches end or which path decoded it. First
`json_layouts` decodes values with a common layout. The fast parser decodes the rest; a batch that it cannot decode is
cut until the values concerned are alone, and for those the reference decides. Bad values are returned, never dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sink.decode.fields import Columns
from sink.decode.json.columns import FastParser
from sink.decode.json.layouts import LayoutParser, ParsedRows
from sink.decode.json.reasons import Undecodable
from sink.decode.json.values import record_decoder
from sink.decode.records import BadValue, Decoded

_ALONE = 8
"""Up to so many values are decoded one by one."""
_PIECES = 8


class JsonDecoder:
    """Decodes JSON values for some columns. Not thread-safe."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._layouts = LayoutParser(columns)
        self._fast = FastParser(columns)
        self._slow = record_decoder(columns)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        parsed = self._layouts.parse(values)
        if not parsed:
            return self._parsed(values)
        if len(parsed) == 1 and len(parsed[0].positions) == len(values):
            return Decoded(parsed[0].rows, ())
        unparsed = np.ones(len(values), np.bool_)
        for part in parsed:
            unparsed[part.positions] = False
        remaining = np.flatnonzero(unparsed)
        decoded = self._parsed(values.take(pa.array(remaining)))
        bad = tuple(BadValue(int(remaining[bad_value.index]), bad_value.reason) for bad_value in decoded.bad)
        good_positions = np.delete(remaining, [bad_value.index for bad_value in decoded.bad])
        return Decoded(in_order([*parsed, ParsedRows(good_positions, decoded.rows)]), bad)

    def _parsed(self, values: pa.BinaryArray) -> Decoded:
        parts: list[pa.RecordBatch] = []
        bad: list[BadValue] = []
        self._parse(values, 0, parts, bad)
        return Decoded(parts[0] if len(parts) == 1 else pa.concat_batches(parts), tuple(bad))

    def _parse(
        self, values: pa.BinaryArray, first_position: int, parts: list[pa.RecordBatch], bad: list[BadValue]
    ) -> None:
        """Decodes values, in pieces if the fast parser refuses them together. `first_position` is the first one's in
        the batch."""
        rows = self._fast.parse(values)
        if rows is not None:
            parts.append(rows)
        elif len(values) <= _ALONE or not self._fast.supported:
            self._one_by_one(values, first_position, parts, bad)
        else:
            step = -(-len(values) // _PIECES)
            for start in range(0, len(values), step):
                self._parse(values.slice(start, step), first_position + start, parts, bad)

    def _one_by_one(
        self, values: pa.BinaryArray, first_position: int, parts: list[pa.RecordBatch], bad: list[BadValue]
    ) -> None:
        records: list[dict[str, Any]] = []
        for index, value in enumerate(values):
            try:
                records.append(self._slow(value.as_py()))
            except Undecodable as error:
                bad.append(BadValue(first_position + index, str(error)))
        parts.append(_rows(records, self._columns.stored_arrow))


def in_order(parts: Sequence[ParsedRows]) -> pa.RecordBatch:
    """Returns the rows of all parts by their positions."""
    order = np.argsort(np.concatenate([part.positions for part in parts]))
    return pa.concat_batches([part.rows for part in parts]).take(pa.array(order))


def _rows(records: list[dict[str, Any]], fields: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array([record[field.name] for record in records], field.type) for field in fields]
    return pa.RecordBatch.from_arrays(columns, schema=fields)
