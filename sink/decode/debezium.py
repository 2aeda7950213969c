"""Decodes Debezium's change events: the row after the change, or the known columns of a deleted row.

Guarantee: that of `sink.decode.records`, and every event that creates, reads, updates or deletes a row gives one
change. `message` events (op `m`) are skipped; any other event is bad. An event with Debezium's placeholder for a value
that the database did not log (an unchanged large column) is bad, wherever in the row the placeholder is: an upsert
would overwrite the value in the table. A row of an incremental snapshot that has no position in the database's log gets
the lowest ordering value.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.decode.cursors import Flags, flags
from sink.decode.fields import NO_PATH, NO_RULES, Columns, Field
from sink.decode.formats import ValueFormat
from sink.decode.quoting import quoted
from sink.decode.records import BadValue
from sink.decode.registry.unavailable import UNAVAILABLE, are_unavailable
from sink.schema.table_schema import TableSchema

_SOURCE = T.StructType(
    [
        T.StructField("lsn", T.LongType()),
        T.StructField("file", T.StringType()),
        T.StructField("pos", T.LongType()),
        T.StructField("ts_ms", T.LongType()),
        T.StructField("snapshot", T.StringType()),
    ]
)
_INCREMENTAL = "incremental"
_FIRST_IN_BINLOG = f"{0:010d}.{0:020d}"
_OTHERS = {"ddl": "a schema change", "status": "a transaction's metadata", "ts_ms": "a heartbeat"}
"""Debezium's messages without `op`, by a field that those before it lack: the first two have `ts_ms`, too."""
_UNLOGGED = (
    f"column {{!r}} has {UNAVAILABLE}: the database did not log its value, and an upsert would overwrite it. Set"
    " REPLICA IDENTITY FULL for the table."
)
_DOCUMENT = (
    "before or after is a text, as in Debezium's events of MongoDB, which are not read. Have the connector send rows"
    " (transforms.type=io.debezium.connector.mongodb.transforms.ExtractNewDocumentState)."
)
_TRUNCATED = "it is a truncate (op t), which would empty the table. Have Debezium skip it (skipped.operations=t)."


@dataclass(frozen=True, slots=True)
class Events:
    """Decoded events: the columns of the changed rows, the ordering column, and the bad events by rising index.

    In a `deleted` row the unknown columns are null. The columns of a bad or `skipped` event mean nothing. `before` has
    the rows before an update, null where the event has none. `ordering` is None if the log orders the changes.
    """

    columns: list[pa.Array]
    before: list[pa.Array]
    updated: Flags
    """Where an event has the row before an update."""
    ordering: pa.Array | None
    deleted: Flags
    skipped: Flags
    bad: tuple[BadValue, ...]


class EventDecoder:
    """Decodes events. `row` has the columns of the changed row. `ordering` is debezium.ordering: `log`, `binlog`, `lsn`
    or `ts_ms`.
    """

    def __init__(self, form: ValueFormat, row: T.StructType, ordering: str) -> None:
        self._row = TableSchema(row, provenance=False)
        self._ordering = ordering
        self._decoder = form.decoder_of(Columns(_event_fields(form.columns(row)), form.rules.exact_case))

    def nulls(self, values: pa.BinaryArray) -> Flags:
        """Flags the tombstones."""
        return self._decoder.nulls(values)

    def decode(self, values: pa.BinaryArray) -> Events:
        decoded = self._decoder.decode(values)
        reasons = {bad_value.index: _reason(bad_value) for bad_value in decoded.bad}
        rows = decoded.rows
        if reasons:
            positions = np.full(len(values), -1, np.int64)
            positions[np.delete(np.arange(len(values)), list(reasons))] = np.arange(len(rows))
            rows = take_or_null(rows, positions)
        event = {name: rows.column(name) for name in rows.schema.names}
        kinds = np.array([str(op) for op in event["op"].to_pylist()], object)
        deleted, skipped = kinds == "d", kinds == "m"
        before, after = event["before"], event["after"]
        columns = [
            if_else(deleted, column_before, column_after)
            for column_before, column_after in zip(before.flatten(), after.flatten(), strict=True)
        ]
        missing = ~np.isin(kinds, ["d", "m"]) & flags(after.is_null())
        for index in np.flatnonzero(missing | ~np.isin(kinds, ["c", "u", "r", "d", "m"])).tolist():
            reasons.setdefault(index, _no_change(kinds[index], values[index].as_py()))
        for field, column in zip(self._row.stored_arrow, columns, strict=True):
            for index in np.flatnonzero(are_unavailable(column)).tolist():
                reasons.setdefault(index, _UNLOGGED.format(field.name))
        bad = tuple(BadValue(index, reason) for index, reason in sorted(reasons.items()))
        updated = (kinds == "u") & flags(before.is_valid())
        return Events(columns, before.flatten(), updated, self._order(event["source"]), deleted, skipped, bad)

    def _order(self, source: pa.StructArray) -> pa.Array | None:
        fields = dict(zip(_SOURCE.names, source.flatten(), strict=True))
        if self._ordering == "log":
            return None
        is_binlog = self._ordering == "binlog"
        positions = _binlog(fields["file"], fields["pos"]) if is_binlog else fields[self._ordering]
        is_first = pc.and_(pc.equal(fields["snapshot"], _INCREMENTAL).fill_null(False), positions.is_null())
        return pc.if_else(is_first, _FIRST_IN_BINLOG if is_binlog else 0, positions)


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
    """Returns the fields of an event. Those of the changed row keep the paths of their columns. The others have none:
    no setting of a column means them."""
    before, after, *others = (_without_path(field) for field in Columns.of(event_type(row.struct), NO_RULES).fields)
    return replace(before, inner=row.fields), replace(after, inner=row.fields), *others


def _without_path(field: Field) -> Field:
    return replace(field, path=NO_PATH, inner=tuple(map(_without_path, field.inner)))


def row_of_event(event: T.StructType, origin: str) -> T.StructType:
    """Returns the columns of the changed row, from the schema of an event. Raises ConfigError, with the `origin`."""
    after = event["after"].dataType if "after" in event.names else None
    if not isinstance(after, T.StructType):
        raise ConfigError(
            f"{origin} has no record `after`, which Debezium's events have. Correct value.envelope, or name the subject"
            " of the events."
        )
    return after


def _reason(bad: BadValue) -> str:
    """Returns the reason of a bad event, for one of MongoDB's with what it is."""
    is_row = bad.column in ("before", "after") and isinstance(bad.needed, T.StructType)
    return _DOCUMENT if is_row else bad.reason


def _no_change(op: str, value: bytes) -> str:
    """Returns why an event is none that changes a row."""
    if op == "t":
        return _TRUNCATED
    if op in ("c", "u", "r"):
        return f"it is a change (op {op}) without the row after it"
    if op != "None":
        return f"it is not a change event of Debezium's: it has no op of c, u, d, r, but {quoted(op, repr(op))}"
    names = _names(value)
    other = next((f": it is {kind}" for name, kind in _OTHERS.items() if name in names), "")
    return (
        f"it is not a change event of Debezium's, without an op{other}. Name in topic.names only topics of tables, or"
        " correct value.envelope."
    )


def _names(value: bytes) -> set[str]:
    """Returns the fields of a JSON event; none in other formats, and where the event is not an object."""
    try:
        event = json.loads(value)
    except (ValueError, RecursionError):
        return set()
    payload = event.get("payload", event) if isinstance(event, dict) else event
    return set(payload) if isinstance(payload, dict) else set()


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
