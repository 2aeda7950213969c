"""Shared settings that a sink cannot use with its other settings: they are for other sinks of the fleet. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sink.config.files import Entry
from sink.config.model import Settings


@dataclass(frozen=True, slots=True)
class _Use:
    """`settings`, full names or prefixes, are used where the value of one of `leaders` ends with `value`."""

    settings: tuple[str, ...]
    leaders: tuple[str, ...]
    value: str

    def serves(self, entries: Mapping[str, Entry]) -> bool:
        texts = [entries[name].text if name in entries else str(_DEFAULTS[name]) for name in self.leaders]
        return any(text.strip().lower().endswith(self.value) for text in texts)

    def covers(self, name: str) -> bool:
        return any(name == setting or (setting.endswith(".") and name.startswith(setting)) for setting in self.settings)


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
    """Yields the names in `entries` that have no use, given the other settings."""
    for name in entries:
        if any(use.covers(name) and not use.serves(entries) for use in _USES):
            yield name


def without_unused(
    sink_entries: Sequence[Mapping[str, Entry]], own_names: Sequence[Collection[str]]
) -> Iterator[dict[str, Entry]]:
    """Yields the settings of each sink without the shared ones that only other sinks can use. `own_names` are the names
    that each sink sets itself.
    """
    unused_names = [set(unused(entries)) for entries in sink_entries]
    used_somewhere = {
        name
        for entries, sink_unused in zip(sink_entries, unused_names, strict=True)
        for name in entries.keys() - sink_unused
    }
    for entries, sink_unused, sink_names in zip(sink_entries, unused_names, own_names, strict=True):
        omitted = (sink_unused & used_somewhere) - set(sink_names)
        yield {name: entry for name, entry in entries.items() if name not in omitted}
