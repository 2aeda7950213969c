"""Derives the columns from a JSON Schema: for each property the type that holds all its values, as `sink.decode` reads
JSON.

Guarantee: all columns are nullable. `format`, bounds and patterns do not make a column narrower, because producers may
ignore them. A property with several types, or without a type, is a STRING with its JSON. The warnings list these
properties, and objects of which only some values have certain properties. Raises ConfigError for a schema that is not
an object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urljoin

from jsonschema import SchemaError
from pyspark.sql import types as T
from referencing import Registry, Resource, Specification
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7, Schema, specification_with

from coordination.errors import ConfigError
from sink.decode.registry import RegisteredSchema, referred
from sink.infer.json_metaschemas import check_schema
from sink.schema.bounds import LARGEST, Place, SchemaBounds, SchemaTooLarge
from sink.schema.warnings import SchemaWarning, shown_reason

_T = TypeVar("_T")

_SCALARS: Mapping[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "integer": T.LongType(),
    "number": T.DoubleType(),
    "string": T.StringType(),
}
_CONNECT: Mapping[tuple[str, str], T.DataType] = {
    **{("integer", name): T.IntegerType() for name in ("int8", "int16", "int32")},
    ("number", "float32"): T.FloatType(),
}
"""Columns for the types that Kafka Connect's converter adds to those of JSON."""
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_OF_VALUES: Mapping[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}
_BRANCHES = ("oneOf", "anyOf", "allOf")
_NULLS = ({"type": "null"}, {"enum": [None]}, {"const": None})


def columns_of_json_schema(
    schema: RegisteredSchema, warnings: list[SchemaWarning], bounds: SchemaBounds = LARGEST
) -> T.StructType:
    """Returns the columns for the properties of the schema."""
    try:
        root_type = _columns(schema, warnings, bounds)
    except SchemaError as error:
        raise ConfigError(f"it is not a JSON Schema: {shown_reason(error.message)}") from None
    except RecursionError:
        raise bounds.too_deep("") from None
    except ValueError as error:
        # Not JSON, or an invalid `$id`.
        raise ConfigError(f"it is not a JSON Schema: {error}") from None
    if not isinstance(root_type, T.StructType):
        raise ConfigError(f"its type is {root_type.simpleString()}; only the properties of an object can be columns")
    return root_type


def _columns(schema: RegisteredSchema, warnings: list[SchemaWarning], bounds: SchemaBounds) -> T.DataType:
    texts = list(dict.fromkeys([schema.text, *referred(schema)]))
    parsed = dict(zip(texts, bounds.parse_all(texts), strict=True))
    _check_ids(parsed.values(), bounds)
    try:
        root_type = _type_of_root(schema, parsed, warnings, bounds)
    except SchemaTooLarge:
        # The walk counts, and the check does not.
        raise
    except Exception:
        # A walk through something else than a JSON Schema fails in many ways. The check says what is wrong.
        _check(parsed)
        raise
    _check(parsed)
    return root_type


def _check(parsed: Mapping[str, Any]) -> None:
    for contents in parsed.values():
        check_schema(contents, _dialect(contents))


def _check_ids(trees: Iterable[Any], bounds: SchemaBounds) -> None:
    """Counts the names under which schemas within schemas are found: each id continues those around it."""
    nested = [(tree, 0) for tree in trees]
    characters = 0
    while nested:
        node, length = nested.pop()
        if isinstance(node, dict):
            ids = [len(node[name]) for name in ("$id", "id") if isinstance(node.get(name), str)]
            length += sum(ids)
            characters += length if ids else 0
            if characters > bounds.characters:
                raise SchemaTooLarge(
                    f"its ids, each with those around it, have more than {bounds.characters:,} characters. Register a"
                    " schema with shorter ids."
                )
        if isinstance(node, (dict, list)):
            inner = node.values() if isinstance(node, dict) else node
            nested += [(part, length) for part in inner if isinstance(part, (dict, list))]


