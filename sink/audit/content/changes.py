"""Makes the change that a record is to an upsert table, by the rules of `docs/how-to/upserts.md`.

Raises Bad for a record that is none, and NotComparable where a schema is missing.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple

from sink.audit.content.framing import unframed, with_header_id
from sink.audit.content.places import Places
from sink.audit.content.records import WIRE, Record, Row, RowMaker
from sink.audit.content.specification import Specification
from sink.audit.decode.avro_values import avro_reader
from sink.audit.decode.json_values import is_null, json_key
from sink.audit.decode.rules import Bad, Rules, decimal_type

_UNAVAILABLE = "__debezium_unavailable_value"
_SOURCE = {"lsn": "long", "file": "string", "pos": "long", "ts_ms": "long", "snapshot": "string"}
_POSITION = "_debezium_"
"""The column of a position in a database's log begins so, and ends with what is counted."""
_KAFKA_KEY = "_kafka_key"
_FIRST_IN_BINLOG = f"{0:010d}.{0:020d}"
_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_MARKS = {"true": True, "1": True, "false": False, "0": False, "": False}


class Change(NamedTuple):
    """`row` has all columns that the change knows. `before` has those before an update, where the event says them."""

    row: Row
    deletes: bool
    before: Row | None = None


@dataclass(frozen=True)
class Ordering:
    """`fields` are the table's ordering columns, `is_global` says whether a key is one row in the whole table."""

    fields: tuple[str, ...]
    is_global: bool


class ChangeMaker:
    """Makes changes by one specification."""

    def __init__(self, spec: Specification, places: Places, ordering: Ordering) -> None:
        self._spec, self._places, self._ordering = spec, places, ordering
        self._is_debezium = spec.setting("value.envelope", "none") == "debezium"
        self._required = [column["name"] for column in spec.columns["fields"] if not column["nullable"]]
        nullable = _nullable(spec.columns)
        self._row = replace(spec, columns=nullable)
        self._marker = spec.setting("delete.field", "_hoodie_is_deleted")
        self._positions = [name for name in spec.added if name.startswith(_POSITION)]
        self._is_json = spec.form.startswith("json")
        self._keys = _Keys(spec, tuple(name for name in places.keys if name != _KAFKA_KEY))
        if self._is_debezium:
            self._makers = [RowMaker(replace(spec, columns=_event(nullable), rules=_event_rules(spec.rules)))]
        elif spec.form in ("string", "bytes") or self._marker in (column["name"] for column in nullable["fields"]):
            self._makers = [RowMaker(self._row)]
        else:
            self._makers = [
                RowMaker(replace(spec, columns=_with(nullable, self._marker, kind))) for kind in ("boolean", "string")
            ]

    def change(self, topic: str, partition: int, record: Record) -> Change | None:
        """Returns the change; None for a record that changes nothing."""
        self._makers[0].require_headers(record)
        if self._is_tombstone(record):
            if self._ordering.fields and self._is_debezium:
                return None
            if self._ordering.fields:
                raise Bad("a tombstone has no ordering value")
            change = Change({column["name"]: None for column in self._spec.columns["fields"]}, True)
            needs_key = True
        elif self._is_debezium:
            found = self._event(record)
            if found is None:
                return None
            change = found
            needs_key = change.deletes and any(change.row.get(name) is None for name in self._keys.fields)
        else:
            change, needs_key = self._marked(record), False
        added = self._makers[0].added(topic, partition, record)
        row = {**change.row, **{name: value for name, value in added.items() if name not in self._positions}}
        if needs_key and self._keys.fields:
            row |= self._keys.of(record)
        change = change._replace(row=row)
        self._require(change)
        return change

    def _is_tombstone(self, record: Record) -> bool:
        value = record.value
        if value is None:
            return True
        if not self._is_json:
            return False
        if self._spec.form.endswith(WIRE):
            try:
                _, value = unframed(with_header_id(value, record.headers or (), "__value_schema_id") or b"")
            except Bad:
                return False
        return is_null(value, self._spec.columns, self._spec.rules)

    def _marked(self, record: Record) -> Change:
        errors = []
        for maker in self._makers:
            try:
                row = maker.value(record)
            except Bad as error:
                errors.append(error)
                continue
            is_column = self._marker in (column["name"] for column in self._spec.columns["fields"])
            mark = row.get(self._marker) if is_column else row.pop(self._marker, None)
            if isinstance(mark, str):
                if mark not in _MARKS:
                    raise Bad(f"{self._marker} is neither true nor false")
                mark = _MARKS[mark]
            return Change(row, bool(mark))
        raise errors[0]

    def _event(self, record: Record) -> Change | None:
        event = self._makers[0].value(record)
        kind, before, after = event["op"], event["before"], event["after"]
        if kind == "m":
            return None
        if kind not in ("c", "u", "r", "d"):
            raise Bad(f"no change event: op {kind!r}")
        found = before if kind == "d" else after
        if found is None and kind != "d":
            raise Bad("a change without the row after it")
        row = dict(found or {column["name"]: None for column in self._spec.columns["fields"]})
        if _is_unavailable(row):
            raise Bad("a value that the database did not log")
        for name in self._positions:
            row[name] = _position(event["source"] or {}, name.removeprefix(_POSITION))
        return Change(row, kind == "d", before if kind == "u" else None)

    def _require(self, change: Change) -> None:
        row = change.row
        if any(row.get(name) is None for name in self._ordering.fields):
            raise Bad("an ordering column is null")
        located = () if self._ordering.is_global else self._sources()
        required = located if change.deletes else self._required
        if missing := [name for name in required if row.get(name) is None]:
            raise Bad(f"{missing[0]} is null")
        if change.deletes and len(self._ordering.fields) == 1 and self._is_int_zero(row):
            raise Bad("the INT 0 is not an ordering value of a delete")

    def _sources(self) -> Sequence[str]:
        time = self._spec.time
        names = [name for name in self._places.partitions if time is None or name != time.column]
        return names if time is None else [*names, time.field]

    def _is_int_zero(self, row: Row) -> bool:
        (name,) = self._ordering.fields
        kinds = {column["name"]: column["type"] for column in self._spec.columns["fields"]}
        return bool(kinds.get(name) in ("integer", "short", "byte") and row[name] == 0)


