"""Infers the columns for the JSON objects of a sample.

Guarantee: every object outside `bad` decodes with the columns, as the caller's decoder checks. Bad ones do not
influence the columns. All columns are nullable, because a sample does not prove that a member is always present.

A field has the type that the schemas of its messages say. Without one it has the narrowest that holds all its values:

- integers: BIGINT; beyond 64 bits DECIMAL(38,0), beyond 38 digits STRING. Never INT, because later values grow
- numbers with a fraction: DOUBLE, also with integers among them, unless a DOUBLE would change one: then STRING
- texts: DATE or TIMESTAMP if all are in an ISO form that the decoders accept; else STRING
- objects: STRUCT of their members, or MAP if the keys look like data: at least `MAP_KEYS` keys, none in more than half
  of the objects, or no key that can be a column name
- arrays: ARRAY of the union of their elements
- mixed kinds, only nulls, and values nested deeper than `DEEPEST`: STRING, which takes any JSON

Raises nothing on purpose: `warnings` has the decisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import types as T

from sink.decode.fields import NO_RULES, Columns
from sink.decode.json.reasons import Undecodable
from sink.decode.json.text import JsonObject
from sink.decode.json.values import record_decoder
from sink.decode.records import BadValue
from sink.infer.connect_types import UNKNOWN
from sink.infer.field_stats import DECIMAL_DIGITS, DEEPEST, FieldStats, Form, Kind
from sink.schema.avro import AVRO_NAME
from sink.schema.table_schema import RESERVED_PREFIXES
from sink.schema.warnings import SchemaWarning, shown_path

_NAMED = 10
"""Names that a warning lists."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """Paths are dotted, with [] for the elements of an array and {} for the values of a map."""

    columns: T.StructType
    warnings: tuple[SchemaWarning, ...] = ()
    null: tuple[str, ...] = ()
    """Paths with only nulls, which are STRING."""
    missing: tuple[str, ...] = ()
    """Paths that some objects lack."""
    bad: tuple[BadValue, ...] = ()


Refusals = Callable[[T.StructType], Mapping[int, str]]
"""Returns why records cannot be decoded into columns, by their index."""
NO_TYPES = T.StructType([])


def infer_objects(
    objects: Mapping[int, JsonObject],
    refused: Refusals,
    coordinates_of: Callable[[int], str] = str,
    types: T.StructType = NO_TYPES,
) -> Inferred:
    """Infers the columns of parsed objects by the index of their record. `types` are those that schemas say."""
    bad: dict[int, str] = {}
    while True:
        builder = _TypeBuilder(coordinates_of)
        columns = builder.columns(objects, types)
        unfit = {index: reason for index, reason in refused(columns).items() if index in objects}
        if not unfit:
            bad_values = tuple(BadValue(index, reason) for index, reason in sorted(bad.items()))
            return Inferred(columns, tuple(builder.warnings), tuple(builder.null), tuple(builder.missing), bad_values)
        # No columns hold these values, for example half a surrogate pair: start again without them.
        bad |= unfit
        objects = {index: value for index, value in objects.items() if index not in unfit}


def refusals(columns: T.StructType, values: Mapping[int, bytes | None]) -> dict[int, str]:
    """Returns why the decoders' reference refuses plain values, by their index."""
    decode = record_decoder(Columns.of(columns, NO_RULES))
    reasons: dict[int, str] = {}
    for index, value in values.items():
        try:
            decode(value)
        except Undecodable as error:
            reasons[index] = str(error)
    return reasons


def with_valid_names(struct: T.StructType, warnings: list[SchemaWarning], path: str = "") -> T.StructType:
    """Returns the columns whose names a table can have; adds a warning for each other one."""
    usable_names = {*_usable_names(struct.names, warnings, path)}
    fields = []
    for field in struct.fields:
        if field.name not in usable_names:
            continue
        kind = _nameable_type(field.dataType, warnings, shown_path(f"{path}{field.name}"))
        if kind is None:
            warnings.append(f"left out, because none of its fields can be a column: {shown_path(path + field.name)}")
        else:
            fields.append(T.StructField(field.name, kind, field.nullable))
    return T.StructType(fields)


