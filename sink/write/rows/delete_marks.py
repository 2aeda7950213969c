"""Decodes values that are rows of the table, with a field that says whether they delete.

The field (`delete.field`) is a boolean, or a text or number that is one: producers write each, also one after another
in a topic. Guarantee: that of `sink.decode.records`; a mark that is neither true nor false makes a value bad. Raises
ConfigError for columns that the format cannot fill.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.decode.cursors import Flags, Rows, flags
from sink.decode.debezium import if_else, take_or_null
from sink.decode.formats import ValueFormat
from sink.decode.quoting import quoted
from sink.decode.records import Decoder

_TRUE = pa.array(["true", "1"])
_KNOWN = pa.array(["true", "1", "false", "0", ""])
"""A text of Protobuf is empty unless it is set."""


@dataclass(frozen=True, slots=True)
class MarkedRows:
    """`columns` have one row for each value, of nulls if it is bad; `bad` has the reasons by position. `unclear` has
    those of values that are bad because of their marker alone, which is a text."""

    columns: dict[str, pa.Array]
    deleted: Flags
    bad: dict[int, str]
    unclear: frozenset[int] = frozenset()


class MarkedRowDecoder:
    """Decodes rows. `marker` names the field, which may be one of their columns; None: no value deletes. Not
    thread-safe."""

    def __init__(self, form: ValueFormat, row: T.StructType, marker: str | None) -> None:
        self._marker = marker
        self._is_column = marker in row.names
        is_apart = marker is not None and not self._is_column
        self._beside = form.decoder(row)
        """Decodes rows without a marker that is none of their columns."""
        self._decoders = _marker_decoders(form, row, str(marker)) if is_apart else [self._beside]

    def nulls(self, values: pa.BinaryArray) -> Flags:
        """Flags the tombstones."""
        return self._decoders[0].nulls(values)

    def decode(self, values: pa.BinaryArray) -> MarkedRows:
        """Decodes with the marker as a boolean, and as a text what is bad then; or the other way round."""
        first = self._read(self._decoders[0], values)
        if not first.bad or len(self._decoders) == 1:
            return first
        refused = np.array(sorted(first.bad))
        second = self._read(self._decoders[1], values.take(pa.array(refused)))
        if len(second.bad) < len(refused):
            # Most topics have one form of the marker: the next batch begins with it.
            self._decoders.reverse()
        source_rows = np.full(len(values), -1, np.int64)
        source_rows[refused] = np.arange(len(refused))
        columns = {
            name: if_else(source_rows >= 0, take_or_null(second.columns[name], source_rows), column)
            for name, column in first.columns.items()
        }
        deleted = first.deleted.copy()
        deleted[refused] = second.deleted
        return MarkedRows(columns, deleted, self._reasons(values, refused, first, second))

    def _reasons(self, values: pa.BinaryArray, refused: Rows, first: MarkedRows, second: MarkedRows) -> dict[int, str]:
        """Returns the reason of the row beside the marker, if it has one; else the one that says what the marker is;
        else one of the two that a decoder gives, whichever of them began."""
        if not second.bad:
            return {}
        bad_in_both = refused[sorted(second.bad)]
        beside = {bad.index: bad.reason for bad in self._beside.decode(values.take(bad_in_both)).bad}
        reasons: dict[int, str] = {}
        for number, (at, row) in enumerate(zip(sorted(second.bad), bad_in_both.tolist(), strict=True)):
            by_first, by_second = first.bad[row], second.bad[at]
            of_marker = by_second if at in second.unclear else min(by_first, by_second)
            reasons[row] = beside.get(number) or (by_first if row in first.unclear else of_marker)
        return reasons

    def _read(self, decoder: Decoder, values: pa.BinaryArray) -> MarkedRows:
        decoded = decoder.decode(values)
        bad = {bad_value.index: bad_value.reason for bad_value in decoded.bad}
        columns = {name: decoded.rows.column(name) for name in decoded.rows.schema.names}
        if bad:
            good_rows = [row for row in range(len(values)) if row not in bad]
            positions = np.full(len(values), -1, np.int64)
            positions[good_rows] = np.arange(len(good_rows))
            columns = {name: take_or_null(column, positions) for name, column in columns.items()}
        if self._marker is None:
            return MarkedRows(columns, np.zeros(len(values), np.bool_), bad)
        marks = columns[self._marker] if self._is_column else columns.pop(self._marker)
        if pa.types.is_boolean(marks.type):
            return MarkedRows(columns, flags(marks), bad)
        unclear = np.flatnonzero(~flags(pc.or_(marks.is_null(), pc.is_in(marks, _KNOWN)))).tolist()
        for row in unclear:
            text = marks[row].as_py()
            bad[row] = (
                f"field {self._marker!r} is {quoted(text, repr(text[:60]), 'a text')}: it marks deletes (delete.field),"
                " and has to be true or false. Correct the producer, or delete.field."
            )
        return MarkedRows(columns, flags(pc.is_in(marks, _TRUE)), bad, frozenset(unclear))


def _marker_decoders(form: ValueFormat, row: T.StructType, marker: str) -> list[Decoder]:
    """Returns decoders of a row with the marker as a boolean, and as a text. Of those a plain format fits one."""
    decoders: list[Decoder] = []
    errors: list[ConfigError] = []
    for kind in (T.BooleanType(), T.StringType()):
        try:
            decoders.append(form.decoder(T.StructType([*row.fields, T.StructField(marker, kind)])))
        except ConfigError as error:
            errors.append(error)
    if not decoders:
        raise errors[0]
    return decoders
