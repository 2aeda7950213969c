"""How the records of a commit became rows: its specification, its columns and the schemas that it names.

Guarantee: nothing of the configuration counts, only what the commit and the table have. Raises `NotComparable` with the
reason, where they have too little.
"""

from __future__ import annotations

import gzip
import json
import posixpath
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sink.audit.decode.avro_types import MOMENTS, WrittenType, written_type
from sink.audit.decode.rules import Bad, Rules
from sink.audit.report import AuditFindings, FindingKind
from sink.audit.timeline import Commit
from sink.storage.table_files import TableFiles

RESERVED = ("_hoodie_", "_kafka_", "_debezium_", "_sink_")
"""Beginnings of the names of columns that Hudi and the sink add."""
PRESETS = {
    "hourly": ("hour", "yyyy-MM-dd-HH"),
    "daily": ("day", "yyyy-MM-dd"),
    "monthly": ("month", "yyyy-MM"),
    "yearly": ("year", "yyyy"),
}
"""The column and the pattern of each preset of partition.time.format."""
_SCHEMAS = ".hoodie/.sink_schemas"
_PLAIN = {"boolean": "boolean", "int": "integer", "long": "long", "float": "float", "double": "double"}
_TEXTS = {"string": "string", "bytes": "binary", "enum": "string"}
_UNFIT = (ValueError, LookupError, TypeError, AttributeError)
"""Exceptions for JSON that is broken, or has another shape."""


class NotComparable(Exception):
    """The rows of a commit cannot be held against the log. The text is a reason that is counted."""


class UnreadableSpecification(NotComparable):
    def __init__(self) -> None:
        super().__init__("their specification cannot be read")


@dataclass(frozen=True)
class Schemas:
    """The schemas of a commit: `documents` by fingerprint, `ids` of a registry with their fingerprints."""

    documents: Mapping[str, bytes] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)

    def texts(self, fingerprint: str) -> list[tuple[str, str, Mapping[str, int]]]:
        """Returns kind, text and references of the schemas that one refers to, and of it, last. Raises NotComparable
        for a schema that the table does not have, or that cannot be read."""
        if fingerprint not in self.documents:
            raise NotComparable("their schema is not in the table")
        try:
            document = json.loads(gzip.decompress(self.documents[fingerprint]))
            return [(part["kind"], part["text"], part["references"]) for part in document["schemas"]]
        except (*_UNFIT, OSError, EOFError, zlib.error):
            raise NotComparable("their schema in the table cannot be read") from None


@dataclass(frozen=True)
class TimePartition:
    field: str
    pattern: str
    zone: str
    column: str


@dataclass(frozen=True)
class Specification:
    """`columns` is the struct of the value's columns, as Spark writes it in JSON. `form` is value.format."""

    form: str
    columns: Mapping[str, Any]
    rules: Rules
    schemas: Schemas
    settings: Mapping[str, Any]
    """The settings that are not defaults, by name."""
    added: tuple[str, ...]
    """The columns that come from the record, not from its value."""
    time: TimePartition | None

    @property
    def floats(self) -> frozenset[str]:
        """The columns that are FLOATs."""
        return frozenset(column["name"] for column in self.columns["fields"] if column["type"] == "float")

    def setting(self, name: str, default: Any) -> Any:
        return self.settings.get(name, default)


def check_specifications(commits: Iterable[Commit], findings: AuditFindings) -> None:
    """Adds a finding for each specification that cannot be read."""
    for commit in commits:
        for sink, text in commit.specifications.items():
            try:
                _settings(text)
            except UnreadableSpecification:
                sentence = f"commit {commit}: the specification of sink {sink} cannot be read"
                findings.add(FindingKind.UNREADABLE_INSTANT, sentence)