def _nameable_type(kind: T.DataType, warnings: list[SchemaWarning], path: str) -> T.DataType | None:
    """Returns the type with usable names; None if a struct in it has no usable field."""
    if isinstance(kind, T.ArrayType):
        element = _nameable_type(kind.elementType, warnings, f"{path}[]")
        return None if element is None else T.ArrayType(element, kind.containsNull)
    if isinstance(kind, T.MapType):
        value = _nameable_type(kind.valueType, warnings, f"{path}{{}}")
        return None if value is None else T.MapType(kind.keyType, value, kind.valueContainsNull)
    if isinstance(kind, T.StructType):
        struct = with_valid_names(kind, warnings, f"{path}.")
        return struct if struct.fields else None
    return kind


def _usable_names(names: Iterable[str], warnings: list[SchemaWarning], path: str) -> list[str]:
    """Returns the names that columns at `path` (empty, or with a dot at its end) can have."""
    unusable: list[str] = []
    reserved: list[str] = []
    usable: list[str] = []
    for name in names:
        if not AVRO_NAME.fullmatch(name):
            unusable.append(name)
        elif not path and name.lower().startswith(RESERVED_PREFIXES):
            reserved.append(name)
        else:
            usable.append(name)
    if unusable:
        warnings.append(f"left out, because Hudi cannot have columns of such names: {_inside(path)}{_listed(unusable)}")
    if reserved:
        warnings.append(f"left out, because Hudi and the sink add columns of such names: {_listed(reserved)}")
    return _distinct(usable, Counter(), warnings, path)


