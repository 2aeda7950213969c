"""Finds the rows in the JSON messages of a sample: without the envelopes of Kafka Connect and Debezium, and with the
types that their schemas say. Raises nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import types as T

from sink.decode.json.connect_json import is_event
from sink.decode.json.reasons import Undecodable
from sink.decode.json.text import JsonObject
from sink.decode.json.values import document_of
from sink.infer.connect_types import ConnectTypes, merged_structs
from sink.infer.json_envelopes import Unwrapped, changed_row, member, unwrapped


@dataclass(frozen=True, slots=True)
class MessageRows:
    rows: Mapping[int, JsonObject]
    """The row of each message that has one, by its index."""
    are_events: bool
    """Whether the messages are change events of Debezium's."""
    types: T.StructType
    """The types that schemas say."""
    meanings: Mapping[tuple[str, str], str]
    """Settings, by name and path of a column, that rows without a schema need to be read like those with one."""


def message_rows(contents: Sequence[bytes | None], are_events: bool) -> MessageRows:
    """Finds the rows. Messages are change events if most of them are, or if `are_events` says so."""
    messages = {index: unwrapped(_parsed(content)) for index, content in enumerate(contents)}
    objects = {index: message for index, message in messages.items() if type(message.payload) is JsonObject}
    are_events = are_events or 2 * sum(is_event(message.payload) for message in objects.values()) > len(objects)
    rows = {}
    for index, message in objects.items():
        row = message.payload
        if are_events:
            row = changed_row(row) if is_event(row) else None
        if row is not None:
            rows[index] = row
    types, meanings, all_have = _types({index: objects[index] for index in rows}, rows, are_events)
    return MessageRows(rows, are_events, types, {} if all_have else meanings)


def _parsed(content: bytes | None) -> Any:
    try:
        return None if content is None else document_of(content)
    except Undecodable:
        return None


def _types(
    messages: Mapping[int, Unwrapped], rows: Mapping[int, JsonObject], are_events: bool
) -> tuple[T.StructType, Mapping[tuple[str, str], str], bool]:
    """Returns the types that schemas say, what settings would say of columns, and whether all rows have a schema."""
    by_schema: dict[str, tuple[Any, list[JsonObject]]] = {}
    for index, message in messages.items():
        if message.schema is not None:
            # Messages repeat their schema; its text tells one from another.
            by_schema.setdefault(repr(message.schema), (message.schema, []))[1].append(rows[index])
    derived = ConnectTypes()
    types = [
        derived.type_of(_schema_of_row(schema) if are_events else schema, values)
        for schema, values in by_schema.values()
    ]
    structs = [kind for kind in types if isinstance(kind, T.StructType)]
    all_have = sum(len(values) for _, values in by_schema.values()) == len(rows)
    return reduce(merged_structs, structs, T.StructType([])), derived.meanings, all_have


def _schema_of_row(schema: JsonObject) -> Any:
    """Returns the schema of the changed row in that of an event."""
    fields = member(schema, "fields")
    by_name = {member(inner, "field"): inner for inner in (fields if type(fields) is list else [])}
    return by_name.get("after", by_name.get("before"))
