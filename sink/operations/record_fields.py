"""Compares the fields of records with the columns of their table: which fields have none, and which differ in case.

JSON says its fields in each value; Avro and Protobuf say theirs in the schema that a value was written with. Paths are
dotted; elements of arrays and values of maps have the path of their column. Raises nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import types as T

from sink.decode.fields import Columns, Field
from sink.decode.json.connect_json import is_event
from sink.decode.json.reasons import Undecodable
from sink.decode.json.text import JsonObject
from sink.decode.json.values import columns_of, document_of
from sink.infer.json_envelopes import changed_row, unwrapped
from sink.schema.table_schema import IS_DELETED


@dataclass
class RecordFields:
    """Fields of the records of a topic, each with the number of records that have it."""

    columns: Columns
    seen: Counter[str] = field(default_factory=Counter)
    """The outermost fields."""
    without_column: Counter[str] = field(default_factory=Counter)
    alike: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Fields beside the columns whose names differ from theirs in case only."""

    def add_json(self, values: Iterable[bytes | None], envelope: str) -> None:
        """Adds the members of JSON values, of which the envelopes are taken off. Those that are not JSON have none."""
        may_be_wrapped = not {"schema", "payload"} <= {column.name for column in self.columns.fields}
        for value in values:
            try:
                document = None if value is None else document_of(value)
            except Undecodable:
                continue
            if may_be_wrapped:
                document = unwrapped(document).payload
            if envelope == "debezium":
                document = changed_row(document) if is_event(document) else None
            if type(document) is JsonObject:
                self._add(_Found.of_json(document, self.columns), 1)

    def add_written(self, written: Iterable[tuple[T.StructType, Sequence[str], int]]) -> None:
        """Adds the fields of schemas: those that could be columns, the paths of those that no column holds, and the
        number of records that were written with the schema."""
        for struct, omitted, records in written:
            found = _Found.of_struct(struct, self.columns)
            found.without_column.update(omitted)
            self._add(found, records)

    def _add(self, found: _Found, records: int) -> None:
        self.seen.update(dict.fromkeys(found.seen, records))
        self.without_column.update(dict.fromkeys(found.without_column, records))
        self.alike.update(dict.fromkeys(found.alike, records))


class _Found:
    """The fields of one record, or of one schema."""

    def __init__(self, exact_case: bool) -> None:
        self._exact_case = exact_case
        self.seen: set[str] = set()
        self.without_column: set[str] = set()
        self.alike: set[tuple[str, str]] = set()

    @classmethod
    def of_json(cls, document: JsonObject, columns: Columns) -> _Found:
        found = cls(columns.exact_case)
        found.seen = {name for name, _ in document}
        found._of_object(document, columns.fields, "")
        return found

    @classmethod
    def of_struct(cls, struct: T.StructType, columns: Columns) -> _Found:
        found = cls(columns.exact_case)
        found.seen = set(struct.names)
        found._of_struct(struct, columns.fields, "")
        return found

    def _matched(self, names: Sequence[str], fields: Sequence[Field], prefix: str) -> Mapping[str, Field]:
        """Returns the column of each name that fills one, and notes the others."""
        by_name = {column.name: column for column in fields}
        folded = {name.lower(): name for name in by_name}
        try:
            filled = columns_of(names, by_name, {} if self._exact_case else folded)
        except Undecodable:
            # Two differ in case only: the record is bad.
            filled = {}
        for name in names:
            column = folded.get(name.lower())
            if column is not None and column != name:
                self.alike.add((f"{prefix}{name}", f"{prefix}{column}"))
            if name not in filled and (prefix or name != IS_DELETED):
                self.without_column.add(f"{prefix}{name}")
        return {name: by_name[column] for name, column in filled.items()}

    def _of_object(self, document: JsonObject, fields: Sequence[Field], prefix: str) -> None:
        columns = self._matched(tuple(name for name, _ in document), fields, prefix)
        for name, value in document:
            if name in columns:
                self._of_value(value, columns[name])

    def _of_value(self, value: Any, column: Field) -> None:
        if isinstance(column.kind, T.StructType) and type(value) is JsonObject:
            self._of_object(value, column.inner, f"{column.path}.")
        elif isinstance(column.kind, T.ArrayType) and type(value) is list:
            for inner in value:
                self._of_value(inner, column.element)
        elif isinstance(column.kind, T.MapType) and type(value) is JsonObject:
            for _, inner in value:
                self._of_value(inner, column.element)

    def _of_struct(self, struct: T.StructType, fields: Sequence[Field], prefix: str) -> None:
        columns = self._matched(struct.names, fields, prefix)
        for written in struct.fields:
            if written.name in columns:
                self._of_type(written.dataType, columns[written.name])

    def _of_type(self, kind: T.DataType, column: Field) -> None:
        if isinstance(column.kind, T.StructType) and isinstance(kind, T.StructType):
            self._of_struct(kind, column.inner, f"{column.path}.")
        elif isinstance(column.kind, T.ArrayType) and isinstance(kind, T.ArrayType):
            self._of_type(kind.elementType, column.element)
        elif isinstance(column.kind, T.MapType) and isinstance(kind, T.MapType):
            self._of_type(kind.valueType, column.element)
