"""Which settings go with which `write.operation`. Pure.

The first contradiction is told in one sentence; what takes the columns to tell is told by `sink.table.usable`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sink.config.model import Settings

ENVELOPED = ("json", "json-confluent", "avro-confluent")


def contradiction(settings: Settings) -> str | None:
    operation = settings.operation
    of_upserts = {
        "ordering.field.name": bool(settings.ordering_fields),
        "delete.key.format": settings.delete_key_format != "none",
        "value.envelope": settings.value_envelope != "none",
    }
    given = [name for name, is_given in of_upserts.items() if is_given]
    if operation != "upsert" and given:
        return f"{given[0]} is for write.operation=upsert: set that, or remove {given[0]}"
    if operation == "append" and settings.table_type != "copy_on_write":
        return "target.table.type=merge_on_read is for write.operation=upsert or insert, not for append"
    if operation != "append" and settings.in_flight > 1:
        return (
            f"write.operation={operation} has one transaction in flight, for the next one's keys may be in it: set"
            " transactions.in.flight=1"
        )
    if operation != "append" and settings.schema_subject is not None:
        return f"schema.subject is for write.operation=append, not for {operation}; use schema.ddl"
    return _of_the_order(settings)


def _of_the_order(settings: Settings) -> str | None:
    enveloped = settings.value_envelope == "debezium"
    if settings.debezium_ordering != "log" and not enveloped:
        return "debezium.ordering is for value.envelope=debezium: set that too"
    if settings.debezium_ordering != "log" and settings.ordering_fields:
        return "ordering.field.name and debezium.ordering both order the changes; keep one"
    if enveloped and settings.value_format not in ENVELOPED:
        return (
            "value.envelope=debezium is JSON, or Avro behind a registry's header, not"
            f" value.format={settings.value_format}"
        )
    return None
