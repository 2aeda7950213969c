"""Turns a batch of records into changes: rows to upsert, and rows that delete the row of their key.

Guarantee: one change for each record, in the columns of the table, with its topic, partition and offset. `BadRows`
names the records that are not changes. Records that change nothing are left out: Debezium's `message` events, and, in a
table with ordering columns, the tombstone that follows a Debezium delete. A delete whose value does not have the
columns of the record key gets them from the Kafka key, or is bad with a reason. Raises ConfigError for columns that the
key's format cannot fill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T
from typing_extensions import Self

from coordination.errors import ConfigError
from sink.decode.cursors import flags
from sink.decode.debezium import EventDecoder, if_else, take_or_null
from sink.decode.formats import BARE_KEYS, RAW, ValueFormat
from sink.decode.header_ids import wire_column
from sink.decode.quoting import quoted, quoting
from sink.layout.partition_paths import Groups
from sink.schema.table_schema import IS_DELETED, KEY, TableSchema, arrow_schema
from sink.write.rows.delete_marks import MarkedRowDecoder
from sink.write.rows.record_columns import BadRows, Decode, RowSpec, added_columns, require_shown_times

LOG_POSITION = T.StructType(
    [
        T.StructField("_sink_topic", T.StringType()),
        T.StructField("_sink_partition", T.IntegerType()),
        T.StructField("_sink_offset", T.LongType()),
    ]
)
_NO_ORDERING_VALUE = (
    "the value is null (a tombstone), and a tombstone has no value for ordering.field.name. Delete with"
    " _hoodie_is_deleted and an ordering value, or remove ordering.field.name, so that the log orders the changes."
)
_MOVED = (
    "the update moves its row from partition {} to {}, and an index that looks in one partition would leave the earlier"
    " row there. Use a new table with index.type=record, which finds rows by their key alone."
)
_NO_PARTITION = (
    "a delete must contain the partition of its row. Have the producer add it (Debezium for Postgres: REPLICA IDENTITY"
    " FULL), or use a new table with index.type=record, which finds rows by their key alone."
)

Flags = npt.NDArray[np.bool_]
_NO_FORMAT = (
    "the value is null (a tombstone) or has no record key, and delete.key.format does not say how to read the Kafka"
    " key. Set it."
)
_JSON_KEY = (
    "is JSON, as Kafka Connect's JsonConverter writes it, and delete.key.format is string. Set delete.key.format=json."
)
_BINARY_KEY = (
    "begins with a control character, as the numbers of Kafka's serializers do, and delete.key.format is string. Set"
    " delete.key.format to long or int."
)
_NO_KEY = "it has no key to delete: the value is null or has no record key, and the Kafka key is null"
_NO_ORDER = (
    "of a delete Hudi takes the INT 0 for no ordering value, and it would win over newer rows. Have the producer count"
    " from 1, or declare the column as BIGINT in a new table."
)


class KeyBytes:
    """Decodes Kafka keys. `form` is None if delete.key.format is `none`."""

    def __init__(self, fields: Sequence[str], schema: TableSchema, form: ValueFormat | None) -> None:
        self._fields = [name for name in fields if name != KEY]
        self._are_texts = form is not None and form.name == "string"
        if form is None or not self._fields:
            self._decoder = None
            return
        key = T.StructType([T.StructField(name, schema.spark[name].dataType) for name in self._fields])
        self._kinds = [field.type for field in TableSchema(key, provenance=False).stored_arrow]
        if form.name in BARE_KEYS:
            key = T.StructType([T.StructField(self._fields[0], _bare_type(form.name, key.fields[0]))])
        self._decoder = form.decoder_of(form.columns(key), takes_bare=len(self._fields) == 1)

    def fill(self, columns: dict[str, pa.Array], keys: pa.BinaryArray, needs_key: Flags) -> dict[int, str]:
        """Fills the key columns of the `needs_key` rows from their Kafka keys. Returns the bad rows with reasons."""
        if not needs_key.any() or not self._fields:
            return {}
        rows = np.flatnonzero(needs_key)
        if self._decoder is None:
            return dict.fromkeys(rows.tolist(), _NO_FORMAT)
        chosen_keys = keys.take(pa.array(rows))
        if chosen_keys.null_count:
            return dict.fromkeys(rows[chosen_keys.is_null().to_numpy(zero_copy_only=False)].tolist(), _NO_KEY)
        decoded = self._decoder.decode(chosen_keys)
        if decoded.bad:
            return {int(rows[bad_value.index]): f"its key: {bad_value.reason}" for bad_value in decoded.bad}
        source_rows = np.full(len(needs_key), -1, np.int64)
        source_rows[rows] = np.arange(len(rows))
        for name, kind, column in zip(self._fields, self._kinds, decoded.rows.columns, strict=True):
            if mismatches := (_misread(column) if self._are_texts else {}) or _unlike(column, kind):
                return {int(rows[index]): f"its key {reason}" for index, reason in mismatches.items()}
            columns[name] = if_else(needs_key, take_or_null(column.cast(kind), source_rows), columns[name])
        return {}


def _bare_type(form: str, field: T.StructField) -> T.DataType:
    if form == "string":
        return T.StringType()
    if not isinstance(field.dataType, (T.IntegralType, T.StringType)):
        raise ConfigError(
            f"delete.key.format={form} fills a whole number or a STRING, and {field.name} is"
            f" {field.dataType.simpleString().upper()}. Use json, or another column."
        )
    return T.LongType()


def _unlike(column: pa.Array, kind: pa.DataType) -> dict[int, str]:
    """Returns why keys are none of the column's type, by position."""
    if column.type == kind or pa.types.is_string(kind):
        return {}
    # Arrow also parses hexadecimal numbers, which are not record keys.
    is_hexadecimal = np.zeros(len(column), np.bool_)
    if pa.types.is_string(column.type) and pa.types.is_integer(kind):
        is_hexadecimal = flags(pc.match_substring(column, "x", ignore_case=True))
    if not is_hexadecimal.any() and _casts(column, kind):
        return {}
    reasons = {}
    for index in range(len(column)):
        if is_hexadecimal[index] or not _casts(column[index : index + 1], kind):
            value = str(column[index].as_py())
            reasons[index] = f"is not of type {kind}: {quoted(value, repr(value[:60]))}"
    return reasons


