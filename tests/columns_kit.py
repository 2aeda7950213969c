"""Columns with the rules of their values, for tests of decoders."""

from __future__ import annotations

from sink.decode.fields import NO_RULES, Columns, ValueRules
from sink.schema.table_schema import TableSchema, parse_ddl


def columns(schema: TableSchema | str, rules: ValueRules = NO_RULES) -> Columns:
    """Returns the value columns of a schema, or of DDL."""
    declared = parse_ddl(schema, provenance=False) if isinstance(schema, str) else schema
    return Columns.of(declared.value_struct, rules)
