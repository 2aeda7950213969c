"""Decodes JSON as Kafka Connect's JsonConverter writes it: values in an envelope, and keys that are no objects.

Guarantee: that of `sink.decode.records`. An envelope is an object of the members `schema`, which is null or a schema of
Connect's, and `payload`, in this order; the value is then its payload, read by its schema. Where a table has columns of
both names nothing is an envelope. A change event of Debezium's is bad where no column but the event's own is filled by
it. Raises nothing on purpose.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sink.decode.connect_schemas import columns_by_schema, is_schema
from sink.decode.cursors import Flags, Rows, flags
from sink.decode.fields import Columns
from sink.decode.json_columns import extents
from sink.decode.json_layouts import ParsedRows
from sink.decode.json_reasons import Undecodable
from sink.decode.json_records import JsonDecoder, in_order
from sink.decode.json_text import compact_text
from sink.decode.json_values import document_of
from sink.decode.records import BadValue, Decoded, Decoder

SCHEMA, PAYLOAD = "schema", "payload"
_OPENING = r'[ \t\r\n]*\{[ \t\r\n]*"schema"[ \t\r\n]*:[ \t\r\n]*'
_BEGINS = re.compile(_OPENING)
_BETWEEN = re.compile(r'[ \t\r\n]*,[ \t\r\n]*"payload"[ \t\r\n]*:')
_BLANKS = b" \t\r\n"
_NULL = b"null"
_QUOTE, _S = b'"s'
_KEPT = 8
"""Envelopes that a decoder remembers."""
_NEW = 8
"""Envelopes that may be learned from one batch. The values of others are decoded one by one."""
_MOST_DECODERS = 100
_EVENT = frozenset({"before", "after", "source", "op", "ts_ms", "ts_us", "ts_ns", "transaction"})
_UNEXPECTED_EVENT = (
    "it is a change event of Debezium's, which fills no column. Set value.envelope=debezium, or have the connector send"
    " rows (transforms.type=io.debezium.transforms.ExtractNewRecordState)."
)
_PARSER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class _Envelope:
    """The bytes before a payload, and the decoder for the payload."""

    prefix: bytes
    decoder: JsonDecoder


class ConnectDecoder(Decoder):
    """Decodes JSON values for some columns. With `takes_bare` a value that is no object is that of the only column, as
    in keys. Not thread-safe."""

    def __init__(self, columns: Columns, takes_bare: bool = False) -> None:
        names = [field.name for field in columns.fields]
        self._columns = columns
        self._only = names[0] if takes_bare else None
        self._plain = JsonDecoder(columns)
        self._may_be_wrapped = not {SCHEMA, PAYLOAD} <= set(names)
        self._telling = [] if takes_bare else [number for number, name in enumerate(names) if name not in _EVENT]
        """The positions of columns that a change event fills only if the table is meant for such events."""
        self._decoders = {columns: self._plain}
        self._known: list[_Envelope] = []

    def nulls(self, values: pa.BinaryArray) -> Flags:
        """Flags the values that are null: Kafka's null, JSON's, or one in an envelope."""
        nulls = super().nulls(values)
        like_null = flags(pc.or_(pc.ends_with(values, _NULL), pc.ends_with(values, b"null}")))
        is_short = flags(pc.less_equal(pc.binary_length(values), len(_NULL)))
        for row in np.flatnonzero(like_null & (is_short | self._wrapped(values))).tolist():
            value = values[row].as_py()
            envelope = self._envelope(value)
            payload = value if envelope is None else _payload(value, envelope)
            nulls[row] = payload.strip(_BLANKS) == _NULL
        return nulls

    def decode(self, values: pa.BinaryArray) -> Decoded:
        wrapped = self._wrapped(values)
        if not wrapped.any():
            return self._decoded(self._plain, values)
        parts: list[ParsedRows] = []
        bad: list[BadValue] = []
        for decoder, rows, payloads in self._payloads(values, wrapped):
            decoded = self._decoded(decoder, payloads)
            bad += (BadValue(int(rows[value.index]), value.reason) for value in decoded.bad)
            parts.append(ParsedRows(np.delete(rows, [value.index for value in decoded.bad]), decoded.rows))
        return Decoded(in_order(parts), tuple(sorted(bad, key=lambda value: value.index)))

    def _decoded(self, decoder: JsonDecoder, values: pa.BinaryArray) -> Decoded:
        decoded = decoder.decode(values if self._only is None else _as_objects(values, self._only))
        unfilled = _without_values([decoded.rows.column(number) for number in self._telling])
        if not unfilled.any():
            return decoded
        positions = np.delete(np.arange(len(values)), [value.index for value in decoded.bad])
        events = [row for row in np.flatnonzero(unfilled).tolist() if _is_event(values[int(positions[row])].as_py())]
        bad = [*decoded.bad, *(BadValue(int(positions[row]), _UNEXPECTED_EVENT) for row in events)]
        rows = decoded.rows.take(pa.array(np.delete(np.arange(len(positions)), events)))
        return Decoded(rows, tuple(sorted(bad, key=lambda value: value.index)))

    def _wrapped(self, values: pa.BinaryArray) -> Flags:
        """Flags the values that begin like an envelope."""
        begins = np.zeros(len(values), np.bool_)
        content = values.buffers()[2]
        if not self._may_be_wrapped or content is None or not content.size:
            return begins
        starts, _, data = extents(values)
        is_odd = data.take(starts + 1, mode="clip") != _QUOTE
        if (data.take(starts + 2, mode="clip") == _S).any():
            begins |= flags(pc.starts_with(values, b'{"schema"'))
        if is_odd.any():
            begins |= is_odd & flags(pc.match_substring_regex(values, rf"\A{_OPENING}"))
        return begins

    def _payloads(self, values: pa.BinaryArray, wrapped: Flags) -> Iterator[tuple[JsonDecoder, Rows, pa.BinaryArray]]:
        """Yields rows, with what is decoded of them, and the decoder for it."""
        open_rows = wrapped.copy()
        is_closed = flags(pc.ends_with(values, b"}"))
        counted: dict[_Envelope, int] = {}
        for envelope in self._candidates(values, open_rows):
            rows = np.flatnonzero(open_rows & is_closed & flags(pc.starts_with(values, envelope.prefix)))
            open_rows[rows] = False
            counted[envelope] = len(rows)
            if len(rows):
                yield envelope.decoder, rows, pc.binary_slice(values.take(pa.array(rows)), len(envelope.prefix), -1)
        self._known = sorted(counted, key=lambda envelope: -counted[envelope])[:_KEPT]
        plain = ~wrapped
        for row in np.flatnonzero(open_rows).tolist():
            value = values[row].as_py()
            alone = self._envelope(value)
            if alone is None:
                plain[row] = True
            else:
                yield alone.decoder, np.array([row]), pa.array([_payload(value, alone)], pa.binary())
        if plain.any():
            yield self._plain, np.flatnonzero(plain), values.filter(pa.array(plain))

    def _candidates(self, values: pa.BinaryArray, open_rows: Flags) -> Iterator[_Envelope]:
        """Yields the known envelopes, then new ones, from values that no known one begins."""
        yield from tuple(self._known)
        for _ in range(_NEW):
            envelope = self._envelope(values[int(np.argmax(open_rows))].as_py()) if open_rows.any() else None
            if envelope is None:
                return
            yield envelope

    def _envelope(self, value: bytes) -> _Envelope | None:
        """Returns the envelope of a value that has one."""
        try:
            text = value.decode()
            opening = _BEGINS.match(text)
            schema, end = _PARSER.raw_decode(text, opening.end() if opening else len(text))
        except (ValueError, RecursionError):
            return None
        between = _BETWEEN.match(text, end)
        if between is None or not is_schema(schema) or not value.rstrip(_BLANKS).endswith(b"}"):
            return None
        return _Envelope(text[: between.end()].encode(), self._decoder_by(schema))

    def _decoder_by(self, schema: object) -> JsonDecoder:
        columns = columns_by_schema(self._columns, schema)
        if columns not in self._decoders:
            if len(self._decoders) >= _MOST_DECODERS:
                self._decoders = {self._columns: self._plain}
            self._decoders[columns] = JsonDecoder(columns)
        return self._decoders[columns]


def _payload(value: bytes, envelope: _Envelope) -> bytes:
    return value.rstrip(_BLANKS)[len(envelope.prefix) : -1]


def _without_values(columns: Sequence[pa.Array]) -> Flags:
    """Flags the rows where all columns are null; nothing where one column has no null, or there is none."""
    if not columns or not all(column.null_count for column in columns):
        return np.zeros(0, np.bool_)
    found = np.ones(len(columns[0]), np.bool_)
    for column in columns:
        found &= flags(column.is_null())
    return found


def _is_event(value: bytes) -> bool:
    names = {name for name, _ in document_of(value)}
    return {"op", "source"} <= names and not names.isdisjoint({"before", "after"})


def _as_objects(values: pa.BinaryArray, name: str) -> pa.BinaryArray:
    """Returns the values, as objects with the one member `name` where they are none."""
    is_object = flags(pc.match_substring_regex(values, r"\A[ \t\r\n]*\{"))
    if is_object.all():
        return values
    objects = values.to_pylist()
    for row in np.flatnonzero(~is_object).tolist():
        objects[row] = None if objects[row] is None else _as_object(objects[row], name)
    return pa.array(objects, pa.binary())


def _as_object(value: bytes, name: str) -> bytes:
    try:
        document = document_of(value)
    except Undecodable:
        # The decoder says what is wrong with it.
        return value
    if document is None or isinstance(document, list):
        return value
    written = json.dumps(document) if type(document) is str else compact_text(document)
    return f"{{{json.dumps(name)}:{written}}}".encode()
