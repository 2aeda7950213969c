"""Selects the Protobuf message whose fields are the columns, and the record types that land.

Guarantee: nothing is guessed. If the file of a Protobuf schema has several messages, a setting has to name the one. The
record types that land include the type of the schema whose fields are the columns. Raises ConfigError; for Protobuf
also MissingCompiler and Unavailable, if this host cannot compile the schema now.
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


def select_message(
    schema: RegisteredSchema, message: str | None, types: Sequence[str], bounds: SchemaBounds = LARGEST
) -> SchemaSelection:
    """Returns the schema, for Protobuf with the message that gives the columns: `message` (value.message), else the
    only one of the file's that `types` (schema.types) lists, else the only one of the file. Nested messages count only
    for `message`.
    """
    if schema.kind != "PROTOBUF":
        return SchemaSelection(schema)
    if message is not None:
        return SchemaSelection(schema, message)
    try:
        bounds.check_text(schema.text, *referred(schema))
    except ConfigError as error:
        raise ConfigError(f"schema id {schema.id}: {error}") from None
    messages = messages_of(descriptors_of(schema))
    listed = [name for name in messages if name in types] if types else messages
    if len(listed) != 1:
        found = f"the messages {shown_reason(', '.join(messages))}" if messages else "no message"
        raise ConfigError(
            f"schema id {schema.id} has {found}. Set value.message to the message whose fields are the columns. Records"
            " of other messages are bad records."
        )
    return SchemaSelection(schema, listed[0])


def landing_types(selection: SchemaSelection, types: Sequence[str], bounds: SchemaBounds = LARGEST) -> tuple[str, ...]:
    """Returns the full names of the record types that land: `types` (schema.types), else those of the schema itself.
    JSON has none. `selection` is the schema that gives the columns: `columns_of_registered` has accepted it.
    """
    names = record_type_names(selection, bounds)
    if types and names and not {*names} & {*types}:
        raise ConfigError(
            f"schema id {selection.schema.id} is of type {names[0]}, which schema.types does not list. Add it, or name"
            " another subject."
        )
    return tuple(types) or names


def record_type_names(selection: SchemaSelection, bounds: SchemaBounds = LARGEST) -> tuple[str, ...]:
    """Returns the full name of the schema's record type, and after it an Avro record's aliases. JSON has none."""
    schema = selection.schema
    if schema.kind == "PROTOBUF":
        return (descriptor_of(descriptors_of(schema), selection.message).full_name,)
    if schema.kind == "AVRO":
        parsed = parse_avro([*referred(schema), schema.text], bounds)
        return avro_type(parsed.resolve(parsed.root)).names
    return ()
