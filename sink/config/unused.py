"""Shared settings that a sink, by what else is set, has no use for: they are for other sinks of the fleet. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sink.config.files import Entry
from sink.config.model import Settings


@dataclass(frozen=True, slots=True)
class _Use:
    """`settings`, whole names or their beginnings, are of use where one of `leaders` ends with `value`."""

    settings: tuple[str, ...]
    leaders: tuple[str, ...]
    value: str

    def serves(self, entries: Mapping[str, Entry]) -> bool:
        texts = [entries[name].text if name in entries else str(_DEFAULTS[name]) for name in self.leaders]
        return any(text.strip().lower().endswith(self.value) for text in texts)

    def covers(self, name: str) -> bool:
        return any(name == own or (own.endswith(".") and name.startswith(own)) for own in self.settings)


_DEFAULTS = {field.alias: field.default for field in Settings.model_fields.values()}
_BAD_RECORDS = (
    "errors.max.per.transaction",
    "errors.max.ratio",
    "errors.table.base.path",
    "errors.deadletter.topic",
)
_USES: Sequence[_Use] = (
    _Use(("schema.registry.",), ("value.format", "delete.key.format"), "-confluent"),
    _Use(("schema.subject",), ("value.format",), "-confluent"),
    _Use(_BAD_RECORDS, ("errors.tolerance",), "all"),
    _Use(("index.type",), ("write.operation",), "upsert"),
)


def unused(entries: Mapping[str, Entry]) -> Iterator[str]:
    """Yields names of settings that no other setting of `entries` gives a use."""
    for name in entries:
        if any(use.covers(name) and not use.serves(entries) for use in _USES):
            yield name


def without_unused(chosen: Sequence[Mapping[str, Entry]], own: Sequence[Collection[str]]) -> Iterator[dict[str, Entry]]:
    """Yields the settings of each sink without the shared ones that it has no use for, and another sink has. `own` are
    the names that each of them sets itself.
    """
    idle = [set(unused(entries)) for entries in chosen]
    useful = {name for entries, without in zip(chosen, idle, strict=True) for name in entries.keys() - without}
    for entries, without, mine in zip(chosen, idle, own, strict=True):
        left_aside = (without & useful) - set(mine)
        yield {name: entry for name, entry in entries.items() if name not in left_aside}
