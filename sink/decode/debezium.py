"""Decodes Debezium's change events: the row after the change, or the known columns of a deleted row.

Guarantee: that of `sink.decode.records`. Every event gives one change; `message` events (op `m`) are skipped. Events
may have the `schema` and `payload` of Kafka Connect's JSON converter around them. An event with Debezium's placeholder
for an unavailable value (an unchanged large column) is bad: an upsert would overwrite the value in the table. The
decoder does not look for the placeholder inside arrays, structs and maps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.decode.cursors import Flags, flags
from sink.decode.fields import NO_RULES, Columns, Field, Rule
from sink.decode.formats import ValueFormat
from sink.decode.quoting import quoted
from sink.decode.records import BadValue
from sink.schema import TableSchema

UNAVAILABLE = "__debezium_unavailable_value"
_SOURCE = T.StructType(
    [
        T.StructField("lsn", T.LongType()),
        T.StructField("file", T.StringType()),
        T.StructField("pos", T.LongType()),
        T.StructField("ts_ms", T.LongType()),
    ]
)
_PAYLOAD = "payload"
_TRUNCATED = "it is a truncate (op t), which would empty the table. Have Debezium skip it (skipped.operations=t)."


@dataclass(frozen=True, slots=True)
class Events:
    """Decoded events: the columns of the changed rows, the ordering column, and the bad events by rising index.

    In a `deleted` row the unknown columns are null; in a bad or `skipped` event all columns are."""

    columns: list[pa.Array]
    ordering: pa.Array | None
    deleted: Flags
    skipped: Flags
    bad: tuple[BadValue, ...]


class EventDecoder:
    """Decodes events. `row` has the columns of the changed row, `ordering` is the value of debezium.ordering."""

    def __init__(self, form: ValueFormat, row: T.StructType, ordering: str) -> None:
        self._row = TableSchema(row, provenance=False)
        self._ordering = ordering
        self._wrapped = form.name == "json" or form.name == "json-confluent"
        fields = _event_fields(form.columns(row))
        self._names = [field.name for field in fields]
        payload = Field(_PAYLOAD, event_type(row), True, Rule(), _PAYLOAD, fields)
        self._decoder = form.decoder_of(Columns((*fields, payload) if self._wrapped else fields, form.rules.exact_case))

    def decode(self, values: pa.BinaryArray) -> Events:
        decoded = self._decoder.decode(values)
        reasons = {bad_value.index: bad_value.reason for bad_value in decoded.bad}
        rows = decoded.rows
        if reasons:
            positions = np.full(len(values), -1, np.int64)
            positions[np.delete(np.arange(len(values)), list(reasons))] = np.arange(len(rows))
            rows = take_or_null(rows, positions)
        event = self._unwrapped(rows)
        kinds = np.array([str(op) for op in event["op"].to_pylist()], object)
        deleted, skipped = kinds == "d", kinds == "m"
        before, after = event["before"], event["after"]
        columns = [
            if_else(deleted, column_before, column_after)
            for column_before, column_after in zip(before.flatten(), after.flatten(), strict=True)
        ]
        missing = ~np.isin(kinds, ["d", "m"]) & flags(after.is_null())
        for index in np.flatnonzero(missing | ~np.isin(kinds, ["c", "u", "r", "d", "m"])).tolist():
            reasons.setdefault(index, _no_change(kinds[index]))
        self._refuse_unavailable(columns, reasons)
        bad = tuple(BadValue(index, reason) for index, reason in sorted(reasons.items()))
        return Events(columns, self._order(event["source"]), deleted, skipped, bad)

    def _unwrapped(self, rows: pa.RecordBatch) -> dict[str, pa.Array]:
        plain = {name: rows.column(name) for name in self._names}
        if not self._wrapped:
            return plain
        payload = rows.column(_PAYLOAD)
        if payload.null_count == len(payload):
            return plain
        inner = dict(zip(self._names, payload.flatten(), strict=True))
        wrapped = flags(payload.is_valid())
        return {name: if_else(wrapped, inner[name], plain[name]) for name in self._names}

    def _order(self, source: pa.StructArray) -> pa.Array | None:
        fields = dict(zip(_SOURCE.names, source.flatten(), strict=True))
        if self._ordering == "binlog":
            return _binlog(fields["file"], fields["pos"])
        return None if self._ordering == "log" else fields[self._ordering]

    def _refuse_unavailable(self, columns: list[pa.Array], reasons: dict[int, str]) -> None:
        for field, column in zip(self._row.stored_arrow, columns, strict=True):
            if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
                is_placeholder = pc.equal(column, pa.scalar(UNAVAILABLE.encode()).cast(field.type))
                for index in np.flatnonzero(flags(is_placeholder)).tolist():
                    reasons.setdefault(
                        index,
                        f"column {field.name!r} is {UNAVAILABLE}: the database did not log its value, and an upsert"
                        " would overwrite it. Set REPLICA IDENTITY FULL for the table.",
                    )


def event_type(row: T.StructType) -> T.StructType:
    """Returns the columns of an event about a row with these columns."""
    return T.StructType(
        [
            T.StructField("before", row),
            T.StructField("after", row),
            T.StructField("op", T.StringType()),
            T.StructField("source", _SOURCE),
        ]
    )


def _event_fields(row: Columns) -> tuple[Field, ...]:
    """Returns the fields of an event. Those of the changed row keep the paths of their columns."""
    before, after, *others = Columns.of(event_type(row.struct), NO_RULES).fields
    return replace(before, inner=row.fields), replace(after, inner=row.fields), *others


def row_of_event(event: T.StructType, origin: str) -> T.StructType:
    """Returns the columns of the changed row, from the schema of an event. Raises ConfigError, with the `origin`."""
    after = event["after"].dataType if "after" in event.names else None
    if not isinstance(after, T.StructType):
        raise ConfigError(
            f"{origin} has no record `after`, which Debezium's events have. Correct value.envelope, or name the subject"
            " of the events."
        )
    return after


def _no_change(op: str) -> str:
    if op == "t":
        return _TRUNCATED
    if op in ("c", "u", "r"):
        return f"it is a change (op {op}) without the row after it"
    found_op = "" if op == "None" else f", but {quoted(op, repr(op))}"
    return f"it is no change event of Debezium's: it has no op of c, u, d, r{found_op}"


def _binlog(files: pa.Array, positions: pa.Array) -> pa.Array:
    """Returns texts that sort like positions in MySQL's binary log: the number of the file, then the position in it."""
    texts: list[str | None] = []
    for file, position in zip(files.to_pylist(), positions.to_pylist(), strict=True):
        number = "" if file is None else file.rpartition(".")[2]
        has_position = number.isdecimal() and number.isascii() and position is not None
        texts.append(f"{int(number):010d}.{position:020d}" if has_position else None)
    return pa.array(texts, pa.string())


def if_else(flags: Flags, if_true: pa.Array, if_false: pa.Array) -> pa.Array:
    """Returns for each row the value of one of two columns, of any type."""
    rows = np.arange(len(flags))
    return pa.concat_arrays([if_true, if_false]).take(pa.array(np.where(flags, rows, rows + len(flags))))


def take_or_null(column: pa.Array | pa.RecordBatch, positions: npt.NDArray[np.int64]) -> pa.Array:
    """Returns for each element of `positions` the value at that position, or null for -1."""
    return column.take(pa.array(positions, mask=positions < 0))