def _misread(texts: pa.StringArray) -> dict[int, str]:
    """Returns why texts are not keys of `string`, by position: they would delete nothing, without a word."""
    is_json = flags(pc.match_substring_regex(texts, r'(?s)\A(".*"|\{.*\})\z'))
    is_binary = flags(pc.match_substring_regex(texts, r"\A[\x00-\x1f]"))
    return {
        **dict.fromkeys(np.flatnonzero(is_binary).tolist(), _BINARY_KEY),
        **dict.fromkeys(np.flatnonzero(is_json).tolist(), _JSON_KEY),
    }


def _casts(column: pa.Array, kind: pa.DataType) -> bool:
    try:
        column.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


@dataclass(frozen=True)
class ChangeSpec(RowSpec):
    """The settings by which records become changes. Spark ships it to the executors.

    `ordering` names the ordering columns. `located` names the columns that a delete needs, so that Hudi can find the
    partition of its row; empty with a global index. `delete_field` names the field that marks deletes."""

    envelope: str
    debezium_ordering: str
    ordering: tuple[str, ...]
    key_format: ValueFormat | None
    located: tuple[str, ...]
    delete_field: str

    @property
    def columns(self) -> T.StructType:
        """The table's columns, followed by the log position, which is dropped before Hudi writes."""
        return T.StructType([*self.schema.spark.fields, *LOG_POSITION.fields])

    def decoder(self) -> Decode:
        return ChangeDecoder(self).decode_batch

    def place(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Groups]:
        deleted = flags(rows.column(IS_DELETED))
        self._refuse_no_order(rows, deleted)
        is_said = bool(self.located) or not deleted.any()
        return super().place(rows if is_said else self._without_partitions(rows, deleted))

    def _refuse_no_order(self, rows: pa.RecordBatch, deleted: Flags) -> None:
        """Raises BadRows for deletes whose only ordering value is the INT 0."""
        if len(self.ordering) == 1 and pa.types.is_int32(rows.column(self.ordering[0]).type):
            is_zero = flags(pc.equal(rows.column(self.ordering[0]), 0))
            if (deleted & is_zero).any():
                reason = f"column {self.ordering[0]!r} is 0: {_NO_ORDER}"
                raise BadRows("value", dict.fromkeys(np.flatnonzero(deleted & is_zero).tolist(), reason))

    def _without_partitions(self, rows: pa.RecordBatch, deleted: Flags) -> pa.RecordBatch:
        """Returns deletes with null in the partition columns. A global index finds their rows by the key; what they say
        of the partition may be made up: Debezium fills columns that it does not know with empty texts and zeros."""
        positions = np.where(deleted, -1, np.arange(rows.num_rows))
        for name in self.paths.sources:
            if name not in self.keys.fields:
                column = take_or_null(rows.column(name), positions)
                rows = rows.set_column(rows.schema.get_field_index(name), name, column)
        return rows

    def recording(self, used: dict[str, str]) -> Self:
        keys = None if self.key_format is None else replace(self.key_format, used=used)
        return replace(super().recording(used), key_format=keys)


