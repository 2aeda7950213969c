"""Checks a JSON Schema against the metaschema of its dialect, in a time that grows with its text.

`check_schema` of jsonschema compares each pair of values for `uniqueItems`, compiles regular expressions for `format`,
and for `anyOf` collects every error with the text of all that is nested in it: 24,000 objects in an `enum` take
minutes. None of these matters for columns. Guarantee: the first error ends the check. Raises SchemaError.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from jsonschema import Draft3Validator, Draft4Validator, Draft6Validator, Draft7Validator, SchemaError, ValidationError
from jsonschema.validators import extend, validator_for

_SCHEMA = {"$ref": "#"}
_SCHEMAS_BY_NAME = {"type": "object", "additionalProperties": _SCHEMA}
_NEWER = {
    "$defs": _SCHEMAS_BY_NAME,
    "dependentSchemas": _SCHEMAS_BY_NAME,
    "prefixItems": {"$ref": "#/definitions/schemaArray"},
    **dict.fromkeys(("contentSchema", "unevaluatedItems", "unevaluatedProperties"), _SCHEMA),
}
"""Keywords with schemas that dialects after draft 7 added. Their own metaschemas take six times as long, and for each
schema as long as it is deep."""


def check_schema(contents: Any, dialect: str) -> None:
    """Raises SchemaError for the first part that the metaschema does not allow."""
    base = validator_for({"$schema": dialect}, Draft7Validator)
    older = (Draft3Validator, Draft4Validator, Draft6Validator)
    for error in _checker(base if base in older else Draft7Validator).iter_errors(contents):
        raise SchemaError.create_from(error)


@lru_cache(4)
def _checker(base: Any) -> Any:
    keywords = {"uniqueItems": _passed, "format": _passed, "type": _type, "anyOf": _any_of, "enum": _enum}
    # Where a schema names its dialect, jsonschema goes on with its own keywords.
    metaschema = {name: value for name, value in base.META_SCHEMA.items() if name != "$schema"}
    if base is Draft7Validator:
        metaschema["properties"] = {**metaschema["properties"], **_NEWER}
    checker = extend(base, keywords)  # type: ignore[no-untyped-call]
    return checker(metaschema)


def _passed(_validator: Any, _value: Any, _instance: Any, _schema: Any) -> Iterator[ValidationError]:
    yield from ()


def _type(validator: Any, types: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    alternatives = types if isinstance(types, list) else [types]
    for alternative in alternatives:
        # In draft 3 a schema can be a type.
        if isinstance(alternative, dict):
            if _fits(validator, alternative, instance):
                return
        elif validator.is_type(instance, alternative):
            return
    yield ValidationError(f"{reprlib.repr(instance)} is not of type {', '.join(map(repr, alternatives))}")


def _any_of(validator: Any, alternatives: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if not any(_fits(validator, alternative, instance) for alternative in alternatives):
        yield ValidationError(f"{reprlib.repr(instance)} is not valid under any of the given schemas")


def _enum(_validator: Any, values: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if instance not in values:
        yield ValidationError(f"{reprlib.repr(instance)} is not one of {values!r}")


def _fits(validator: Any, schema: Any, instance: Any) -> bool:
    return next(validator.descend(instance, schema), None) is None