def _distinct(names: Iterable[str], weights: Counter[str], warnings: list[SchemaWarning], path: str) -> list[str]:
    """Returns one of the names that differ in case only: that with the greatest weight."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(name.lower(), []).append(name)
    distinct = []
    for group in alike.values():
        best = max(group, key=lambda name: weights[name])
        distinct.append(best)
        if len(group) > 1:
            dropped = [name for name in group if name != best]
            named = f"{_inside(path)}{_listed(dropped)}"
            warnings.append(f"no column, because only its case differs from {path}{best}: {named}")
    return distinct


def _inside(path: str) -> str:
    return f"in {path.rstrip('.')}: " if path else ""


def _together(alike: Sequence[FieldStats]) -> FieldStats:
    """Returns the statistics of all members that fill a column: its own, and those that differ in case."""
    if len(alike) == 1:
        return alike[0]
    together = FieldStats()
    for stats in alike:
        together.absorb(stats)
    return together


def _listed(names: Sequence[str]) -> str:
    listed = ", ".join(repr(name if len(name) <= 60 else f"{name[:60]}...") for name in names[:_NAMED])
    return listed if len(names) <= _NAMED else f"{listed} and {len(names) - _NAMED:,} more"


class _TypeBuilder:
    """Derives types of fields from statistics, and collects warnings."""

    def __init__(self, coordinates_of: Callable[[int], str]) -> None:
        self._coordinates_of = coordinates_of
        self.warnings: list[SchemaWarning] = []
        self.null: list[str] = []
        self.missing: list[str] = []

    def columns(self, objects: Mapping[int, JsonObject], types: T.StructType) -> T.StructType:
        root = FieldStats()
        for index, value in objects.items():
            root.add(value, index)
        return self._struct(root, "", types)

    def _struct(self, stats: FieldStats, path: str, types: T.StructType = NO_TYPES) -> T.StructType:
        fields = []
        known = {field.name: field.dataType for field in types.fields}
        alike: dict[str, list[FieldStats]] = {}
        for name, member in stats.members.items():
            alike.setdefault(name.lower(), []).append(member)
        names = dict.fromkeys([*stats.members, *known])
        for name in _distinct(names, stats.holders, self.warnings, path):
            if stats.holders[name] < stats.objects:
                self.missing.append(shown_path(f"{path}{name}"))
            members = _together(alike.get(name.lower(), []))
            kind = self._type(members, shown_path(f"{path}{name}"), known.get(name, UNKNOWN))
            fields.append(T.StructField(name, kind))
        return T.StructType(fields)

    def _type(self, stats: FieldStats, path: str, known: T.DataType = UNKNOWN) -> T.DataType:
        if known != UNKNOWN:
            return self._by_schema(stats, path, known)
        kinds = [kind for kind in stats.first if kind is not Kind.NULL]
        if not kinds:
            self.null.append(path)
            return T.StringType()
        if set(kinds) == {Kind.WHOLE, Kind.FRACTION}:
            return self._mixed(stats, path)
        if len(kinds) > 1:
            kinds_seen = ", ".join(f"{kind.value} ({self._coordinates_of(stats.first[kind])})" for kind in kinds)
            return self._string(path, f"it holds {kinds_seen}, each of which goes into it as text")
        return self._of_one_kind(stats, kinds[0], path)

    def _by_schema(self, stats: FieldStats, path: str, known: T.DataType) -> T.DataType:
        """Returns the type of a schema, in which names that no column can have are left out."""
        match known:
            case T.ArrayType():
                return T.ArrayType(self._type(stats.element or FieldStats(), f"{path}[]", known.elementType))
            case T.MapType():
                return T.MapType(T.StringType(), self._type(stats.all_members(), f"{path}{{}}", known.valueType))
            case T.StructType():
                struct = self._struct(stats, f"{path}.", known)
                return struct if struct.fields else self._type(stats, path)
        return known

    def _of_one_kind(self, stats: FieldStats, kind: Kind, path: str) -> T.DataType:
        match kind:
            case Kind.BOOLEAN:
                return T.BooleanType()
            case Kind.WHOLE:
                return self._whole(stats, path)
            case Kind.FRACTION:
                return self._double(stats, path)
            case Kind.TEXT:
                return self._form(stats, path)
            case Kind.OBJECT:
                return self._object(stats, path)
            case Kind.ARRAY:
                return self._array(stats, path)
        return self._string(path, f"it is more than {DEEPEST} levels deep, and goes into it as the text of its JSON")

    def _string(self, path: str, reason: str) -> T.DataType:
        self.warnings.append(f"{path} is STRING: {reason}")
        return T.StringType()

    def _whole(self, stats: FieldStats, path: str) -> T.DataType:
        if stats.wider is not None:
            reason = f"it holds an integer of more than {DECIMAL_DIGITS} digits ({self._coordinates_of(stats.wider)})"
            return self._string(path, reason)
        if stats.wide is not None:
            reason = f"it holds an integer beyond 64 bits ({self._coordinates_of(stats.wide)})"
            self.warnings.append(f"{path} is DECIMAL({DECIMAL_DIGITS},0): {reason}")
            return T.DecimalType(DECIMAL_DIGITS, 0)
        return T.LongType()

    def _mixed(self, stats: FieldStats, path: str) -> T.DataType:
        if stats.inexact is not None:
            reason = (
                f"it holds fractions, and an integer that a DOUBLE would change ({self._coordinates_of(stats.inexact)})"
            )
            return self._string(path, reason)
        return self._double(stats, path)

    def _double(self, stats: FieldStats, path: str) -> T.DataType:
        if stats.beyond is not None:
            return self._string(path, f"it holds a number beyond any DOUBLE ({self._coordinates_of(stats.beyond)})")
        if stats.lossy is not None:
            reason = f"it holds more digits than that keeps ({self._coordinates_of(stats.lossy)})"
            self.warnings.append(f"{path} is DOUBLE: {reason}. Make it a DECIMAL if they matter.")
        return T.DoubleType()

    def _form(self, stats: FieldStats, path: str) -> T.DataType:
        if stats.forms == {Form.DATE}:
            return T.DateType()
        if stats.forms == {Form.DATE, Form.TIME}:
            return self._string(path, "it holds dates and timestamps")
        if Form.OTHER in stats.forms:
            return T.StringType()
        if stats.unzoned is not None:
            reason = f"it holds some without a zone ({self._coordinates_of(stats.unzoned)}), which are taken as UTC"
            self.warnings.append(f"{path} is TIMESTAMP: {reason}")
        if stats.nanos is not None:
            reason = f"it holds more digits than microseconds ({self._coordinates_of(stats.nanos)}), which are dropped"
            self.warnings.append(f"{path} is TIMESTAMP: {reason}")
        return T.TimestampType()

    def _object(self, stats: FieldStats, path: str) -> T.DataType:
        if not stats.members:
            self.warnings.append(f"{path} is MAP<STRING, STRING>: its objects are all empty")
            return T.MapType(T.StringType(), T.StringType())
        if not stats.has_keys_like_data():
            return self._struct(stats, f"{path}.")
        names = list(stats.members)
        self.warnings.append(f"{path} is a MAP: its {len(names):,} keys look like data ({_listed(names[:3])}, ...)")
        return T.MapType(T.StringType(), self._type(stats.all_members(), f"{path}{{}}"))

    def _array(self, stats: FieldStats, path: str) -> T.DataType:
        if stats.element is None or not stats.element.first:
            self.warnings.append(f"{path} is ARRAY<STRING>: its arrays are all empty")
            return T.ArrayType(T.StringType())
        return T.ArrayType(self._type(stats.element, f"{path}[]"))