@dataclass(frozen=True, slots=True)
class _Decoded:
    columns: dict[str, pa.Array]
    deleted: Flags
    skipped: Flags
    keyless: Flags
    """Deletes whose value does not contain the record key."""
    bad: dict[int, str]
    before: dict[str, pa.Array] = field(default_factory=dict)
    """Columns of the partition before an update; null where it is not known."""
    updated: Flags | None = None
    """Where it is known."""


class ChangeDecoder:
    """Decodes changes. Not thread-safe."""

    def __init__(self, spec: ChangeSpec) -> None:
        self._spec = spec
        self._schema = spec.schema
        self._columns = arrow_schema(spec.columns)
        self._values = _PlainValues(spec) if spec.envelope == "none" else _Events(spec)
        self._keys = KeyBytes(spec.keys.fields, self._schema, spec.key_format)

    def decode_batch(self, batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
        """Returns the changes, with the types that the JVM takes: no dictionaries. Raises BadRows."""
        with quoting(self._spec.format.quotes):
            return self._decode_batch(batch, topic)

    def _decode_batch(self, batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
        require_shown_times(self._schema, batch)
        decoded = self._decoded(batch)
        columns = {**decoded.columns, **added_columns(self._schema, batch, topic)}
        columns[IS_DELETED] = pa.array(decoded.deleted)
        without_key = self._keys.fill(columns, wire_column(batch, "key", self._spec.key_format), decoded.keyless)
        # A row has the reason of the first step that it fails.
        if bad := self._nulls(columns, decoded) | without_key | decoded.bad:
            raise BadRows("value", bad)
        log_position = (
            pa.array([topic] * batch.num_rows, pa.string()),
            batch.column("partition"),
            batch.column("offset"),
        )
        names = [*columns, *LOG_POSITION.names]
        rows = pa.RecordBatch.from_arrays([*columns.values(), *log_position], names=names)
        if decoded.skipped.any():
            rows = rows.filter(pa.array(~decoded.skipped))
        try:
            placed, groups = self._spec.place(rows)
            self._require_unmoved(rows, groups, decoded)
        except BadRows as error:
            row_numbers = np.flatnonzero(~decoded.skipped).tolist()
            raise BadRows(error.kind, {row_numbers[row]: reason for row, reason in error.reasons.items()}) from None
        typed = [placed.column(field.name).cast(field.type) for field in self._columns]
        return pa.RecordBatch.from_arrays(typed, schema=self._columns)

    def _require_unmoved(self, rows: pa.RecordBatch, groups: Groups, decoded: _Decoded) -> None:
        """Raises BadRows for updates that move a row to another partition, where the index looks in one."""
        if decoded.updated is None:
            return
        kept = pa.array(~decoded.skipped)
        updated = np.flatnonzero(decoded.updated[~decoded.skipped])
        for name, column in decoded.before.items():
            rows = rows.set_column(rows.schema.get_field_index(name), name, column.filter(kept))
        while len(updated):
            try:
                _, earlier = self._spec.place(rows.take(pa.array(updated)))
                break
            except BadRows as error:
                # No row is in a partition that is refused. Each step of placing names its own.
                updated = np.delete(updated, list(error.reasons))
        else:
            return
        moved = {
            row: _MOVED.format(quoted(before, before or "''"), quoted(after, after or "''"))
            for row, number in zip(updated.tolist(), earlier.codes.tolist(), strict=True)
            if (before := earlier.paths[number]) != (after := groups.paths[groups.codes[row]])
        }
        if moved:
            raise BadRows("partition", moved)

    def _decoded(self, batch: pa.RecordBatch) -> _Decoded:
        """Decodes the values that are not null. A null value (a tombstone) deletes its row, or is left out."""
        values = wire_column(batch, "value", self._spec.format)
        nulls = self._values.nulls(values)
        live = np.flatnonzero(~nulls)
        decoded = self._values.decode(values.filter(pa.array(~nulls)) if nulls.any() else values)
        if not nulls.any():
            return decoded
        positions = np.full(len(nulls), -1, np.int64)
        positions[live] = np.arange(len(live))

        def flags(values_flags: Flags, null_flag: bool) -> Flags:
            row_flags = np.full(len(nulls), null_flag, np.bool_)
            row_flags[live] = values_flags
            return row_flags

        bad = {int(live[index]): reason for index, reason in decoded.bad.items()}
        left_out = bool(self._spec.ordering) and self._spec.envelope == "debezium"
        if self._spec.ordering and not left_out:
            bad |= dict.fromkeys(np.flatnonzero(nulls).tolist(), _NO_ORDERING_VALUE)
        return _Decoded(
            {name: take_or_null(column, positions) for name, column in decoded.columns.items()},
            flags(decoded.deleted, not left_out),
            flags(decoded.skipped, left_out),
            flags(decoded.keyless, not left_out),
            bad,
            {name: take_or_null(column, positions) for name, column in decoded.before.items()},
            None if decoded.updated is None else flags(decoded.updated, False),
        )

    def _nulls(self, columns: dict[str, pa.Array], decoded: _Decoded) -> dict[int, str]:
        """Returns why rows are bad that have null in a required column."""
        bad: dict[int, str] = {}
        live = ~decoded.deleted & ~decoded.skipped
        deletes = decoded.deleted & ~decoded.skipped
        required = [(name, "it is an ordering column", ~decoded.skipped) for name in self._spec.ordering]
        not_null = [field.name for field in self._schema.value_struct.fields if not field.nullable]
        required += [(name, "it is NOT NULL", live) for name in not_null]
        required += [(name, _NO_PARTITION, deletes) for name in self._spec.located]
        for name, requirement, rows in required:
            column = columns[name]
            if column.null_count:
                for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False) & rows).tolist():
                    bad.setdefault(row, f"column {name!r} is null: {requirement}")
        return bad


