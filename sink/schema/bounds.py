"""Bounds of schemas that strangers register: how many columns and levels a schema may unfold to.

A few lines can refer to each other so that they unfold to more columns than any memory holds. So each walk through a
schema (Avro, JSON Schema, Protobuf) starts at `SchemaPlace.root` and takes every step by asking a place for the next
one, which counts it. A walker needs the place for its messages anyway; it has no other way to go on.

Guarantee: a walk ends after `columns` fields, `levels` nested types and `STEPS` times as many references and branches,
however the schema unfolds, and no path is longer than `LONGEST_PATH`. Texts of more than `characters`, a schema's and
those of its references, are not parsed. Raises SchemaTooLarge.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coordination.errors import ConfigError
from sink.schema.warnings import shown_path

COLUMNS, LEVELS = "schema.max.columns", "schema.max.levels"
STEPS = 10
"""References and branches for each column: they are not columns, and cost as much."""
LONGEST_NAME = 1000
LONGEST_PATH = 4000
"""Characters of the names from the root to a column. Each column's path is kept, as are the names of Avro's types."""
_CHARACTERS = 600
"""Characters of text for each column: 3 MB of JSON take 80 MB of memory once parsed."""
_JSON_LEVELS = 5
"""JSON values around each other for each level: a record, its fields, a field, a union."""
_NAMES = ("name", "namespace")


class SchemaTooLarge(ConfigError):
    """A schema has more columns, levels or text than the bounds allow."""


@dataclass(frozen=True, slots=True)
class SchemaBounds:
    """The settings schema.max.columns and schema.max.levels."""

    columns: int = 5_000
    levels: int = 64

    @property
    def characters(self) -> int:
        return self.columns * _CHARACTERS

    def check_text(self, *texts: str | bytes) -> None:
        """Checks the texts of a schema and of those that it refers to."""
        if (characters := sum(map(len, texts))) > self.characters:
            raise SchemaTooLarge(
                f"its text has {characters:,} characters, and {self.characters:,} are allowed."
                f" Register a smaller schema, or raise {COLUMNS} ({self.columns:,}), which allows more text."
            )

    def parse_json(self, text: str) -> Any:
        """Parses JSON that is as long, as deep and has as many parts as the bounds allow. Raises ValueError."""
        (tree,) = self.parse_all([text])
        return tree

    def parse_all(self, texts: Sequence[str]) -> list[Any]:
        """Parses a schema and those that it refers to, as `parse_json` does: the bounds hold for all together."""
        self.check_text(*texts)
        try:
            trees = [json.loads(text) for text in texts]
        except RecursionError:
            raise self.too_deep("") from None
        self._check_trees(trees)
        return trees

    def _check_trees(self, trees: Sequence[Any]) -> None:
        """Counts the parts before a library walks through them: it copies a namespace into each name below."""
        parts, depth = 0, 0
        nested = [tree for tree in trees if isinstance(tree, (dict, list))]
        while nested:
            parts += len(nested)
            if parts > STEPS * self.columns:
                raise SchemaTooLarge(
                    f"its text has more than {STEPS * self.columns:,} parts. Register a smaller schema, or raise"
                    f" {COLUMNS} ({self.columns:,}), which allows more parts."
                )
            depth += 1
            if depth > _JSON_LEVELS * self.levels:
                raise self.too_deep("")
            inner: list[Any] = []
            for node in nested:
                if isinstance(node, dict):
                    for name in _NAMES:
                        if isinstance(value := node.get(name), str):
                            check_name(value, "")
                    inner += node.values()
                else:
                    inner += node
            nested = [node for node in inner if isinstance(node, (dict, list))]
            parts += len(inner) - len(nested)

    def too_deep(self, path: str) -> SchemaTooLarge:
        return SchemaTooLarge(
            f"{_shown(path)}types are nested more than {self.levels:,} deep."
            f" Register a flatter schema, or raise {LEVELS}."
        )


LARGEST = SchemaBounds(columns=100_000, levels=100)
"""The largest values of the settings. A schema that the sink or Hudi wrote was within the settings of that time."""


class _Count:
    """Fields and steps so far in one walk."""

    __slots__ = ("bounds", "fields", "steps")

    def __init__(self, bounds: SchemaBounds) -> None:
        self.bounds = bounds
        self.fields = self.steps = 0


class SchemaPlace:
    """A place in a schema: its path from the root, and its text as messages show it. Only a place makes the next."""

    __slots__ = ("_count", "_level", "path")

    def __init__(self, count: _Count, path: str, level: int) -> None:
        self._count, self._level = count, level
        self.path = path

    @classmethod
    def root(cls, bounds: SchemaBounds) -> SchemaPlace:
        """Returns where a walk starts. A walk that is given a place must not start another one."""
        return cls(_Count(bounds), "", 0)

    def __str__(self) -> str:
        return shown_path(self.path)

    def field(self, name: str) -> SchemaPlace:
        """Returns the place of a field, which counts as a column."""
        count = self._count
        count.fields += 1
        if count.fields > count.bounds.columns:
            raise SchemaTooLarge(
                f"{_shown(self.path)}the schema has more than {count.bounds.columns:,} columns."
                f" Register a smaller schema, or raise {COLUMNS}."
            )
        check_name(name, self.path)
        return self._next(f"{self.path}.{name}" if self.path else name)

    def element(self) -> SchemaPlace:
        """Returns the place of an array's elements."""
        self._count_step()
        return self._next(f"{self.path}[]")

    def value(self) -> SchemaPlace:
        """Returns the place of a map's values."""
        self._count_step()
        return self._next(f"{self.path}{{}}")

    def step(self) -> SchemaPlace:
        """Returns the same place, behind a reference or in one of several branches."""
        self._count_step()
        return self

    def _count_step(self) -> None:
        count = self._count
        count.steps += 1
        if count.steps > STEPS * count.bounds.columns:
            raise SchemaTooLarge(
                f"{_shown(self.path)}the schema unfolds to more than {STEPS * count.bounds.columns:,} references and"
                f" branches. Register a smaller schema, or raise {COLUMNS} ({count.bounds.columns:,})."
            )

    def _next(self, path: str) -> SchemaPlace:
        if self._level >= self._count.bounds.levels:
            raise self.too_deep()
        if len(path) > LONGEST_PATH:
            raise SchemaTooLarge(
                f"{_shown(self.path)}the path of a column has {len(path):,} characters, and {LONGEST_PATH:,} are"
                " allowed. Register shorter names."
            )
        return SchemaPlace(self._count, path, self._level + 1)

    def too_deep(self) -> SchemaTooLarge:
        """Returns the error for a walk whose references follow each other without an end that Python reaches."""
        return self._count.bounds.too_deep(self.path)


def check_name(name: object, path: str) -> None:
    if not isinstance(name, str):
        raise ConfigError(f"{_shown(path)}the schema is not valid: a name is {str(name)[:40]}. Correct it.")
    if len(name) > LONGEST_NAME:
        raise SchemaTooLarge(
            f"{_shown(path)}the name {name[:40]!r}... has {len(name):,} characters, and {LONGEST_NAME:,} are allowed."
            " Register a shorter name."
        )


def _shown(path: str) -> str:
    return f"{shown_path(path)}: " if path else ""