def specification_of(text: str | None, schema: str, ids: Mapping[str, str], table: TableFiles) -> Specification:
    """Returns what commits with this text and these columns say. `ids` are the registered schemas that they name, with
    their fingerprints."""
    settings, rules, time, columns = _settings(text or "{}")
    if "value.format" not in settings:
        raise NotComparable("their commit has no specification")
    try:
        all_columns = _struct(written_type([schema]))["fields"]
    except (Bad, LookupError):
        all_columns = []
    if not all_columns:
        raise NotComparable("their commit has no columns")
    generated = () if time is None else (time.column,)
    own = [
        column
        for column in all_columns
        if not column["name"].lower().startswith(RESERVED) and column["name"] not in generated
    ]
    columns = columns or {"type": "struct", "fields": own}
    value_columns = {column["name"] for column in columns["fields"]}
    added = tuple(column["name"] for column in all_columns if column["name"] not in value_columns)
    bare_ids = {name.rpartition("/")[2]: found for name, found in ids.items()}
    named = {*bare_ids.values(), settings.get("value.schema.file", "")} - {""}
    documents = {name: content for name in sorted(named) if (content := _document(table, name)) is not None}
    return Specification(settings["value.format"], columns, rules, Schemas(documents, bare_ids), settings, added, time)


def _settings(text: str) -> tuple[Mapping[str, Any], Rules, TimePartition | None, Mapping[str, Any] | None]:
    """Returns the settings of a specification, and the rules, the generated partition and the columns in them."""
    try:
        settings = json.loads(text)
        columns = settings.get("columns")
        for column in columns["fields"] if columns else ():
            _ = column["name"], column["type"], column["nullable"]
        if not all(isinstance(settings.get(name, ""), str) for name in ("value.format", "value.schema.file")):
            raise TypeError
        return settings, _rules(settings), _time(settings), columns
    except _UNFIT:
        raise UnreadableSpecification from None


def _document(table: TableFiles, fingerprint: str) -> bytes | None:
    try:
        return table.read(posixpath.join(table.root, _SCHEMAS, f"{fingerprint}.json.gz"))
    except FileNotFoundError:
        return None


def _rules(settings: Mapping[str, Any]) -> Rules:
    def by_column(name: str) -> dict[str, str]:
        return dict(settings.get(name, ()))

    return Rules(
        by_column("time.unit"),
        by_column("date.unit"),
        by_column("decimal.format"),
        infinity=settings.get("time.infinity", "bad"),
        rounds=settings.get("decimal.rounding") == "half_up",
        exact_case=settings.get("field.case") == "exact",
        names={column: tuple(path) for column, path in settings.get("field.names", ())},
    )


def _time(settings: Mapping[str, Any]) -> TimePartition | None:
    name = settings.get("partition.time.field")
    if name is None:
        return None
    form = settings.get("partition.time.format", "daily")
    column, pattern = PRESETS.get(form, ("partition_time", form))
    zone = settings.get("partition.time.zone", "UTC")
    return TimePartition(name, pattern, zone, settings.get("partition.time.column") or column)


def _struct(written: WrittenType) -> dict[str, Any]:
    fields = []
    for name, part in zip(written.names, written.parts, strict=True):
        kind, nullable = _optional(part)
        fields.append({"name": name, "type": kind, "nullable": nullable, "metadata": {}})
    return {"type": "struct", "fields": fields}


def _optional(written: WrittenType) -> tuple[Any, bool]:
    if written.kind == "union":
        others = [part for part in written.parts if part.kind != "null"]
        return _kind(others[0]), len(others) < len(written.parts)
    return _kind(written), False


def _kind(written: WrittenType) -> Any:
    """Returns the type of a column as Spark writes it in JSON."""
    if written.kind == "record":
        return _struct(written)
    if written.kind in ("array", "map"):
        inner, has_null = _optional(written.parts[0])
        if written.kind == "array":
            return {"type": "array", "elementType": inner, "containsNull": has_null}
        return {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": has_null}
    if written.logical == "decimal":
        return f"decimal({written.precision},{written.scale})"
    if written.logical == "date":
        return "date"
    if written.logical in MOMENTS:
        return "timestamp"
    return {**_PLAIN, **_TEXTS, "fixed": "binary"}[written.kind]
