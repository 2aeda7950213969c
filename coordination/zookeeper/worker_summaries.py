"""Tells each worker process what every other one carries, at a cost that does not grow with the square of the fleet.

A summary is a small ephemeral znode beside each worker record. It counts the record's changes, so that a process reads
another's record only if a decision needs it, and once for each change that matters there. Summaries are kept by
ZooKeeper's watches: a fleet in which nothing changes reads them once in `REREAD_SECONDS`. Like the record, a summary
means nothing to the protocol; an unreadable one, and one of another version, counts as missing.

Guarantee: after `refresh`, the summaries are those of some moment after the call began, but for changes that a watch
still reports; the next `refresh` sees these. A watch that never fires is corrected within `REREAD_SECONDS`. Raises
Unavailable; the next `refresh` then reads what this one has not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from coordination.errors import OtherVersion, SinkError
from coordination.state import codec
from coordination.state.require import require_flag, require_int, require_str
from coordination.zookeeper.records import Records, decode
from coordination.zookeeper.worker_records import (
    COMPRESS_ABOVE,
    HostedRecord,
    WorkerRecord,
    joined_sinks,
    worker_record,
)

DIRECTORY = "~summaries"
REREAD_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class WorkerSummary:
    """One process. `load` sums the weights of the sinks that it leads, without impaired ones. `impaired` names the
    sinks whose coordinator there could not work. `revision` counts the changes of its worker record, and `joined` those
    of the set of sinks that it has joined.
    """

    worker: str
    draining: bool
    load: int
    impaired: tuple[str, ...]
    revision: int
    joined: int


class WorkerSummaries:
    """The summaries of all live processes below one root, by the names of their znodes. For one thread at a time."""

    def __init__(self, client: KazooClient, root: str) -> None:
        self._client = client
        self._root = root.rstrip("/")
        self._directory = f"{self._root}/{DIRECTORY}"
        self._records = Records(client, self._root)
        self._lock = threading.Lock()
        self._is_list_stale = True
        self._stale: set[str] = set()
        """Names of znodes that are read again by the next `refresh`. kazoo's thread adds to it."""
        self._listed_at = 0.0
        self._known: dict[str, WorkerSummary] = {}
        self._names: frozenset[str] = frozenset()
        self._read_records: dict[str, tuple[int, WorkerRecord | None]] = {}
        self._read_joined: dict[str, tuple[int, frozenset[str]]] = {}

    @property
    def by_name(self) -> Mapping[str, WorkerSummary]:
        return self._known

    def holds(self, name: str) -> bool:
        """Whether the znode of that name was listed last."""
        return name in self._names

    def publish(self, name: str, summary: WorkerSummary) -> None:
        """Makes or replaces a summary of this process, which ends with the session."""
        document = {**asdict(summary), "draining": int(summary.draining)}
        data, path = codec.to_bytes(document, compress_above=COMPRESS_ABOVE), f"{self._directory}/{name}"
        try:
            self._records.result_of(self._client.set_async(path, data))
        except NoNodeError:
            self._records.result_of(self._client.create_async(path, data, ephemeral=True, makepath=True))
            with self._lock:
                self._is_list_stale = True

    def forget(self, name: str) -> None:
        """Removes a summary of this process."""
        with suppress(NoNodeError):
            self._records.result_of(self._client.delete_async(f"{self._directory}/{name}"))

    def refresh(self) -> None:
        """Reads what has changed since the last call."""
        now = time.monotonic()
        with self._lock:
            if now - self._listed_at > REREAD_SECONDS:
                self._is_list_stale, self._listed_at = True, now
                self._stale.update(self._names)
            list_again, stale = self._is_list_stale, self._stale
            self._is_list_stale, self._stale = False, set()
        try:
            self._read(list_again, stale)
        except SinkError:
            with self._lock:
                self._is_list_stale |= list_again
                self._stale |= stale
            raise

    def record_of(self, name: str) -> WorkerRecord | None:
        """Returns the worker record whose summary was read last. Reads it if it is unknown or has changed."""
        revision = self._known[name].revision
        known = self._read_records.get(name)
        if known is None or known[0] != revision:
            known = self._read_records[name] = revision, worker_record(self._client, self._root, name)
        return known[1]

    def hosts(self) -> dict[str, dict[str, HostedRecord]]:
        """Refreshes. Returns the record of each sink in each process that hosts it, by sink and worker."""
        self.refresh()
        hosts: dict[str, dict[str, HostedRecord]] = {}
        for name in sorted(self._known):
            if (record := self.record_of(name)) is not None:
                for sink, hosted in record.sinks.items():
                    hosts.setdefault(sink, {})[record.worker] = hosted
        return hosts

    def joined_by(self, name: str) -> frozenset[str]:
        """Returns the sinks that a process has joined, by its record. Reads it if they are unknown or have changed."""
        revision = self._known[name].joined
        known = self._read_joined.get(name)
        if known is None or known[0] != revision:
            known = self._read_joined[name] = revision, joined_sinks(self._client, self._root, name)
        return known[1]

    def _read(self, list_again: bool, stale: set[str]) -> None:
        if list_again:
            self._names = self._list()
            stale |= self._names - self._known.keys()
            for gone in self._known.keys() - self._names:
                del self._known[gone]
                self._read_records.pop(gone, None)
                self._read_joined.pop(gone, None)
        pending = {
            name: self._client.get_async(f"{self._directory}/{name}", watch=self._changed)
            for name in stale & self._names
        }
        for name, answer in pending.items():
            summary = None
            with suppress(NoNodeError, OtherVersion):
                data = self._records.result_of(answer)[0]
                summary = decode(data, f"ZooKeeper: {self._directory}/{name}", _build)
            if summary is None:
                self._known.pop(name, None)
            else:
                self._known[name] = summary

    def _list(self) -> frozenset[str]:
        try:
            return frozenset(
                self._records.result_of(self._client.get_children_async(self._directory, watch=self._changed))
            )
        except NoNodeError:
            # There is no watch now. The first process that publishes makes the directory.
            with self._lock:
                self._is_list_stale = True
            return frozenset()

    def _changed(self, event: WatchedEvent) -> None:
        """Notes what is to be read again: kazoo calls it once for each request with this watch."""
        with self._lock:
            if event.type == EventType.CHANGED:
                self._stale.add(event.path.rpartition("/")[2])
            else:
                self._is_list_stale = True
            if event.type == EventType.NONE:
                # The connection has ended, and all watches with it.
                self._stale.update(self._names)


def _build(d: Any) -> WorkerSummary:
    return WorkerSummary(
        require_str(d["worker"]),
        require_flag(d["draining"]),
        require_int(d["load"]),
        tuple(require_str(name) for name in d["impaired"]),
        require_int(d["revision"]),
        require_int(d["joined"]),
    )