def _type_of_root(
    schema: RegisteredSchema, parsed: Mapping[str, Any], warnings: list[SchemaWarning], bounds: SchemaBounds
) -> T.DataType:
    root = _resource(parsed[schema.text])
    location = root.id() or ""
    named_resources = [*_named_resources(schema, location, parsed), (location, root)]
    # Once and for all: the resolver would search all of it for each name that it does not know.
    registry: Registry[Schema] = Registry().with_resources(named_resources).crawl()
    specification = specification_with(_dialect(root.contents), default=DRAFT7)
    walk = _Walk(registry.resolver(location), (), _Context(specification, warnings))
    return walk.type_of(root.contents, Place.root(bounds))


def _dialect(contents: Any) -> str:
    dialect = contents.get("$schema") if isinstance(contents, dict) else None
    return dialect if isinstance(dialect, str) else ""


def _resource(contents: Any) -> Resource[Schema]:
    return Resource.from_contents(contents, default_specification=DRAFT7)


def _named_resources(
    schema: RegisteredSchema, location: str, parsed: Mapping[str, Any]
) -> Iterator[tuple[str, Resource[Schema]]]:
    """Yields all references, and their references, by the names under which the resolver looks them up."""
    for name, reference in schema.references:
        resource = _resource(parsed[reference.text])
        yield name, resource
        yield urljoin(location, name), resource
        yield from _named_resources(reference, resource.id() or "", parsed)


class _Context:
    """Dialect, warnings and facts that the walks through one schema share."""

    def __init__(self, specification: Specification[Schema], warnings: list[SchemaWarning]) -> None:
        self.specification = specification
        self.warnings = warnings
        self._facts: dict[tuple[Callable[..., Any], int], Any] = {}

    def fact(self, of: Callable[[Mapping[str, Any]], _T], schema: Mapping[str, Any]) -> _T:
        """Returns `of(schema)`, or raises its ConfigError. It is called once: a thousand properties can refer to a
        schema with thousands of values or branches."""
        key = of, id(schema)
        if key not in self._facts:
            try:
                self._facts[key] = of(schema)
            except ConfigError as error:
                self._facts[key] = error
        found: _T | ConfigError = self._facts[key]
        if isinstance(found, ConfigError):
            raise ConfigError(str(found))
        return found


