"""Derives the columns from a JSON Schema: for each property the type that holds all its values, as `sink.decode` reads
JSON.

Guarantee: all columns are nullable. `format`, bounds and patterns do not make a column narrower, because producers may
ignore them. Of an object that is one of several, or all of several, the properties of each are columns; one whose
types no column holds together, or without a type, is a STRING with its JSON. The warnings list these, and objects that
may have members beside their properties. Raises ConfigError for a schema that is not an object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urljoin

from jsonschema import SchemaError
from pyspark.sql import types as T
from referencing import Registry, Resource, Specification
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7, Schema, specification_with

from coordination.errors import ConfigError
from sink.decode.registry.client import RegisteredSchema, referred
from sink.infer.json_keywords import (
    BRANCHES,
    NoType,
    other_members,
    scalar,
    together,
    type_name,
    typed_branches,
    value_schemas,
)
from sink.infer.json_metaschemas import check_schema
from sink.schema.bounds import LARGEST, SchemaBounds, SchemaPlace, SchemaTooLarge
from sink.schema.warnings import SchemaWarning, shown_reason

_T = TypeVar("_T")


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
        raise ConfigError(f"its type is {root_type.simpleString()}. Only the properties of an object can be columns.")
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
    walk = _JsonSchemaWalk(registry.resolver(location), (), _Context(specification, warnings))
    return walk.type_of(root.contents, SchemaPlace.root(bounds))


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


class _JsonSchemaWalk:
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

    def type_of(self, schema: Any, place: SchemaPlace) -> T.DataType:
        """Returns the type. Raises ConfigError if the schema has no type, or several."""
        walk, target = self._resolve(schema, place)
        return walk._type_of(target, place)

    def column_of(self, schema: Any, place: SchemaPlace) -> T.DataType:
        try:
            return self.type_of(schema, place)
        except SchemaTooLarge:
            raise
        except ConfigError as error:
            return self._as_text(error, place)

    def _resolve(self, schema: Any, place: SchemaPlace) -> tuple[_JsonSchemaWalk, Mapping[str, Any]]:
        """Resolves `$ref`. Returns the schema, and the walk there."""
        if not isinstance(schema, dict):
            raise NoType
        if "$ref" not in schema:
            resolver = self._resolver.in_subresource(self._context.specification.create_resource(schema))
            return self._inner_walk(resolver, schema), schema
        reference = schema["$ref"]
        if beside := [key for key in ("properties", *BRANCHES) if key in schema]:
            self._context.warnings.append(
                f"left out: {str(place) or 'columns'}: what stands beside a $ref ({', '.join(beside)})"
            )
        try:
            resolved = self._resolver.lookup(reference)
        except (Unresolvable, TypeError, ValueError):
            # The resolver raises the last two for a path through a value that is not a schema.
            raise ConfigError(f"it refers to {reference}, which does not exist") from None
        if id(resolved.contents) in self._enclosing:
            raise ConfigError("it contains itself")
        return self._inner_walk(resolved.resolver, schema)._resolve(resolved.contents, place.step())

    def _inner_walk(self, resolver: Any, schema: Mapping[str, Any]) -> _JsonSchemaWalk:
        return _JsonSchemaWalk(resolver, (*self._enclosing, id(schema)), self._context)

    def _type_of(self, schema: Mapping[str, Any], place: SchemaPlace) -> T.DataType:
        name = self._context.fact(type_name, schema)
        of_all, of_some = self._context.fact(typed_branches, schema)
        branches = [*of_all, *of_some]
        if name == "object" or (name is None and len(branches) > 1):
            return self._object(schema, place)
        if name is None:
            if not branches:
                raise NoType
            return self.type_of(branches[0], place.step())
        if name == "array":
            return T.ArrayType(self.column_of(schema.get("items"), place.element()))
        return scalar(name, schema)

    def _object(self, schema: Mapping[str, Any], place: SchemaPlace) -> T.DataType:
        found: dict[str, list[tuple[Any, _JsonSchemaWalk]]] = {}
        others: dict[str, None] = {}
        own_name = self._context.fact(type_name, schema)
        for name, property_schema, walk in self._properties(schema, place, others, own_name):
            found.setdefault(name, []).append((property_schema, walk))
        if not found:
            values = value_schemas(schema)
            if not values:
                raise ConfigError("an object without properties")
            inner = place.value()
            return T.MapType(T.StringType(), self._common([(value, self) for value in values], inner))
        if others:
            self._context.warnings.append(
                f"left out: {str(place) or 'columns'}: members beside its properties ({', '.join(others)})"
            )
        return T.StructType(
            [T.StructField(name, self._common(schemas, place.field(name))) for name, schemas in found.items()]
        )

    def _common(self, schemas: Sequence[tuple[Any, _JsonSchemaWalk]], place: SchemaPlace) -> T.DataType:
        """Returns the type that holds the values of all of these schemas."""
        if len(schemas) == 1:
            (schema, walk), *_ = schemas
            return walk.column_of(schema, place)
        kinds: list[T.DataType] = []
        try:
            for schema, walk in schemas:
                # Of several schemas for a property one may have bounds alone.
                with suppress(NoType):
                    kinds.append(walk.type_of(schema, place.step()))
            return together(kinds)
        except SchemaTooLarge:
            raise
        except ConfigError as error:
            return self._as_text(error, place)

    def _as_text(self, error: ConfigError, place: SchemaPlace) -> T.DataType:
        self._context.warnings.append(f"{place} is STRING, the JSON of its values: {shown_reason(str(error))}")
        return T.StringType()

    def _properties(
        self, schema: Mapping[str, Any], place: SchemaPlace, others: dict[str, None], name: str | None
    ) -> Iterator[tuple[str, Any, _JsonSchemaWalk]]:
        """Yields the properties of the schema and of all its branches. Adds to `others` the keywords by which it may
        have other members. `name` is the type of the object around it: where it has none, each branch has to be an
        object."""
        of_all, of_some = self._context.fact(typed_branches, schema)
        yield from self._of_branches(of_all, place, others, name)
        others |= dict.fromkeys(self._context.fact(other_members, schema))
        for property_name, property_schema in schema.get("properties", {}).items():
            # Of a thousand branches all may have the same names.
            place.step()
            yield property_name, property_schema, self
        yield from self._of_branches(of_some, place, others, name)

    def _of_branches(
        self, branches: Sequence[Any], place: SchemaPlace, others: dict[str, None], name: str | None
    ) -> Iterator[tuple[str, Any, _JsonSchemaWalk]]:
        for branch in branches:
            walk, target = self._resolve(branch, place.step())
            own = self._context.fact(type_name, target)
            if own == "object" or (own is None and any(self._context.fact(typed_branches, target))):
                yield from walk._properties(target, place, others, own or name)
            elif name is None and own is not None:
                raise ConfigError("it is one of several schemas")
