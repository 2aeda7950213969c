"""Makes the row that a record has to be in the table. Raises Bad for a record that is none, by the auditor's rules, and
NotComparable where a schema is missing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sink.audit.content.framing import message_path, unframed, with_header_id
from sink.audit.content.protobuf_files import descriptor_set, message_name
from sink.audit.content.specification import NotComparable, Specification
from sink.audit.decode.avro_types import written_type
from sink.audit.decode.avro_values import avro_reader
from sink.audit.decode.json_values import json_row
from sink.audit.decode.moments import EPOCH, in_utc
from sink.audit.decode.protobuf_types import MessageTypes
from sink.audit.decode.protobuf_values import protobuf_reader
from sink.audit.decode.rules import Bad
from sink.audit.log_records import Headers

WIRE = "-confluent"
UNKNOWN_SCHEMA = "no checkpoint has the id of their schema"
"""The reason of a record whose schema nothing says. The sink took it for bad, unless the table has its row: then that
cannot be compared."""
_MOST_READERS = 1_000
_EPOCH = in_utc(EPOCH)
_DELETED = "_hoodie_is_deleted"
Row = dict[str, Any]
Read = Callable[[bytes], Row]


class Record(NamedTuple):
    """A record as the log has it. `timestamp` is in milliseconds."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class DeclaredType:
    name: str
    fields: Sequence[str]


