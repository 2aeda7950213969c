"""Schema ids in the headers of Kafka records, where Confluent's newer serializers put them.

Guarantee: a value with an id in the header `__value_schema_id` (a key: `__key_schema_id`) decodes like the same value
with the id before it. As in Confluent's deserializers the first header of that name counts, and a value with such a
header has no id before it. Raises nothing on purpose.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sink.decode.cursors import flags, scattered
from sink.decode.formats import ValueFormat

_HEADERS = "headers"


def wire_column(batch: pa.RecordBatch, name: str, form: ValueFormat | None) -> pa.BinaryArray:
    """Returns the column `value` or `key` of a batch of records, for the decoder of `form`: in a registry's wire format
    with the ids of the headers before the values."""
    column = batch.column(name)
    if form is None or not form.is_wire or _HEADERS not in batch.schema.names:
        return column
    return with_header_ids(column, batch.column(_HEADERS), f"__{name}_schema_id")


def with_header_ids(values: pa.BinaryArray, headers: pa.ListArray, name: str) -> pa.BinaryArray:
    """Puts the content of the header `name` before each value that has one. A null value stays null."""
    keys, contents = headers.flatten().flatten()
    positions = np.flatnonzero(flags(pc.and_(pc.equal(keys, name), contents.is_valid())))
    if not len(positions):
        return values
    owners = pc.list_parent_indices(headers).to_numpy()[positions]
    rows, first_matches = np.unique(owners, return_index=True)
    ids = contents.take(pa.array(positions[first_matches]))
    prefixes = scattered(len(values), [(rows, ids)], pa.binary()).fill_null(b"")
    return pc.binary_join_element_wise(prefixes, values, pa.scalar(b"", pa.binary()))