class _Keys:
    """Reads record keys from Kafka's keys."""

    def __init__(self, spec: Specification, fields: tuple[str, ...]) -> None:
        self._spec, self.fields = spec, fields
        self._form = spec.setting("delete.key.format", "none")
        by_name = {column["name"]: column for column in spec.columns["fields"]}
        self._kinds = {name: by_name[name]["type"] for name in fields if name in by_name}
        nullable = [{**by_name[name], "nullable": True} for name in fields if name in by_name]
        self._columns = {"type": "struct", "fields": nullable}
        self._maker = RowMaker(replace(spec, form=self._form, columns=self._columns, settings={}))

    def of(self, record: Record) -> Row:
        key = record.key
        if self._form == "none":
            raise Bad("a delete without a record key, and delete.key.format is none")
        if key is None:
            raise Bad("a delete without a key")
        if self._form.endswith(WIRE):
            key = with_header_id(key, record.headers or (), "__key_schema_id") or b""
        match self._form:
            case "json":
                return json_key(key, self._columns, self._spec.rules)
            case "json-confluent":
                return json_key(unframed(key)[1], self._columns, self._spec.rules)
            case "avro-confluent":
                schema_id, content = unframed(key)
                texts = self._maker.avro_texts(schema_id)
                return avro_reader(texts, self._columns, self._spec.rules, takes_bare=True)(content)
        (name,) = self.fields
        return {name: self._bare(key, self._kinds[name])}

    def _bare(self, key: bytes, kind: Any) -> Any:
        if self._form in ("int", "long"):
            if len(key) != (4 if self._form == "int" else 8):
                raise Bad("a key of another length")
            number = int.from_bytes(key, "big", signed=True)
            return str(number) if kind == "string" else _in_range(number, kind)
        try:
            text = key.decode("utf-8", "strict")
        except UnicodeDecodeError:
            raise Bad("a key that is not UTF-8") from None
        if text[:1] and text[0] < " ":
            raise Bad("a key that begins with a control character")
        if (len(text) > 1 and text[0] == text[-1] == '"') or (text[:1] == "{" and text[-1:] == "}"):
            raise Bad("a key in JSON")
        if kind == "string":
            return text
        if kind not in _BITS:
            return _of_text(text, kind)
        digits = text.removeprefix("-")
        if not digits.isdecimal() or not digits.isascii():
            raise Bad("a key that is not a number")
        return _in_range(int(text), kind)


