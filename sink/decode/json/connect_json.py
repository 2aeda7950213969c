"""Decodes JSON as Kafka Connect's JsonConverter writes it: values in an envelope, and keys that are not objects.

Guarantee: that of `sink.decode.records`. An envelope is an object of the members `schema`, which is null or a schema of
Connect's, and `payload`, in this order and no others; the value is then its payload, read by its schema. Where a table
has columns of both names nothing is an envelope. A change event of Debezium's is bad where no column but the event's
own is filled by it. Raises nothing on purpose.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from sink.decode.cursors import Flags, Rows, flags
from sink.decode.fields import Columns, Field
from sink.decode.json.columns import extents
from sink.decode.json.connect_schemas import RulesBySchema, is_type
from sink.decode.json.gathered import Gathered
from sink.decode.json.hazards import depth_of
from sink.decode.json.reasons import Undecodable
from sink.decode.json.records import JsonDecoder
from sink.decode.json.text import JsonObject, compact_text
from sink.decode.json.values import DEEPEST, document_of
from sink.decode.records import BadValue, Decoded, Decoder

SCHEMA, PAYLOAD = "schema", "payload"
_OPENING = r'[ \t\r\n]*\{[ \t\r\n]*"schema"[ \t\r\n]*:[ \t\r\n]*'
_BEGINS = re.compile(_OPENING)
_BETWEEN = re.compile(r'[ \t\r\n]*,[ \t\r\n]*"payload"[ \t\r\n]*:')
_BLANKS = b" \t\r\n"
_NULL = b"null"
_QUOTE, _S = b'"s'
_PAYLOAD_OF_CONNECT = b',"payload":'
"""How Connect writes the text between schema and payload."""
_FREQUENT = 8
"""Envelopes that are looked for in all values of a batch at once."""
_MOST_ENVELOPES = 1000
_LONGEST_ENVELOPE = 64 * 1024
"""Bytes of an envelope that is remembered."""
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
    """Decodes JSON values for some columns. With `takes_bare` a value that is not an object is that of the only column,
    as in keys. Not thread-safe."""

    def __init__(self, columns: Columns, takes_bare: bool = False) -> None:
        names = [field.name for field in columns.fields]
        self._columns = columns
        self._around = _around(columns.fields[0]) if takes_bare else None
        self._plain = JsonDecoder(columns)
        self._may_be_wrapped = not {SCHEMA, PAYLOAD} <= set(names)
        self._telling = [] if takes_bare else [number for number, name in enumerate(names) if name not in _EVENT]
        """The positions of columns that a change event fills only if the table is meant for such events."""
        self._rules = RulesBySchema(columns.fields, columns.exact_case)
        self._decoders: dict[tuple[tuple[int, Field], ...], JsonDecoder] = {(): self._plain}
        """By the fields whose rules a schema changes."""
        self._frequent: list[_Envelope] = []
        self._known: dict[bytes, _Envelope] = {}
        """Envelopes by their prefix."""

    def nulls(self, values: pa.BinaryArray) -> Flags:
        """Flags the values that are null: Kafka's null, JSON's, or one in an envelope."""
        nulls = super().nulls(values)
        like_null = flags(pc.or_(pc.ends_with(values, _NULL), pc.ends_with(values, b"null}")))
        if not like_null.any():
            return nulls
        is_short = flags(pc.less_equal(pc.binary_length(values), len(_NULL)))
        for row in np.flatnonzero(like_null & (is_short | self._wrapped(values))).tolist():
            value = values[row].as_py()
            nulls[row] = self._content(value).strip(_BLANKS) == _NULL
        return nulls

    def decode(self, values: pa.BinaryArray) -> Decoded:
        wrapped = self._wrapped(values)
        gathered = Gathered(self._columns)
        for decoder, rows, payloads in self._payloads(values, wrapped):
            decoder.read(self._objects(payloads), rows, gathered)
        # Where members follow the payload, the value is a row, and no envelope.
        with_more = gathered.take_bad(lambda row: wrapped[row] and _goes_on(self._content(values[row].as_py())))
        if len(with_more):
            wrapped[with_more] = False
            self._plain.read(self._objects(values.take(pa.array(with_more))), with_more, gathered)
        return self._without_events(gathered.decoded(), values, wrapped)

    def _objects(self, values: pa.BinaryArray) -> pa.BinaryArray:
        return values if self._around is None else _as_objects(values, *self._around)

    def _without_events(self, decoded: Decoded, values: pa.BinaryArray, wrapped: Flags) -> Decoded:
        unfilled = _without_values([decoded.rows.column(number) for number in self._telling])
        if not unfilled.any():
            return decoded
        positions = np.delete(np.arange(len(values)), [bad_value.index for bad_value in decoded.bad])

        def document(position: int) -> Any:
            value = values[position].as_py()
            return document_of(self._content(value) if wrapped[position] else value)

        events = [row for row in np.flatnonzero(unfilled).tolist() if is_event(document(int(positions[row])))]
        bad = [*decoded.bad, *(BadValue(int(positions[row]), _UNEXPECTED_EVENT) for row in events)]
        rows = decoded.rows.take(pa.array(np.delete(np.arange(len(positions)), events)))
        return Decoded(rows, tuple(sorted(bad, key=lambda value: value.index)))

    def _content(self, value: bytes) -> bytes:
        """Returns what is decoded of a value: its payload, if it has an envelope."""
        envelope = self._envelope(value)
        return value if envelope is None else _payload(value, envelope)

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
        if not wrapped.any():
            yield self._plain, np.arange(len(values)), values
            return
        open_rows = wrapped.copy()
        is_closed = flags(pc.ends_with(values, b"}"))
        counted: Counter[_Envelope] = Counter()
        for envelope in self._frequent:
            rows = np.flatnonzero(open_rows & is_closed & flags(pc.starts_with(values, envelope.prefix)))
            if len(rows):
                open_rows[rows] = False
                counted[envelope] = len(rows)
                yield envelope.decoder, rows, pc.binary_slice(values.take(pa.array(rows)), len(envelope.prefix), -1)
        others: dict[JsonDecoder, tuple[list[int], list[bytes]]] = {}
        remaining = np.flatnonzero(open_rows)
        for row, value in zip(remaining.tolist(), values.take(pa.array(remaining)).to_pylist(), strict=True):
            found = self._envelope(value)
            decoder, payload = (self._plain, value) if found is None else (found.decoder, _payload(value, found))
            rows_of, payloads = others.setdefault(decoder, ([], []))
            rows_of.append(row)
            payloads.append(payload)
            if found is not None:
                counted[found] += 1
        self._frequent = [envelope for envelope, _ in counted.most_common(_FREQUENT)]
        for decoder, (rows_of, payloads) in others.items():
            yield decoder, np.array(rows_of), pa.array(payloads, pa.binary())
        if not wrapped.all():
            plain = ~wrapped
            yield self._plain, np.flatnonzero(plain), values.filter(pa.array(plain))

    def _envelope(self, value: bytes) -> _Envelope | None:
        """Returns the envelope of a value that has one."""
        end = value.find(_PAYLOAD_OF_CONNECT) + len(_PAYLOAD_OF_CONNECT)
        known = self._known.get(value[:end])
        if known is not None and value.endswith(b"}"):
            return known
        envelope = self._parsed(value)
        if envelope is not None and len(envelope.prefix) <= _LONGEST_ENVELOPE:
            if len(self._known) >= _MOST_ENVELOPES:
                self._known.clear()
            self._known[envelope.prefix] = envelope
        return envelope

    def _parsed(self, value: bytes) -> _Envelope | None:
        try:
            text = value.decode()
            opening = _BEGINS.match(text)
            schema, end = _PARSER.raw_decode(text, opening.end() if opening else len(text))
        except (ValueError, RecursionError):
            return None
        between = _BETWEEN.match(text, end)
        is_schema = schema is None or (isinstance(schema, dict) and is_type(schema.get("type")))
        if between is None or not is_schema or not value.rstrip(_BLANKS).endswith(b"}"):
            return None
        prefix = text[: between.end()].encode()
        if len(prefix) > 2 * DEEPEST and depth_of(prefix) > DEEPEST:
            return None
        return _Envelope(prefix, self._decoder_by(schema))

    def _decoder_by(self, schema: object) -> JsonDecoder:
        changes = self._rules.changes(schema)
        key = (*changes.items(),)
        if key not in self._decoders:
            if len(self._decoders) >= _MOST_DECODERS:
                self._decoders = {(): self._plain}
                self._known.clear()  # it would keep them
            self._decoders[key] = JsonDecoder(self._columns.with_rules_of(self._rules.changed(changes)))
        return self._decoders[key]


def _payload(value: bytes, envelope: _Envelope) -> bytes:
    return value.rstrip(_BLANKS)[len(envelope.prefix) : -1]


def _goes_on(payload: bytes) -> bool:
    """Whether something follows the first JSON value."""
    text = payload.decode(errors="replace").lstrip()
    try:
        _, end = _PARSER.raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return bool(text[end:].strip())


def _without_values(columns: Sequence[pa.Array]) -> Flags:
    """Flags the rows where all columns are null; nothing where one column has no null, or there is none."""
    if not columns or not all(column.null_count for column in columns):
        return np.zeros(0, np.bool_)
    found = np.ones(len(columns[0]), np.bool_)
    for column in columns:
        found &= flags(column.is_null())
    return found


def is_event(document: Any) -> TypeGuard[JsonObject]:
    """Whether a parsed value is a change event of Debezium's."""
    names = {name for name, _ in document} if type(document) is JsonObject else set()
    return {"op", "source"} <= names and not names.isdisjoint({"before", "after"})


def _around(field: Field) -> tuple[str, str]:
    """Returns what stands around the value of a field, in structs of one field, to make it an object."""
    inner = _around(field.inner[0]) if isinstance(field.kind, T.StructType) else ("", "")
    return f"{{{json.dumps(field.name)}:{inner[0]}", f"{inner[1]}}}"


def _as_objects(values: pa.BinaryArray, before: str, after: str) -> pa.BinaryArray:
    """Returns the values, with these texts around those that are not objects."""
    is_object = flags(pc.match_substring_regex(values, r"\A[ \t\r\n]*\{"))
    if is_object.all():
        return values
    objects = values.to_pylist()
    for row in np.flatnonzero(~is_object).tolist():
        scalar = None if objects[row] is None else _scalar(objects[row])
        if scalar is not None:
            objects[row] = f"{before}{scalar}{after}".encode()
    return pa.array(objects, pa.binary())


def _scalar(value: bytes) -> str | None:
    """Returns a text, a number or a boolean as JSON; None for anything else: the decoder says what is wrong with it."""
    try:
        document = document_of(value)
    except Undecodable:
        return None
    if document is None or isinstance(document, list):
        return None
    return json.dumps(document) if type(document) is str else compact_text(document)
