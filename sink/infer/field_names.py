"""Proposes names for columns whose fields have names that no column can have: the setting `field.names`.

Guarantee: a table can have a column of the proposed name, and no other one of its struct has it. A field whose name a
person could not read in a configuration gets none. Raises nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import types as T

from sink.decode.fields import Path
from sink.schema.avro import AVRO_NAME

MOST_PROPOSED = 100
"""More names than a person would look through are not proposed."""
_LONGEST = 100


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """A column by its path (`place.city`), and the path of its field. `is_new`: its name is proposed."""

    path: str
    source: Path
    is_new: bool


def placed_columns(
    fields: T.StructType, known: Mapping[str, Path], parent: str = "", base: Path = ()
) -> Iterator[PlacedColumn]:
    """Yields the columns of fields, nested ones too. `known` has the fields of columns that a setting names."""
    here = {source: path for path, source in known.items() if path.rpartition(".")[0] == parent}
    free = _FreeNames([*fields.names, *(path.rpartition(".")[2] for path in here.values())])
    for field in fields.fields:
        source = (*base, field.name)
        is_new = source not in here and not AVRO_NAME.fullmatch(field.name)
        if is_new and not _is_readable(field.name):
            continue
        name = free.like(_cleaned(field.name)) if is_new else field.name
        path = here.get(source, f"{parent}.{name}" if parent else name)
        yield PlacedColumn(path, source, is_new)
        yield from _within(field.dataType, known, path, source)


def _within(kind: T.DataType, known: Mapping[str, Path], path: str, source: Path) -> Iterator[PlacedColumn]:
    if isinstance(kind, T.StructType):
        yield from placed_columns(kind, known, path, source)
    elif isinstance(kind, T.ArrayType):
        yield from _within(kind.elementType, known, path, source)
    elif isinstance(kind, T.MapType):
        yield from _within(kind.valueType, known, path, source)


def _is_readable(name: str) -> bool:
    return 0 < len(name) <= _LONGEST and name.isprintable() and any(sign.isalnum() for sign in name)


def _cleaned(name: str) -> str:
    letters = (letter for letter in unicodedata.normalize("NFKD", name) if not unicodedata.combining(letter))
    ascii_name = "".join(letters).encode("ascii", "replace").decode()
    cleaned = re.sub("[^A-Za-z0-9]+", "_", ascii_name).strip("_") or "field"
    return f"_{cleaned}" if cleaned[0].isdigit() else cleaned


class _FreeNames:
    """Gives names that no column of a struct has, in time that does not grow with their number."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = {name.lower() for name in taken}
        self._numbers: Counter[str] = Counter()

    def like(self, name: str) -> str:
        free = name
        while free.lower() in self._taken:
            self._numbers[name] += 1
            free = f"{name}_{self._numbers[name] + 1}"
        self._taken.add(free.lower())
        return free
