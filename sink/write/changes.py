"""A batch of records as changes of rows: rows of the table, and rows that delete the one of their key.

Guarantee: one row for each record, in the columns of the table, with its place in the log. A record that cannot be one
is named by `BadRows`. What changes nothing is left out: messages of Debezium, and the null value that
follows a delete of its where columns order the changes, among which it has no place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import types as T

from sink.decode.debezium import EventDecoder, spread
from sink.decode.formats import RAW, ValueFormat
from sink.decode.records import BadValue
from sink.layout.bad_partition import BadPartition
from sink.layout.record_key_bytes import KeyBytes
from sink.schema import IS_DELETED, TableSchema, arrow_schema
from sink.write.record_columns import BadRows, RowSpec, added_columns

LOG_POSITION = T.StructType(
    [
        T.StructField("_sink_topic", T.StringType()),
        T.StructField("_sink_partition", T.IntegerType()),
        T.StructField("_sink_offset", T.LongType()),
    ]
)
_NO_ORDERING_VALUE = (
    "the value is null (a tombstone), which has no place in the order of ordering.field.name; delete with"
    " _hoodie_is_deleted and an ordering value, or let the log order the changes (remove ordering.field.name)"
)
_NO_PARTITION = (
    "a delete has to say in which partition of the table its row is: have the producer give it (Debezium's for"
    " Postgres: REPLICA IDENTITY FULL), or set index.type=record in a new table, which finds rows by their key alone"
)

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ChangeSpec:
    """The settings by which records become changes. Spark ships it to the executors.

    `ordering` are columns of the table, `located` those
    without which a delete does not say in which of the table's partitions its row is."""

    rows: RowSpec
    envelope: str
    debezium_ordering: str
    ordering: tuple[str, ...]
    key_format: ValueFormat | None
    located: tuple[str, ...]

    @property
    def columns(self) -> T.StructType:
        """The table's columns, and behind them what is dropped before the table is written."""
        return T.StructType([*self.rows.schema.spark.fields, *LOG_POSITION.fields])


@dataclass(frozen=True, slots=True)
class _Decoded:
    columns: dict[str, pa.Array]
    deleted: Flags
    skipped: Flags
    keyless: Flags
    """Deleted rows of which the value does not say the key."""
    bad: dict[int, str]


class Changes:
    """Not to be shared between threads."""

    def __init__(self, spec: ChangeSpec) -> None:
        self._spec = spec
        self._schema = spec.rows.schema
        self._values = _PlainValues(spec) if spec.envelope == "none" else _Events(spec)
        self._keys = KeyBytes(spec.rows.keys.fields, self._schema, spec.key_format, spec.envelope == "debezium")

    def decode_batch(self, batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
        decoded = self._decoded(batch)
        columns = {**decoded.columns, **added_columns(self._schema, batch, topic)}
        columns[IS_DELETED] = pa.array(decoded.deleted)
        bad = {**decoded.bad}
        for at, reason in self._keys.fill(columns, batch.column("key"), decoded.keyless).items():
            bad.setdefault(at, reason)
        for at, reason in self._nulls(columns, decoded).items():
            bad.setdefault(at, reason)
        kept = ~decoded.skipped
        rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        rows = self._checked(rows, kept, bad)
        topics = pa.array([topic] * batch.num_rows, pa.string())
        log_position = [topics, *(batch.column(name) for name in ("partition", "offset"))]
        typed = self._typed(rows, log_position)
        return typed if kept.all() else typed.filter(pa.array(kept))

    def _decoded(self, batch: pa.RecordBatch) -> _Decoded:
        """Decodes the values that are not null. A null value deletes a row, or is left out."""
        values = batch.column("value")
        nulls = values.is_null().to_numpy(zero_copy_only=False)
        live = np.flatnonzero(~nulls)
        decoded = self._values.decode(values.filter(pa.array(~nulls)) if nulls.any() else values)
        if not nulls.any():
            return decoded
        places = np.full(len(nulls), -1, np.int64)
        places[live] = np.arange(len(live))

        def flags(values_flags: Flags, null_flag: bool) -> Flags:
            row_flags = np.full(len(nulls), null_flag, np.bool_)
            row_flags[live] = values_flags
            return row_flags

        bad = {int(live[at]): reason for at, reason in decoded.bad.items()}
        left_out = bool(self._spec.ordering) and self._spec.envelope == "debezium"
        if self._spec.ordering and not left_out:
            bad |= dict.fromkeys(np.flatnonzero(nulls).tolist(), _NO_ORDERING_VALUE)
        return _Decoded(
            {name: spread(column, places) for name, column in decoded.columns.items()},
            flags(decoded.deleted, not left_out),
            flags(decoded.skipped, left_out),
            flags(decoded.keyless, not left_out),
            bad,
        )

    def _nulls(self, columns: dict[str, pa.Array], decoded: _Decoded) -> dict[int, str]:
        """Rows that lack a value which their column, or their order, asks for."""
        bad: dict[int, str] = {}
        live = ~decoded.deleted & ~decoded.skipped
        deletes = decoded.deleted & ~decoded.skipped
        required = [(name, "what orders the changes of a row", ~decoded.skipped) for name in self._spec.ordering]
        required += [(field.name, "NOT NULL", live) for field in self._schema.value_struct.fields if not field.nullable]
        required += [(name, _NO_PARTITION, deletes) for name in self._spec.located]
        for name, requirement, rows in required:
            column = columns[name]
            if column.null_count:
                for at in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False) & rows).tolist():
                    bad.setdefault(at, f"column {name!r} is null, and {requirement}")
        return bad

    def _checked(self, rows: pa.RecordBatch, kept: Flags, bad: dict[int, str]) -> pa.RecordBatch:
        """The rows complete; raises for those that are bad."""
        if bad:
            raise BadRows("value", bad)
        row_spec = self._spec.rows
        try:
            rows = row_spec.paths.complete(rows)
        except BadPartition as error:
            raise BadRows("partition", error.reasons) from None
        numbers = np.flatnonzero(kept).tolist()
        of_changes = rows if kept.all() else rows.filter(pa.array(kept))
        if keyless := row_spec.keys.bad(of_changes):
            raise BadRows("record key", {numbers[at]: reason for at, reason in keyless.items()})
        try:
            row_spec.paths.group(of_changes)
        except BadPartition as error:
            raise BadRows("partition", {numbers[at]: reason for at, reason in error.reasons.items()}) from None
        return rows

    def _typed(self, rows: pa.RecordBatch, log_position: list[pa.Array]) -> pa.RecordBatch:
        """As the JVM takes them: without dictionaries."""
        wanted = arrow_schema(self._spec.columns)
        columns = [rows.column(field.name).cast(field.type) for field in self._schema.arrow]
        return pa.RecordBatch.from_arrays([*columns, *log_position], schema=wanted)


