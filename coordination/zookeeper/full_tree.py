"""One look at all that ZooKeeper has of a sink: the tree, and the records beside it that mean nothing to the protocol.

Guarantee: a missing or undecodable record is None. Raises Corrupt for a tree that cannot be understood, and
OtherVersion for a tree or record of another release.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from coordination.state import tree
from coordination.state.reading import Decoded, SnapshotReader, TreeReader
from coordination.state.tree import KeeperView, NodeRead, Snapshot
from coordination.zookeeper.records import AuditAnswer, CatalogState, build_answer, build_state, decode
from coordination.zookeeper.table_service_lock import TableServiceRun, build_run

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FullTree:
    """A sink's tree, the last run of its table services, how far a catalogue follows its table, and the last audit."""

    view: KeeperView
    services: TableServiceRun | None = None
    catalog: CatalogState | None = None
    audit: AuditAnswer | None = None

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(partition.topic for partition in self.view.states)


class FullTreeReader(SnapshotReader[FullTree]):
    def __init__(self) -> None:
        super().__init__()
        self._tree_reader = TreeReader()

    def node_read(self, path: str) -> NodeRead | None:
        is_record = path in (tree.SERVICES, tree.CATALOG, tree.AUDIT)
        return NodeRead.CONTENT if is_record else self._tree_reader.node_read(path)

    def build(self, snapshot: Snapshot, decoded: Decoded) -> FullTree:
        def record(path: str, build: Callable[[Any], T]) -> T | None:
            return decoded(path, partial(_decode_record, build)) if path in snapshot else None

        return FullTree(
            self._tree_reader.build(snapshot, decoded),
            record(tree.SERVICES, build_run),
            record(tree.CATALOG, build_state),
            record(tree.AUDIT, build_answer),
        )


def _decode_record(build: Callable[[Any], T], data: bytes, origin: str, _version: int) -> T | None:
    """Decodes a record, whose content does not name its version."""
    return decode(data, origin, build)
