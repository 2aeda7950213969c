"""Selects the message and the record types that land of a registered schema.

Guarantee: nothing is guessed. A Protobuf file has one message, or a setting names it; the type of the columns' own
schema is among those that land. Raises ConfigError.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordination.errors import ConfigError
from sink.decode.formats import descriptors_of
from sink.decode.protobuf.descriptors import descriptor_of, messages_of
from sink.decode.record_types import avro_type
from sink.decode.registry.client import RegisteredSchema, referred
from sink.infer.registered import SchemaSelection
from sink.schema.avro_types import parse_avro
from sink.schema.bounds import LARGEST, SchemaBounds
from sink.schema.warnings import shown_reason


def selected(
    schema: RegisteredSchema, message: str | None, types: Sequence[str], bounds: SchemaBounds = LARGEST
) -> SchemaSelection:
    """Returns the schema with its message, if it is Protobuf: that of value.message, the only one that schema.types
    lists, or the only one of the file."""
    if schema.kind != "PROTOBUF":
        return SchemaSelection(schema)
    if message is not None:
        return SchemaSelection(schema, message)
    bounds.check_text(schema.text, *referred(schema))
    messages = messages_of(descriptors_of(schema))
    listed = [name for name in messages if name in types] if types else messages
    if len(listed) != 1:
        found = f"the messages {shown_reason(', '.join(messages))}" if messages else "no message"
        raise ConfigError(
            f"schema id {schema.id} has {found}. Set value.message to the one whose fields are the columns. Records of"
            " the others are bad."
        )
    return SchemaSelection(schema, listed[0])


def landing_types(selection: SchemaSelection, types: Sequence[str], bounds: SchemaBounds = LARGEST) -> tuple[str, ...]:
    """Returns the full names of the record types that land: those of schema.types, else those of the schema itself.
    JSON has none. `selection` has columns."""
    names = names_of(selection, bounds)
    if types and names and not {*names} & {*types}:
        raise ConfigError(
            f"schema id {selection.schema.id} is of type {names[0]}, which schema.types does not list. Add it, or name"
            " another subject."
        )
    return tuple(types) or names


def names_of(selection: SchemaSelection, bounds: SchemaBounds = LARGEST) -> tuple[str, ...]:
    """Returns the full name of the schema's records, and for Avro their aliases. JSON has none."""
    schema = selection.schema
    if schema.kind == "PROTOBUF":
        return (descriptor_of(descriptors_of(schema), selection.message).full_name,)
    if schema.kind == "AVRO":
        parsed = parse_avro([*referred(schema), schema.text], bounds)
        return avro_type(parsed.resolve(parsed.root)).names
    return ()
