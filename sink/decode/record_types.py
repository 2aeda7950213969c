"""Decides whether the records of a registered schema are of a type that lands.

A topic may hold records of several types. Guarantee: no row has half of a record of another type. Where the settings
or the columns' own schema name the types that land, records of another are refused. Where nothing names one, a record
is refused that leaves a column without a field while a field of its has no column: it may be of another type. Raises
UnusableSchema.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor

from sink.decode.column_records import UnusableSchema
from sink.decode.fields import Columns
from sink.schema.table_schema import IS_DELETED
from sink.schema.warnings import shown_reason


@dataclass(frozen=True, slots=True)
class RecordType:
    """The type of a registered schema's records. `names` has its full name first, then the aliases."""

    names: tuple[str, ...]
    fields: tuple[str, ...]


def avro_type(record: Mapping[str, Any]) -> RecordType:
    """Returns the type of an Avro record as `parse_avro` gives it."""
    return RecordType((record["name"], *record["aliases"]), tuple(field["name"] for field in record["fields"]))


def protobuf_type(message: Descriptor) -> RecordType:
    return RecordType((message.full_name,), tuple(field.name for field in message.fields))


def require_type(found: RecordType, types: Sequence[str], columns: Columns) -> None:
    """Raises UnusableSchema if records of the type do not land. `types` are the full names of those that do."""
    name = found.names[0]
    if types:
        if name not in types:
            listed = shown_reason(", ".join(types))
            raise UnusableSchema(
                f"it is of type {shown_reason(name)}, and the table takes {listed}. To land it too, list all of them in"
                " schema.types. Otherwise give it a sink of its own."
            )
        return
    names = [column.name for column in columns.fields if column.name != IS_DELETED]
    empty = _unmatched(names, found.fields, columns.exact_case)
    left_out = _unmatched(found.fields, names, columns.exact_case)
    if empty and (left_out or len(empty) == len(names)):
        more = f", and no column has its {_named('field', left_out)}" if left_out else ""
        raise UnusableSchema(
            f"{shown_reason(name)} has no field for the {_named('column', empty)}{more}: it may be of another type than"
            " the table's. List the full names of the types that land in schema.types."
        )


def _unmatched(names: Sequence[str], others: Collection[str], exact_case: bool) -> list[str]:
    """Returns the names that none of the others is."""
    known = {*others} if exact_case else {*others} | {other.lower() for other in others}
    return [name for name in names if name not in known and (exact_case or name.lower() not in known)]


def _named(kind: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{kind} {shown_reason(names[0], 100)!r}{more}"
