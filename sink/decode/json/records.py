"""Decodes batches of JSON values to columns of the schema.

Guarantee: the result for a value depends on that value alone, not on where batches end or which path decoded it. First
`json_layouts` decodes values with a common layout. The fast parser decodes the rest; a batch that it cannot decode is
cut. The reference decides for pieces for which it takes less time than the fast parser takes to try: so values that the
fast parser refuses cost a few times what the reference takes, however many columns a table has. Bad values are
returned, never dropped.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sink.decode.fields import Columns
from sink.decode.json.columns import FastParser
from sink.decode.json.gathered import Gathered
from sink.decode.json.layouts import LayoutParser, ParsedRows
from sink.decode.json.matches import Positions
from sink.decode.json.reasons import Undecodable
from sink.decode.json.values import Reference, record_decoder
from sink.decode.records import BadValue, Decoded

_PIECES = 8
_VALUE, _VALUES_FIELD, _VALUES_BYTE = 10.0, 0.1, 0.1
"""Microseconds that the reference takes for a value, for each field of the table, for each byte: to choose by."""
_ATTEMPT, _ATTEMPTS_FIELD = 50.0, 3.0
"""Microseconds that an attempt of the fast parser takes beside what its bytes take."""


class JsonDecoder:
    """Decodes JSON values for some columns. Takes next to no time to make: a producer's schemas may ask for one a
    value. Not thread-safe."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._layouts = LayoutParser(columns)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        gathered = Gathered(self._columns)
        self.read(values, np.arange(len(values)), gathered)
        return gathered.decoded()

    def read(self, values: pa.BinaryArray, positions: Positions, gathered: Gathered) -> None:
        """Adds values of a batch that have these positions there, which rise, to what is gathered of it."""
        unparsed = np.ones(len(values), np.bool_)
        for part in self._layouts.parse(values):
            unparsed[part.positions] = False
            gathered.add_rows(ParsedRows(positions[part.positions], part.rows))
        if unparsed.all():
            self._parse(values, positions, gathered)
        elif unparsed.any():
            self._parse(values.filter(pa.array(unparsed)), positions[unparsed], gathered)

    @cached_property
    def _fast(self) -> FastParser:
        return FastParser(self._columns)

    @cached_property
    def _reference(self) -> Reference:
        return record_decoder(self._columns)

    def _parse(self, values: pa.BinaryArray, positions: Positions, gathered: Gathered) -> None:
        """Decodes values, in pieces if the fast parser refuses them together."""
        if len(values) and self._is_cheaper_alone(values):
            self._one_by_one(values, positions, gathered)
        elif (rows := self._fast.parse(values)) is not None:
            gathered.add_rows(ParsedRows(positions, rows))
        elif len(values) <= 1 or not self._fast.supported:
            self._one_by_one(values, positions, gathered)
        else:
            step = -(-len(values) // _PIECES)
            for start in range(0, len(values), step):
                self._parse(values.slice(start, step), positions[start : start + step], gathered)

    def _is_cheaper_alone(self, values: pa.BinaryArray) -> bool:
        attempt = _ATTEMPT + _ATTEMPTS_FIELD * self._columns.size
        alone = len(values) * (_VALUE + _VALUES_FIELD * self._columns.size)
        if alone >= attempt:
            return False
        size = pc.sum(pc.binary_length(values)).as_py() or 0
        return alone + _VALUES_BYTE * size < attempt

    def _one_by_one(self, values: pa.BinaryArray, positions: Positions, gathered: Gathered) -> None:
        for position, value in zip(positions.tolist(), values.to_pylist(), strict=True):
            try:
                gathered.add_record(position, self._reference(value))
            except Undecodable as error:
                gathered.add_bad(BadValue(position, str(error), error.column, error.needed))