def _in_range(number: int, kind: str) -> int:
    bits = _BITS.get(kind, 64)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise Bad(f"a key of more than {bits} bits")
    return number


def _of_text(text: str, kind: Any) -> Any:
    """Returns the value of a key that is a text."""
    try:
        if kind == "date":
            return date.fromisoformat(text)
        if decimal_type(kind) is not None:
            return Decimal(text)
        return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
    except (ValueError, ArithmeticError, LookupError):
        raise Bad(f"a key that is not of type {kind}") from None


def _nullable(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": [{**column, "nullable": True} for column in columns["fields"]]}


def _with(columns: Mapping[str, Any], name: str, kind: Any) -> dict[str, Any]:
    added = {"name": name, "type": kind, "nullable": True, "metadata": {}}
    return {"type": "struct", "fields": [*columns["fields"], added]}


def _event(row: Mapping[str, Any]) -> dict[str, Any]:
    columns: dict[str, Any] = {"type": "struct", "fields": []}
    source: dict[str, Any] = {"type": "struct", "fields": []}
    for name, kind in _SOURCE.items():
        source = _with(source, name, kind)
    parts: Mapping[str, Any] = {"before": row, "after": row, "op": "string", "source": source}
    for name, part in parts.items():
        columns = _with(columns, name, part)
    return columns


def _event_rules(rules: Rules) -> Rules:
    """Returns the rules for the columns of the rows in an event."""

    def placed(choices: Mapping[str, Any]) -> dict[str, Any]:
        return {
            f"{outer}.{path}" if path else path: choice
            for path, choice in choices.items()
            for outer in ("before", "after")
        }

    names = {
        f"{outer}.{column}": (outer, *path) for column, path in rules.names.items() for outer in ("before", "after")
    }
    units = placed(rules.time_unit), placed(rules.date_unit)
    return replace(
        rules, time_unit=units[0], date_unit=units[1], decimal_format=placed(rules.decimal_format), names=names
    )


def _is_unavailable(value: Any) -> bool:
    if isinstance(value, str):
        return value in _PLACEHOLDERS
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace") in _PLACEHOLDERS
    if isinstance(value, Mapping):
        return any(map(_is_unavailable, (*value.keys(), *value.values())))
    if isinstance(value, list):
        return value == list(_UNAVAILABLE.encode()) or any(map(_is_unavailable, value))
    return False


def _placeholders() -> frozenset[str]:
    content = _UNAVAILABLE.encode()
    listed = f'["{_UNAVAILABLE}"]', f'{{"{_UNAVAILABLE}":"{_UNAVAILABLE}"}}'
    return frozenset({_UNAVAILABLE, base64.b64encode(content).decode(), content.hex(), *listed})


_PLACEHOLDERS = _placeholders()


def _position(source: Mapping[str, Any], ordering: str) -> Any:
    if ordering != "binlog":
        position = source.get(ordering)
        first: Any = 0
    else:
        file, offset = source.get("file"), source.get("pos")
        number = "" if file is None else file.rpartition(".")[2]
        has_position = number.isdecimal() and number.isascii() and offset is not None
        position = f"{int(number):010d}.{offset:020d}" if has_position else None
        first = _FIRST_IN_BINLOG
    return first if position is None and source.get("snapshot") == "incremental" else position