class _PlainValues:
    """Values that are the rows themselves, and may say that they delete."""

    def __init__(self, spec: ChangeSpec) -> None:
        schema = spec.rows.schema
        self._has_marker = spec.rows.format.name not in RAW
        marker = [T.StructField(IS_DELETED, T.BooleanType())] if self._has_marker else []
        self._decoder = spec.rows.format.decoder(
            TableSchema(T.StructType([*schema.unchecked.fields, *marker]), provenance=False)
        )

    def decode(self, values: pa.BinaryArray) -> _Decoded:
        decoded = self._decoder.decode(values)
        bad = {bad_value.index: bad_value.reason for bad_value in decoded.bad}
        places = np.full(len(values), -1, np.int64)
        good = [at for at in range(len(values)) if at not in bad] if bad else np.arange(len(values))
        places[good] = np.arange(len(good))
        columns = {name: decoded.rows.column(name) for name in decoded.rows.schema.names}
        if bad:
            columns = {name: spread(column, places) for name, column in columns.items()}
        none = np.zeros(len(values), np.bool_)
        deletes = columns.pop(IS_DELETED, None)
        deleted = none if deletes is None else deletes.fill_null(False).to_numpy(zero_copy_only=False)
        return _Decoded(columns, deleted, none, none, bad)


class _Events:
    """Debezium's change events."""

    def __init__(self, spec: ChangeSpec) -> None:
        schema = spec.rows.schema
        self._names = schema.value_struct.names
        self._keys = [name for name in spec.rows.keys.fields if name in self._names]
        self._ordering = [field.name for field in (schema.change or T.StructType()).fields if field.name != IS_DELETED]
        self._decoder = EventDecoder(spec.rows.format, schema.unchecked, spec.debezium_ordering)

    def decode(self, values: pa.BinaryArray) -> _Decoded:
        events = self._decoder.decode(values)
        columns = dict(zip(self._names, events.columns, strict=True))
        unknown = np.zeros(len(values), np.bool_)
        for name in self._keys:
            unknown |= columns[name].is_null().to_numpy(zero_copy_only=False)
        if events.ordering is not None:
            columns[self._ordering[0]] = events.ordering
        return _Decoded(columns, events.deleted, events.skipped, events.deleted & unknown, _by_row(events.bad))


def _by_row(bad: tuple[BadValue, ...]) -> dict[int, str]:
    return {bad_value.index: bad_value.reason for bad_value in bad}
