"""Exclusive claims of each sink: its name, the paths of its tables, its name in a catalogue. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from sink.config.model import Settings
from sink.storage.access import canonical

_Claim = tuple[Literal["name", "path", "parent path", "catalog"], str]


class Claims:
    """The names and paths that some sinks claim, and the conflicts of another sink with them."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """`names`: those of sinks whose settings cannot be used."""
        self._unusable_names = frozenset(names)
        self._holders: dict[_Claim, list[Settings]] = {}
        """The sinks of each claim: its kind and its text."""

    def add(self, settings: Settings) -> None:
        for claim in _claims_of(settings):
            self._holders.setdefault(claim, []).append(settings)

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """Yields a sentence for each name or path that another sink claims too."""
        if settings.name in self._unusable_names or self._other_holder(("name", settings.root_znode), settings):
            yield f"sink.name: another sink is called {settings.name}. Give one of them another name."
        for setting, path in _paths_by_setting(settings):
            if holder := self._other_holder(("path", path), settings):
                yield f"{setting}: {path} is a place of sink {holder.name} too. Name another one."
                continue
            nested = [self._other_holder(("parent path", path), settings)]
            nested += [self._other_holder(("path", parent), settings) for parent in _parents(path)]
            if holder := next(filter(None, nested), None):
                yield f"{setting}: of {path} and a place of sink {holder.name} one is inside the other. Name another."
        if settings.catalogued and (holder := self._other_holder(("catalog", settings.catalog_name), settings)):
            yield f"catalog.table: sink {holder.name} is {settings.catalog_name} too. Give one of them another name."

    def _other_holder(self, claim: _Claim, settings: Settings) -> Settings | None:
        return next((holder for holder in self._holders.get(claim, ()) if holder is not settings), None)


def _claims_of(settings: Settings) -> Iterator[_Claim]:
    yield "name", settings.root_znode
    for _, path in _paths_by_setting(settings):
        yield "path", path
        yield from (("parent path", parent) for parent in _parents(path))
    if settings.catalogued:
        yield "catalog", settings.catalog_name


def _paths_by_setting(settings: Settings) -> Iterator[tuple[str, str]]:
    yield "target.base.path", canonical(settings.base_path)
    if settings.tolerant:
        yield "errors.table.base.path", canonical(settings.errors_base_path)


def _parents(path: str) -> Iterator[str]:
    scheme, separator, rest = path.rpartition("://")
    while "/" in rest.lstrip("/"):
        rest = rest.rpartition("/")[0]
        yield f"{scheme}{separator}{rest}"
