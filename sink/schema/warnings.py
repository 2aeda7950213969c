"""Warnings about columns that were derived from another schema."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OmittedField:
    """A field that no column can hold. `path` is the path of its column: `name`, `struct.name`, `array[].name`,
    `map{}.name`."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"left out: {self.path}: {self.reason}"


SchemaWarning = str | OmittedField