class _Walk:
    """Walks through a schema and its subschemas."""

    def __init__(
        self,
        resolver: Any,
        enclosing: tuple[int, ...],
        context: _Context,
    ) -> None:
        self._resolver = resolver
        self._enclosing = enclosing
        """The ids of the enclosing schemas."""
        self._context = context

    def type_of(self, schema: Any, place: Place) -> T.DataType:
        """Returns the type. Raises ConfigError if the schema has no type, or several."""
        walk, target = self._resolve(schema, place)
        return walk._type_of(target, place)

    def column_of(self, schema: Any, place: Place) -> T.DataType:
        try:
            return self.type_of(schema, place)
        except SchemaTooLarge:
            raise
        except ConfigError as error:
            reason = shown_reason(str(error))
            self._context.warnings.append(f"{place} is STRING, the JSON of its values: {reason}")
            return T.StringType()

    def _resolve(self, schema: Any, place: Place) -> tuple[_Walk, Mapping[str, Any]]:
        """Resolves `$ref`. Returns the schema, and the walk there."""
        if not isinstance(schema, dict):
            raise ConfigError("it has no type")
        if "$ref" not in schema:
            resolver = self._resolver.in_subresource(self._context.specification.create_resource(schema))
            return self._inner_walk(resolver, schema), schema
        reference = schema["$ref"]
        try:
            resolved = self._resolver.lookup(reference)
        except (Unresolvable, TypeError, ValueError):
            # The resolver raises the last two for a path through a value that is not a schema.
            raise ConfigError(f"it refers to {reference}, which does not exist") from None
        if id(resolved.contents) in self._enclosing:
            raise ConfigError("it contains itself")
        return self._inner_walk(resolved.resolver, schema)._resolve(resolved.contents, place.step())

    def _inner_walk(self, resolver: Any, schema: Mapping[str, Any]) -> _Walk:
        return _Walk(resolver, (*self._enclosing, id(schema)), self._context)

    def _type_of(self, schema: Mapping[str, Any], place: Place) -> T.DataType:
        name = self._context.fact(_type_name, schema)
        if name == "object" or (name is None and len(schema.get("allOf", ())) > 1):
            return self._object(schema, place)
        if name is None:
            return self.type_of(self._context.fact(_only_branch, schema), place.step())
        if name == "array":
            return T.ArrayType(self.column_of(schema.get("items"), place.element()))
        if name not in _SCALARS:
            raise ConfigError(f"{name!r} is not a type of JSON Schema")
        if name == "number" and schema.get("title") == _DECIMAL:
            return _decimal(schema.get("connect.parameters"))
        return _CONNECT.get((name, str(schema.get("connect.type"))), _SCALARS[name])

    def _object(self, schema: Mapping[str, Any], place: Place) -> T.DataType:
        properties = {name: (property_schema, walk) for name, property_schema, walk in self._properties(schema, place)}
        if not properties:
            values = schema.get("additionalProperties")
            if isinstance(values, dict) and values:
                return T.MapType(T.StringType(), self.column_of(values, place.value()))
            if not any(key in schema for key in _BRANCHES):
                raise ConfigError("an object without properties")
            return self.type_of(self._context.fact(_only_branch, schema), place.step())
        if self._context.fact(_has_choices, schema):
            where = str(place) or "columns"
            self._context.warnings.append(f"left out: {where}: properties of some values only (oneOf, anyOf)")
        columns = [
            (name, walk.column_of(property_schema, place.field(name)))
            for name, (property_schema, walk) in properties.items()
        ]
        return T.StructType([T.StructField(name, kind) for name, kind in columns])

    def _properties(self, schema: Mapping[str, Any], place: Place) -> Iterator[tuple[str, Any, _Walk]]:
        """Yields the properties of all schemas in `allOf`; the last one of a name counts."""
        for branch in schema.get("allOf", ()):
            walk, target = self._resolve(branch, place.step())
            yield from walk._properties(target, place)
        for name, property_schema in schema.get("properties", {}).items():
            # Of a thousand branches all may have the same names.
            place.step()
            yield name, property_schema, self


def _type_name(schema: Mapping[str, Any]) -> str | None:
    """Returns the type that is not null; None if only subschemas have types."""
    declared = schema.get("type")
    names = [declared] if isinstance(declared, str) else declared or []
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    names = [name for name in names or map(_type_of_value, values) if name != "null"]
    if not all(isinstance(name, str) for name in names):
        raise ConfigError("it is one of several schemas")
    if {*names} == {"integer", "number"}:
        return "number"
    if len({*names}) > 1:
        raise ConfigError(f"it has several types: {', '.join(dict.fromkeys(names))}")
    return names[0] if names else "object" if "properties" in schema else None


def _type_of_value(value: Any) -> str:
    return "null" if value is None else _OF_VALUES.get(type(value), type(value).__name__)


def _only_branch(schema: Mapping[str, Any]) -> Any:
    """Returns the only alternative that is not null."""
    branches = [branch for key in _BRANCHES for branch in schema.get(key, ()) if not _is_null(branch)]
    if len(branches) != 1:
        raise ConfigError("it is one of several schemas" if branches else "it has no type")
    return branches[0]


def _has_choices(schema: Mapping[str, Any]) -> bool:
    """Returns whether only some values have certain properties."""
    branches = (branch for key in ("oneOf", "anyOf") for branch in schema.get(key, ()))
    return any(isinstance(branch, dict) and "properties" in branch for branch in branches)


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and any(null.items() <= schema.items() for null in _NULLS)


def _decimal(parameters: Any) -> T.DataType:
    """Returns the type of a decimal that Kafka Connect writes as a number."""
    try:
        scale, precision = int(parameters["scale"]), int(parameters.get("connect.decimal.precision", 38))
    except (AttributeError, LookupError, TypeError, ValueError):
        raise ConfigError(f"its connect.parameters have no scale: {parameters}") from None
    if not 0 <= scale <= precision <= 38:
        raise ConfigError(f"no column holds a decimal of precision {precision} and scale {scale}")
    return T.DecimalType(precision, scale)
