"""Random columns of other names than their fields, for `field.names`."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from pyspark.sql import types as T

Path = tuple[str, ...]


@dataclass
class Renaming:
    """Gives columns new names at random. `names` has the paths of their fields."""

    random: Random
    names: dict[str, Path] = field(default_factory=dict)
    _count: int = 0

    def columns(self, struct: T.StructType, parent: str = "", base: Path = ()) -> T.StructType:
        """Returns the columns of a struct: some have other names, and some fields of structs are columns as well."""
        columns = []
        for found in struct.fields:
            source = (*base, found.name)
            columns.append(self._column(found, parent, source))
            if isinstance(found.dataType, T.StructType) and self.random.random() < 0.3:
                inner = self.random.choice(found.dataType.fields)
                lifted = T.StructField(f"lifted {inner.name}", inner.dataType, True)
                columns.append(self._column(lifted, parent, (*source, inner.name), always=True))
        return T.StructType(columns)

    def _column(self, found: T.StructField, parent: str, source: Path, always: bool = False) -> T.StructField:
        self._count += 1
        renamed = always or self.random.random() < 0.3
        name = f"n{self._count}" if renamed else found.name
        path = f"{parent}.{name}" if parent else name
        if renamed:
            self.names[path] = source
        return T.StructField(name, self._kind(found.dataType, path, source), found.nullable)

    def _kind(self, kind: T.DataType, path: str, source: Path) -> T.DataType:
        if isinstance(kind, T.StructType):
            return self.columns(kind, path, source)
        if isinstance(kind, T.ArrayType):
            return T.ArrayType(self._kind(kind.elementType, path, source), kind.containsNull)
        if isinstance(kind, T.MapType):
            return T.MapType(kind.keyType, self._kind(kind.valueType, path, source), kind.valueContainsNull)
        return kind
