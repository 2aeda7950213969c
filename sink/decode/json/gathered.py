"""Puts together the decoded parts of a batch of JSON values, which come in any order. Raises nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from sink.decode.fields import Columns
from sink.decode.json.layouts import ParsedRows
from sink.decode.json.matches import Positions
from sink.decode.records import BadValue, Decoded

_MOST_CELLS = 1 << 17
"""Cells of single records that wait to become columns. A record has one for each column, filled or not."""


class Gathered:
    """Rows by columns, single records, and bad values, for some columns. Each value of the batch is added once."""

    def __init__(self, columns: Columns) -> None:
        self._schema = columns.stored_arrow
        self._parts: list[ParsedRows] = []
        self._records: dict[int, dict[str, Any]] = {}
        self._bad: list[BadValue] = []

    def add_rows(self, rows: ParsedRows) -> None:
        self._parts.append(rows)

    def add_record(self, position: int, record: dict[str, Any]) -> None:
        """Adds a record with every column. Many records become columns at once."""
        self._records[position] = record
        if len(self._records) * len(self._schema) >= _MOST_CELLS:
            self._add_records()

    def add_bad(self, value: BadValue) -> None:
        self._bad.append(value)

    def take_bad(self, is_wanted: Callable[[int], bool]) -> Positions:
        """Takes bad values back whose positions are wanted. Returns these."""
        wanted = {value.index for value in self._bad if is_wanted(value.index)}
        self._bad = [value for value in self._bad if value.index not in wanted]
        return np.array(sorted(wanted), np.int64)

    def decoded(self) -> Decoded:
        """Returns all of it, by position."""
        if self._records or not self._parts:
            self._add_records()
        return Decoded(_in_order(self._parts), tuple(sorted(self._bad, key=lambda value: value.index)))

    def _add_records(self) -> None:
        records = self._records.values()
        columns = [pa.array([record[field.name] for record in records], field.type) for field in self._schema]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self._parts.append(ParsedRows(np.array([*self._records], np.int64), rows))
        self._records = {}


def _in_order(parts: list[ParsedRows]) -> pa.RecordBatch:
    positions, rows = parts[0].positions, parts[0].rows
    if len(parts) > 1:
        positions = np.concatenate([part.positions for part in parts])
        rows = pa.concat_batches([part.rows for part in parts])
    return rows if (positions[:-1] < positions[1:]).all() else rows.take(pa.array(np.argsort(positions)))
