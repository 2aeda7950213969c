"""Claims of sinks to what each has alone: its name, the places of its tables, its name in a catalogue. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sink.config.model import Settings

_SAME_STORE = {"s3": "s3a", "s3n": "s3a"}


class Claims:
    """Names and places of some sinks, to hold others against."""

    def __init__(self) -> None:
        self._names: dict[str, list[Settings]] = {}
        self._places: dict[str, list[Settings]] = {}
        self._above: dict[str, list[Settings]] = {}
        self._registered: dict[str, list[Settings]] = {}

    def add(self, settings: Settings) -> None:
        self._names.setdefault(settings.root_znode, []).append(settings)
        for place in _places(settings):
            self._places.setdefault(place, []).append(settings)
            for above in _above(place):
                self._above.setdefault(above, []).append(settings)
        if settings.catalogued:
            self._registered.setdefault(settings.catalog_name, []).append(settings)

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """Yields sentences about names and places that another sink has already."""
        if self._other(self._names.get(settings.root_znode), settings):
            yield f"sink.name: another sink is called {settings.name}; give one of them another name"
        for setting, place in _places_by_setting(settings):
            if other := self._other(self._places.get(place), settings):
                yield f"{setting}: {place} is a place of sink {other.name} too; name another one"
                continue
            nested = [self._other(self._above.get(place), settings)]
            nested += [self._other(self._places.get(above), settings) for above in _above(place)]
            if other := next(filter(None, nested), None):
                yield f"{setting}: of {place} and a place of sink {other.name} one is inside the other; name another"
        if settings.catalogued and (other := self._other(self._registered.get(settings.catalog_name), settings)):
            yield f"catalog.table: sink {other.name} is {settings.catalog_name} too; give one of them another name"

    def _other(self, holders: list[Settings] | None, settings: Settings) -> Settings | None:
        return next((holder for holder in holders or () if holder is not settings), None)


def _places_by_setting(settings: Settings) -> Iterator[tuple[str, str]]:
    yield "target.base.path", canonical(settings.base_path)
    if settings.tolerant:
        yield "errors.table.base.path", canonical(settings.errors_base_path)


def _places(settings: Settings) -> list[str]:
    return [place for _, place in _places_by_setting(settings)]


def canonical(path: str) -> str:
    """Gives one form of a place, whichever of its stores' names is used."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return re.sub(r"/+", "/", path.removeprefix("file:"))
    rest = re.sub(r"/+", "/", rest)
    return rest if scheme == "file" else f"{_SAME_STORE.get(scheme, scheme)}://{rest}"


def _above(place: str) -> Iterator[str]:
    scheme, separator, rest = place.rpartition("://")
    while "/" in rest.lstrip("/"):
        rest = rest.rpartition("/")[0]
        yield f"{scheme}{separator}{rest}"
