"""Reads and writes records that mean nothing to the protocol: the progress of a catalogue, the last run of table
services, the last audit.

Guarantee: a missing or undecodable record is None. Nothing is fenced. Raises OtherVersion for the record of another
release, and Unavailable when ZooKeeper does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from coordination.errors import Corrupt, Unavailable
from coordination.state import codec

REQUEST_SECONDS = 30.0

T = TypeVar("T")


def decode(data: bytes, name: str, build: Callable[[Any], T]) -> T | None:
    """Returns None for no data, and for data that cannot be decoded."""
    try:
        return codec.from_bytes(data, name, build) if data else None
    except Corrupt:
        return None


class Records:
    """The znodes below one sink's root, named relative to it."""

    def __init__(self, client: KazooClient, root: str) -> None:
        self._client = client
        self._root = root

    def read(self, name: str, build: Callable[[Any], T]) -> T | None:
        path = self._path(name)
        try:
            return decode(self.result_of(self._client.get_async(path))[0], f"ZooKeeper: {path}", build)
        except NoNodeError:
            return None

    def write(self, name: str, document: Mapping[str, Any]) -> None:
        """Creates the znode if it is not there."""
        data = codec.to_bytes(document)
        try:
            self.result_of(self._client.set_async(self._path(name), data))
        except NoNodeError:
            self.result_of(self._client.ensure_path_async(self._path(name)))
            self.result_of(self._client.set_async(self._path(name), data))

    def children(self, name: str) -> frozenset[str]:
        return frozenset(self.result_of(self._client.get_children_async(self._path(name))))

    def result_of(self, answer: Any) -> Any:
        """Returns the result of an asynchronous request. Raises NoNodeError for a missing znode."""
        try:
            return answer.get(timeout=REQUEST_SECONDS)
        except NoNodeError:
            raise
        except (KazooException, KazooTimeoutError) as error:
            raise Unavailable(f"ZooKeeper: {self._root}: {error!r}") from error

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"
