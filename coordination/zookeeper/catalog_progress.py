"""Records how far a catalogue follows the table.

The record means nothing to the protocol, and nobody waits for it: one that cannot be read is none. Raises Unavailable.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from coordination.errors import Corrupt, Unavailable
from coordination.state import codec, tree
from coordination.state.require import require_int, require_seconds, require_str

REQUEST_SECONDS = 30.0


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
        self._client = client
        self._path = f"{root}/{tree.CATALOG}"

    def last(self) -> CatalogState | None:
        try:
            return decode(self._ask(self._client.get_async(self._path))[0])
        except NoNodeError:
            return None

    def record(self, state: CatalogState) -> None:
        data = codec.to_bytes(asdict(state))
        try:
            self._ask(self._client.set_async(self._path, data))
        except NoNodeError:
            self._ask(self._client.ensure_path_async(self._path))
            self._ask(self._client.set_async(self._path, data))

    def _ask(self, answer: Any) -> Any:
        try:
            return answer.get(timeout=REQUEST_SECONDS)
        except NoNodeError:
            raise
        except (KazooException, KazooTimeoutError) as error:
            raise Unavailable(f"ZooKeeper: {self._path}: {error!r}") from error


def decode(data: bytes) -> CatalogState | None:
    """None for nothing, and for what is not understood."""
    if not data:
        return None
    try:
        return codec.from_bytes(
            data,
            tree.CATALOG,
            lambda d: CatalogState(
                require_str(d["catalog"]),
                require_str(d["worker"]),
                require_seconds(d["synced"]),
                require_int(d["committed"]),
                require_str(d["instant"]),
                require_int(d["failures"]),
                require_seconds(d["failed"]),
                require_str(d["reason"]),
            ),
        )
    except Corrupt:
        return None
