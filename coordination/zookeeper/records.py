"""Reads and writes records that mean nothing to the protocol: the progress of a catalogue, the last run of table
services, the last audit.

Guarantee: a missing or undecodable record is None. Nothing is fenced. Raises OtherVersion for the record of another
release, and Unavailable when ZooKeeper does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from coordination.errors import Corrupt, Unavailable
from coordination.state import codec, tree
from coordination.state.require import require_flag, require_int, require_seconds, require_str

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

    def update(self, name: str, build: Callable[[Any], T], change: Callable[[T | None], Mapping[str, Any]]) -> None:
        """Replaces a record by what `change` makes of it. Makes it again if another process has written meanwhile."""
        path = self._path(name)
        while True:
            try:
                data, stat = self.result_of(self._client.get_async(path))
                document = change(decode(data, f"ZooKeeper: {path}", build))
                self.result_of(self._client.set_async(path, codec.to_bytes(document), stat.version))
                return
            except NoNodeError:
                self.result_of(self._client.ensure_path_async(path))
            except BadVersionError:
                continue

    def children(self, name: str) -> frozenset[str]:
        return frozenset(self.result_of(self._client.get_children_async(self._path(name))))

    def result_of(self, answer: Any) -> Any:
        """Returns the result of an asynchronous request. Raises NoNodeError for a missing znode, and BadVersionError
        for one that was changed since it was read.
        """
        try:
            return answer.get(timeout=REQUEST_SECONDS)
        except (NoNodeError, BadVersionError):
            raise
        except (KazooException, KazooTimeoutError) as error:
            raise Unavailable(f"ZooKeeper: {self._root}: {error!r}") from error

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


@dataclass(frozen=True, slots=True)
class CatalogState:
    """`committed` and `instant`: the sink's newest transaction, and the table's newest instant, that the catalogue
    named `catalog` knows of; registered at `synced`, in seconds since 1970, 0 for never. Since then `failures` attempts
    have failed, the last one at `failed` for `reason`.
    """

    catalog: str
    worker: str = ""
    synced: float = 0.0
    committed: int = 0
    instant: str = ""
    failures: int = 0
    failed: float = 0.0
    reason: str = ""

    def after_success(self, worker: str, at: float, committed: int, instant: str) -> CatalogState:
        return CatalogState(self.catalog, worker, at, committed, instant)

    def after_failure(self, worker: str, at: float, reason: str) -> CatalogState:
        return replace(self, worker=worker, failures=self.failures + 1, failed=at, reason=reason)


class CatalogRecord:
    """The record of one sink."""

    def __init__(self, client: KazooClient, root: str) -> None:
        self._records = Records(client, root)

    def last(self) -> CatalogState | None:
        return self._records.read(tree.CATALOG, build_state)

    def record(self, state: CatalogState) -> None:
        self._records.write(tree.CATALOG, asdict(state))


def build_state(d: Any) -> CatalogState:
    return CatalogState(
        require_str(d["catalog"]),
        require_str(d["worker"]),
        require_seconds(d["synced"]),
        require_int(d["committed"]),
        require_str(d["instant"]),
        require_int(d["failures"]),
        require_seconds(d["failed"]),
        require_str(d["reason"]),
    )


@dataclass(frozen=True, slots=True)
class AuditAnswer:
    """`ended` in seconds since 1970; `summary` is the sentence that the audit printed, of `rows` rows, the cells of
    `compared` of which were compared. All that the commits up to instant `through` had landed when contents were
    compared last, at `contents`, held; both are empty before.
    """

    held: bool
    ended: float
    summary: str
    rows: int = 0
    compared: int = 0
    through: str = ""
    contents: float = 0.0


class AuditRecord:
    """The record of one sink."""

    def __init__(self, client: KazooClient, root: str) -> None:
        self._records = Records(client, root)

    def last(self) -> AuditAnswer | None:
        return self._records.read(tree.AUDIT, build_answer)

    def record(self, answer: AuditAnswer) -> bool:
        """Writes the answer. Returns False, and writes nothing, where ZooKeeper has no tree of the sink."""
        if self._records.read(tree.KEEPER, lambda d: d) is None:
            return False
        self._records.write(tree.AUDIT, {**asdict(answer), "held": int(answer.held)})
        return True


def build_answer(d: Any) -> AuditAnswer:
    return AuditAnswer(
        require_flag(d["held"]),
        require_seconds(d["ended"]),
        require_str(d["summary"]),
        require_int(d["rows"]),
        require_int(d["compared"]),
        require_str(d["through"]),
        require_seconds(d["contents"]),
    )
