"""Exclusive claims of each sink: its name, the paths of its tables, its name in a catalogue. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sink.config.model import Settings

_SAME_STORE = {"s3": "s3a", "s3n": "s3a"}


class Claims:
    """The names and paths that some sinks claim, and the conflicts of another sink with them."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """`names`: those of sinks whose settings cannot be used."""
        self._unusable_names = frozenset(names)
        self._names: dict[str, list[Settings]] = {}
        self._paths: dict[str, list[Settings]] = {}
        self._parents: dict[str, list[Settings]] = {}
        self._registered: dict[str, list[Settings]] = {}

    def add(self, settings: Settings) -> None:
        self._names.setdefault(settings.root_znode, []).append(settings)
        for path in _table_paths(settings):
            self._paths.setdefault(path, []).append(settings)
            for parent in _parents(path):
                self._parents.setdefault(parent, []).append(settings)
        if settings.catalogued:
            self._registered.setdefault(settings.catalog_name, []).append(settings)

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """Yields a sentence for each name or path that another sink claims too."""
        is_unusable = settings.name in self._unusable_names
        if is_unusable or self._other_holder(self._names.get(settings.root_znode), settings):
            yield f"sink.name: another sink is called {settings.name}; give one of them another name"
        for setting, path in _paths_by_setting(settings):
            if holder := self._other_holder(self._paths.get(path), settings):
                yield f"{setting}: {path} is a place of sink {holder.name} too; name another one"
                continue
            nested = [self._other_holder(self._parents.get(path), settings)]
            nested += [self._other_holder(self._paths.get(parent), settings) for parent in _parents(path)]
            if holder := next(filter(None, nested), None):
                yield f"{setting}: of {path} and a place of sink {holder.name} one is inside the other; name another"
        if settings.catalogued and (
            holder := self._other_holder(self._registered.get(settings.catalog_name), settings)
        ):
            yield f"catalog.table: sink {holder.name} is {settings.catalog_name} too; give one of them another name"

    def _other_holder(self, holders: list[Settings] | None, settings: Settings) -> Settings | None:
        return next((holder for holder in holders or () if holder is not settings), None)


def _paths_by_setting(settings: Settings) -> Iterator[tuple[str, str]]:
    yield "target.base.path", canonical(settings.base_path)
    if settings.tolerant:
        yield "errors.table.base.path", canonical(settings.errors_base_path)


def _table_paths(settings: Settings) -> list[str]:
    return [path for _, path in _paths_by_setting(settings)]


def canonical(path: str) -> str:
    """Returns one form of a path, whichever name of its store's scheme it uses."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return re.sub(r"/+", "/", path.removeprefix("file:"))
    rest = re.sub(r"/+", "/", rest)
    return rest if scheme == "file" else f"{_SAME_STORE.get(scheme, scheme)}://{rest}"


def _parents(path: str) -> Iterator[str]:
    scheme, separator, rest = path.rpartition("://")
    while "/" in rest.lstrip("/"):
        rest = rest.rpartition("/")[0]
        yield f"{scheme}{separator}{rest}"
