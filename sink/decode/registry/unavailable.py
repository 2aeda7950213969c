"""Finds Debezium's placeholder for values that the database did not log, wherever a column has it.

It stands for a text; in base64 or hexadecimal for bytes in a text; as the only element or entry for an array or a map,
also as their JSON in a text; and as its bytes for an array of numbers. Raises nothing.
"""

from __future__ import annotations

import base64
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sink.decode.cursors import Flags, flags

UNAVAILABLE = "__debezium_unavailable_value"
_BYTES = UNAVAILABLE.encode()
_FORMS = (
    _BYTES,
    base64.b64encode(_BYTES),
    _BYTES.hex().encode(),
    *(json.dumps(value, separators=(",", ":")).encode() for value in ({UNAVAILABLE: UNAVAILABLE}, [UNAVAILABLE])),
)
_LENGTHS = [len(form) for form in _FORMS]


def are_unavailable(column: pa.Array) -> Flags:
    """Flags the rows with the placeholder."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        # Lengths are looked at first: they cost a fraction of the texts.
        if not np.isin(pc.binary_length(column).fill_null(0).to_numpy(), _LENGTHS).any():
            return np.zeros(len(column), np.bool_)
        return flags(pc.is_in(column, pa.array(_FORMS, pa.binary()).cast(kind)))
    if pa.types.is_struct(kind):
        found = np.zeros(len(column), np.bool_)
        for child in column.flatten():
            found |= are_unavailable(child)
        return found
    if pa.types.is_map(kind):
        return _any_inside(column, are_unavailable(column.keys) | are_unavailable(column.items))
    if pa.types.is_list(kind):
        found = _any_inside(column, are_unavailable(column.values))
        return found | _are_its_bytes(column) if pa.types.is_integer(kind.value_type) else found
    return np.zeros(len(column), np.bool_)


def _any_inside(column: pa.ListArray | pa.MapArray, inside: Flags) -> Flags:
    """Flags the rows of which an element is flagged."""
    before = np.concatenate([[0], np.cumsum(inside)])
    offsets = column.offsets.to_numpy()
    found: Flags = flags(column.is_valid()) & (before[offsets[1:]] > before[offsets[:-1]])
    return found


def _are_its_bytes(column: pa.ListArray) -> Flags:
    found: Flags = np.diff(column.offsets.to_numpy()) == len(_BYTES)
    for row in np.flatnonzero(found).tolist():
        found[row] = column[row].as_py() == list(_BYTES)
    return found