class _PlainValues:
    """Values that are rows of the table, with an optional field that says whether they delete."""

    def __init__(self, spec: ChangeSpec) -> None:
        marker = None if spec.format.name in RAW else spec.delete_field
        self._decoder = MarkedRowDecoder(spec.format, spec.schema.unchecked, marker)

    def nulls(self, values: pa.BinaryArray) -> Flags:
        return self._decoder.nulls(values)

    def decode(self, values: pa.BinaryArray) -> _Decoded:
        decoded = self._decoder.decode(values)
        no_flags = np.zeros(len(values), np.bool_)
        return _Decoded(decoded.columns, decoded.deleted, no_flags, no_flags, decoded.bad)


class _Events:
    """Debezium's change events."""

    def __init__(self, spec: ChangeSpec) -> None:
        schema = spec.schema
        self._names = schema.value_struct.names
        self._keys = [name for name in spec.keys.fields if name in self._names]
        self._located = [name for name in spec.located if name in self._names]
        self._ordering = [field.name for field in (schema.change or T.StructType()).fields if field.name != IS_DELETED]
        self._decoder = EventDecoder(spec.format, schema.unchecked, spec.debezium_ordering)

    def nulls(self, values: pa.BinaryArray) -> Flags:
        return self._decoder.nulls(values)

    def decode(self, values: pa.BinaryArray) -> _Decoded:
        events = self._decoder.decode(values)
        columns = dict(zip(self._names, events.columns, strict=True))
        unknown = np.zeros(len(values), np.bool_)
        for name in self._keys:
            unknown |= columns[name].is_null().to_numpy(zero_copy_only=False)
        if events.ordering is not None:
            columns[self._ordering[0]] = events.ordering
        bad = {bad_value.index: bad_value.reason for bad_value in events.bad}
        decoded = _Decoded(columns, events.deleted, events.skipped, events.deleted & unknown, bad)
        if not self._located:
            return decoded
        before = {
            name: column for name, column in zip(self._names, events.before, strict=True) if name in self._located
        }
        return replace(decoded, before=before, updated=events.updated)
