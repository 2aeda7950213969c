"""Records how far a catalogue follows the table.

The record means nothing to the protocol, and nothing waits for it: an unreadable one counts as missing. Raises
OtherVersion and Unavailable.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from kazoo.client import KazooClient

from coordination.state import tree
from coordination.state.require import require_int, require_seconds, require_str
from coordination.zookeeper.records import Records


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
