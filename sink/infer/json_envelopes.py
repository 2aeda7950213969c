"""Takes off the envelopes of parsed JSON: Kafka Connect's, with its schema, and that of Debezium's change events.

Raises nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sink.decode.json.connect_json import PAYLOAD, SCHEMA
from sink.decode.json.connect_schemas import is_type
from sink.decode.json.text import JsonObject


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """A value without Connect's envelope. `schema` is None without one, and where Connect wrote null."""

    payload: Any
    schema: JsonObject | None = None


def unwrapped(document: Any) -> Unwrapped:
    """Takes off Connect's envelope: the members `schema`, null or a schema of Connect's, and `payload`."""
    if type(document) is not JsonObject or [name for name, _ in document] != [SCHEMA, PAYLOAD]:
        return Unwrapped(document)
    (_, schema), (_, payload) = document
    if schema is None:
        return Unwrapped(payload)
    if is_type(member(schema, "type")):
        return Unwrapped(payload, schema)
    return Unwrapped(document)


def changed_row(event: JsonObject) -> JsonObject | None:
    """Returns the row after the change, or what an event knows of a deleted row."""
    row = member(event, "before" if member(event, "op") == "d" else "after")
    return row if type(row) is JsonObject else None


def member(document: Any, name: str) -> Any:
    """Returns a member of an object, the last one of that name; None without one."""
    return dict(document).get(name) if type(document) is JsonObject else None
