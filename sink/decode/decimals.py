"""Decimals from big-endian two's complement, many at once: Avro and Protobuf write them so.

Guarantee: the exact numbers, or None. Raises nothing on purpose.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sink.decode.cursors import Bytes, Rows

DECIMAL_BYTES = 16
"""The width of Arrow's decimals."""


def exact_decimals(data: Bytes, starts: Rows, lengths: Rows, kind: pa.DataType) -> pa.Array | None:
    """Returns a column of the decimals; None if one has more than 16 bytes or more digits than `kind`."""
    if (lengths > DECIMAL_BYTES).any():
        return None
    # Reverse to little-endian and extend the sign to 16 bytes.
    byte_position = np.arange(DECIMAL_BYTES)
    index = (starts + lengths)[:, None] - 1 - byte_position
    in_value = byte_position < lengths[:, None]
    little_endian = np.where(in_value, data[np.where(in_value, index, 0)], 0).astype(np.uint8)
    negative = np.where(lengths > 0, data[np.minimum(starts, len(data) - 1)] >= 0x80, False)
    little_endian[negative[:, None] & ~in_value] = 0xFF
    buffers = [None, pa.py_buffer(np.ascontiguousarray(little_endian))]
    column = pa.Array.from_buffers(kind, len(starts), buffers)
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return None
    return column