class RowMaker:
    """Makes rows by one specification, without the columns `left_out`. Keeps what it learned of schemas."""

    def __init__(self, spec: Specification, left_out: Collection[str] = ()) -> None:
        self._spec = spec
        self._readers: dict[object, Read | Bad] = {}
        self._kind = spec.form.removesuffix(WIRE)
        self._is_wire = spec.form.endswith(WIRE)
        self._added = [(name, self._reader_of_record(name)) for name in spec.added if name not in left_out]
        has_ids = self._is_wire or spec.setting("delete.key.format", "none").endswith(WIRE)
        self._needs_headers = has_ids or "_kafka_headers" in spec.added

    def row(self, topic: str, partition: int, record: Record) -> Row:
        """Returns all columns of the table but Hudi's own and a generated one."""
        self.require_headers(record)
        row = self.value(record)
        for name, read in self._added:
            row[name] = read(topic, partition, record)
        return row

    def require_headers(self, record: Record) -> None:
        """Raises Bad for headers that cannot be read, where they count."""
        if record.headers is None and self._needs_headers:
            raise Bad("headers that cannot be read")

    def added(self, topic: str, partition: int, record: Record) -> Row:
        """Returns the columns that come from the record, not from its value."""
        return {name: read(topic, partition, record) for name, read in self._added}

    def _reader_of_record(self, name: str) -> Callable[[str, int, Record], Any]:
        match name:
            case "_kafka_topic":
                return lambda topic, _, __: topic
            case "_kafka_partition":
                return lambda _, partition, __: partition
            case "_kafka_offset":
                return lambda _, __, record: record.offset
            case "_kafka_timestamp":
                return lambda _, __, record: _moment(record.timestamp)
            case "_kafka_key":
                form = self._spec.setting("key.format", "none")
                return lambda _, __, record: _key(record.key, form)
            case "_kafka_headers":
                return lambda _, __, record: _entries(record.headers)
        return lambda _, __, ___: None

    def value(self, record: Record) -> Row:
        """Returns the columns of the value."""
        value = record.value
        if self._kind in ("string", "bytes"):
            return self._raw(value)
        if self._is_wire:
            value = with_header_id(value, record.headers or (), "__value_schema_id")
        if value is None:
            raise Bad("a tombstone")
        spec = self._spec
        if self._kind == "json":
            return json_row(unframed(value)[1] if self._is_wire else value, spec.columns, spec.rules)
        key: object = ""
        if self._is_wire:
            schema_id, value = unframed(value)
            key = schema_id
            if self._kind == "protobuf":
                path, value = message_path(value)
                key = schema_id, path
        read = self._readers.get(key)
        if read is None:
            if len(self._readers) >= _MOST_READERS:
                self._readers.clear()
            read = self._readers[key] = self._reader(key)
        if isinstance(read, Bad):
            raise read
        return read(value)

    def _raw(self, value: bytes | None) -> Row:
        (column,) = self._spec.columns["fields"]
        if value is None:
            if not column["nullable"]:
                raise Bad("null, and NOT NULL")
            return {column["name"]: None}
        return {column["name"]: value if self._kind == "bytes" else _utf8(value)}

    def _reader(self, key: object) -> Read | Bad:
        try:
            if self._kind == "avro":
                return self._avro("value.schema.file" if key == "" else str(key), key == "")
            return self._protobuf(*key) if isinstance(key, tuple) else self._protobuf("", None)
        except Bad as error:
            return error

    def _fingerprint(self, schema_id: str, of_file: bool) -> str:
        spec = self._spec
        if of_file:
            name: str | None = spec.settings.get("value.schema.file")
            if name is None:
                raise NotComparable("their schema file has no fingerprint")
            return name
        name = spec.schemas.ids.get(schema_id)
        if name is None:
            raise Bad(UNKNOWN_SCHEMA)
        return name

    def avro_texts(self, schema_id: str, of_file: bool = False) -> list[str]:
        """Returns the schema of an id, last, behind those that it refers to."""
        parts = self._spec.schemas.texts(self._fingerprint(schema_id, of_file))
        if parts[-1][0] != "AVRO":
            raise Bad("no schema of Avro")
        return [text for _, text, _ in parts]

    def _avro(self, schema_id: str, of_file: bool) -> Read:
        texts = self.avro_texts(schema_id, of_file)
        written = written_type(texts)
        if not of_file and written.kind == "record":
            self._require_type(DeclaredType(written.name, written.names))
        return avro_reader(texts, self._spec.columns, self._spec.rules)

    def _protobuf(self, schema_id: str, path: tuple[int, ...] | None) -> Read:
        spec = self._spec
        parts = spec.schemas.texts(self._fingerprint(schema_id, path is None))
        if parts[-1][0] != "PROTOBUF":
            raise Bad("no schema of Protobuf")
        descriptors = descriptor_set(parts)
        try:
            name = spec.setting("value.message", "") if path is None else ""
            name = name or message_name(descriptors, path or (0,))
        except IndexError:
            raise Bad("no message at these indexes") from None
        if path is not None:
            fields = [field.name for field in MessageTypes(descriptors).message(name).fields]
            self._require_type(DeclaredType(name, fields))
        return protobuf_reader(descriptors, name, spec.columns, spec.rules)

    def _require_type(self, found: DeclaredType) -> None:
        """Raises Bad for a type of records that does not land."""
        types = self._spec.setting("types", ())
        if types:
            if found.name not in types:
                raise Bad(f"{found.name} is not one of {types}")
            return
        names = [column["name"] for column in self._spec.columns["fields"] if column["name"] != _DELETED]
        sources = [self._spec.rules.names.get(name, (name,))[0] for name in names]
        empty = _unmatched(sources, found.fields, self._spec.rules.exact_case)
        left_out = _unmatched(found.fields, sources, self._spec.rules.exact_case)
        if empty and (left_out or len(empty) == len(names)):
            raise Bad(f"{found.name} may be of another type than the table's")


def _unmatched(names: Sequence[str], others: Sequence[str], exact_case: bool) -> list[str]:
    known = {*others} if exact_case else {other.lower() for other in others}
    return [name for name in names if (name if exact_case else name.lower()) not in known]


def _moment(milliseconds: int) -> datetime | None:
    if milliseconds == -1:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        raise Bad("a timestamp outside of the years 1 to 9999") from None


def _entries(headers: Headers) -> list[dict[str, Any]] | None:
    return [{"key": key, "value": value} for key, value in headers or ()] or None


def _key(key: bytes | None, form: str) -> Any:
    return key if key is None or form == "bytes" else _utf8(key)


def _utf8(content: bytes) -> str:
    try:
        return content.decode("utf-8", "strict")
    except UnicodeDecodeError:
        raise Bad("no UTF-8") from None
