"""Makes the record keys of rows like Hudi's key generators.

Guarantee: the same keys as from the table's key generator (Simple, NonPartitioned or Complex, by the number of fields);
a test compares with Hudi's own writer. So Spark SQL's UPDATE, DELETE and MERGE find the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from sink.layout.joined_texts import joined
from sink.layout.value_texts import value_texts

KEY_TYPES: tuple[type[T.DataType], ...] = (
    T.StringType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.BooleanType,
    T.DateType,
    T.DecimalType,
)
DEFAULT_KEY = ("_kafka_topic", "_kafka_partition", "_kafka_offset")
EMPTY = "__empty__"


@dataclass(frozen=True)
class RecordKeys:
    """The fields of the record key; without fields it is topic, partition and offset. `with_field_names`: a key reads
    `field:value,field:value`.
    """

    fields: tuple[str, ...]
    with_field_names: bool

    def column(self, rows: pa.RecordBatch, topic: str, partitions: pa.Array | pa.Scalar, offsets: pa.Array) -> pa.Array:
        """Returns the keys. `partitions` and `offsets` are texts; `partitions` may be one text for all rows."""
        if not self.fields:
            prefix, separator = pa.scalar(f"_kafka_topic:{topic},_kafka_partition:"), pa.scalar(",_kafka_offset:")
            return joined(prefix, partitions, separator, offsets)
        texts = [value_texts(rows.column(name)) for name in self.fields]
        if not self.with_field_names:
            return texts[0]
        parts = []
        for name, value in zip(self.fields, texts, strict=True):
            value = pc.if_else(pc.equal(value, ""), EMPTY, value)
            parts.append(pc.binary_join_element_wise(pa.scalar(f"{name}:"), value, pa.scalar("")))
        return pc.binary_join_element_wise(*parts, pa.scalar(","))

    def invalid_keys(self, rows: pa.RecordBatch) -> dict[int, str]:
        """Returns the rows without a valid key, with the reasons."""
        reasons: dict[int, str] = {}

        def note(flags: pa.Array, reason: str) -> None:
            for row in pc.indices_nonzero(flags).to_pylist():
                reasons.setdefault(row, reason)

        for name in self.fields:
            column = rows.column(name)
            if column.null_count:
                note(column.is_null(), f"record key column {name!r} is null")
            if not self.with_field_names and pa.types.is_string(column.type):
                note(pc.equal(column, ""), f"record key column {name!r} is empty")
        if (
            self.with_field_names
            and self.fields
            and all(pa.types.is_string(rows.column(name).type) for name in self.fields)
        ):
            blank = reduce(pc.and_, (pc.equal(rows.column(name), "") for name in self.fields))
            note(blank, f"record key columns {', '.join(self.fields)} are all empty")
        return reasons
