"""Debezium's change events as rows: what a row became, or of a deleted one what is known of it.

Guarantee: that of `sink.decode.records`; every event gives one change, and a message that is none (op `m`) is left
out. Events come with or without the `schema` and `payload` that Kafka Connect's JSON converter writes around them. A
value that Debezium had no access to (its placeholder for an unchanged large column) is bad, for it would overwrite the
one in the table; inside arrays, structs and maps it is not looked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.decode.formats import ValueFormat
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
_TRUNCATED = "it is a truncate (op t), which would empty the table; have Debezium skip it (skipped.operations=t)"

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Events:
    """A column for each of the row's, and for what orders the changes; `bad` by rising index. Of a row that is
    `deleted` the columns that are not known are null; of a bad one, or of one that is `skipped`, everything."""

    columns: list[pa.Array]
    ordering: pa.Array | None
    deleted: Flags
    skipped: Flags
    bad: tuple[BadValue, ...]


class EventDecoder:
    """`row` are the columns of the changed row, `ordering` is as the setting debezium.ordering has it."""

    def __init__(self, form: ValueFormat, row: T.StructType, ordering: str) -> None:
        self._row = TableSchema(row, provenance=False)
        self._ordering = ordering
        self._wrapped = form.name == "json" or form.name == "json-confluent"
        event = event_type(row)
        event_columns = T.StructType([*event.fields, T.StructField(_PAYLOAD, event)]) if self._wrapped else event
        self._names = event.names
        self._decoder = form.decoder(TableSchema(event_columns, provenance=False))

    def decode(self, values: pa.BinaryArray) -> Events:
        decoded = self._decoder.decode(values)
        reasons = {bad_value.index: bad_value.reason for bad_value in decoded.bad}
        good = np.array([at for at in range(len(values)) if at not in reasons], np.int64)
        event = self._unwrapped(decoded.rows)
        ops = [str(op) for op in event["op"].to_pylist()]
        kinds = np.array(ops, object)
        deleted, skipped = kinds == "d", kinds == "m"
        before, after = event["before"], event["after"]
        columns = [picked(deleted, old, new) for old, new in zip(before.flatten(), after.flatten(), strict=True)]
        missing = ~np.isin(kinds, ["d", "m"]) & after.is_null().to_numpy(zero_copy_only=False)
        for at in np.flatnonzero(missing | ~np.isin(kinds, ["c", "u", "r", "d", "m"])).tolist():
            reasons[int(good[at])] = _no_change(ops[at])
        self._refuse_unavailable(columns, good, reasons)
        ordering = self._order(event["source"])
        places = np.full(len(values), -1, np.int64)
        places[good] = np.arange(len(good))
        return Events(
            [spread(column, places) for column in columns],
            None if ordering is None else spread(ordering, places),
            _spread_flags(deleted, places),
            _spread_flags(skipped, places),
            tuple(BadValue(at, reason) for at, reason in sorted(reasons.items())),
        )

    def _unwrapped(self, rows: pa.RecordBatch) -> dict[str, pa.Array]:
        plain = {name: rows.column(name) for name in self._names}
        if not self._wrapped:
            return plain
        payload = rows.column(_PAYLOAD)
        if payload.null_count == len(payload):
            return plain
        inner = dict(zip(self._names, payload.flatten(), strict=True))
        wrapped = payload.is_valid().to_numpy(zero_copy_only=False)
        return {name: picked(wrapped, inner[name], plain[name]) for name in self._names}

    def _order(self, source: pa.StructArray) -> pa.Array | None:
        fields = dict(zip(_SOURCE.names, source.flatten(), strict=True))
        if self._ordering == "binlog":
            return _binlog(fields["file"], fields["pos"])
        return None if self._ordering == "log" else fields[self._ordering]

    def _refuse_unavailable(
        self, columns: list[pa.Array], good: npt.NDArray[np.int64], reasons: dict[int, str]
    ) -> None:
        for field, column in zip(self._row.stored_arrow, columns, strict=True):
            if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
                sign = pa.scalar(UNAVAILABLE.encode() if pa.types.is_binary(field.type) else UNAVAILABLE, field.type)
                for at in np.flatnonzero(pc.equal(column, sign).fill_null(False).to_numpy(zero_copy_only=False)):
                    reasons.setdefault(
                        int(good[at]),
                        f"column {field.name!r} holds {UNAVAILABLE}: the database did not say its value, which an"
                        " upsert would overwrite; set REPLICA IDENTITY FULL for the table",
                    )


def event_type(row: T.StructType) -> T.StructType:
    """The columns to read of an event about a row of these columns."""
    return T.StructType(
        [
            T.StructField("before", row),
            T.StructField("after", row),
            T.StructField("op", T.StringType()),
            T.StructField("source", _SOURCE),
        ]
    )


def row_of_event(event: T.StructType, origin: str) -> T.StructType:
    """The columns of the changed row, of a schema of events. Raises ConfigError, which names the `place`."""
    after = event["after"].dataType if "after" in event.names else None
    if not isinstance(after, T.StructType):
        raise ConfigError(
            f"{origin} has no record `after`, as Debezium's events have; correct value.envelope, or name the subject of"
            " the events"
        )
    return after


def _no_change(op: str) -> str:
    if op == "t":
        return _TRUNCATED
    if op in ("c", "u", "r"):
        return f"it is a change (op {op}) without the row after it"
    return "it is no change event of Debezium's: it has no op of c, u, d, r" + ("" if op == "None" else f", but {op!r}")


def _binlog(files: pa.Array, positions: pa.Array) -> pa.Array:
    """As text that sorts as the binary log goes: the number in the file's name, and the place in the file."""
    texts: list[str | None] = []
    for file, position in zip(files.to_pylist(), positions.to_pylist(), strict=True):
        number = "" if file is None else file.rpartition(".")[2]
        has_position = number.isdecimal() and number.isascii() and position is not None
        texts.append(f"{int(number):010d}.{position:020d}" if has_position else None)
    return pa.array(texts, pa.string())


def picked(first: Flags, yes: pa.Array, no: pa.Array) -> pa.Array:
    """Picks for each row one of two columns, whatever their type."""
    at = np.arange(len(first))
    return pa.concat_arrays([yes, no]).take(pa.array(np.where(first, at, at + len(first))))


def spread(column: pa.Array, places: npt.NDArray[np.int64]) -> pa.Array:
    """A row for each place: the one that it names, or null for -1."""
    return column.take(pa.array(places, mask=places < 0))


def _spread_flags(flags: Flags, places: npt.NDArray[np.int64]) -> Flags:
    spread_flags = np.zeros(len(places), np.bool_)
    spread_flags[places >= 0] = flags[places[places >= 0]]
    return spread_flags
