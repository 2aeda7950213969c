"""Records what each worker process hosts: its sinks, their states, and which of them it leads.

A record is an ephemeral znode beside the sinks' trees, one for each process. It means nothing to the protocol:
operators read it, and workers share out the coordinators by it. It grows with the number of sinks: a worker looks at
the small summaries of other workers, and reads a record only before it hands a coordinator over. An unreadable record
counts as missing, and so does one of another version: its process may be of another fleet in the same root, and a
worker of this fleet has a member znode, too. Raises Unavailable.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from coordination.errors import OtherVersion
from coordination.state import codec
from coordination.state.require import require_flag, require_int, require_str
from coordination.zookeeper.records import Records, decode

T = TypeVar("T")

DIRECTORY = "~workers"
"""No sink has this name: `~` is in none."""
JOINED = "joined"
"""The state of a sink that takes part in its fleet."""
COMPRESS_ABOVE = 4096
"""A thousand sinks take 90 kB, and compressed 3."""


@dataclass(frozen=True, slots=True)
class HostedRecord:
    """One sink of a process. `reason` says why it waits, hangs or was refused. `impaired`: whether its coordinator
    there could not work in the last minutes, for example because the store is away. `weight`: the load of its
    coordinator, in transactions an hour, at least 1.
    """

    state: str
    leads: bool
    reason: str = ""
    impaired: bool = False
    weight: int = 1


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """One worker process. `draining`: whether it is about to end."""

    worker: str
    host: str
    pid: int
    version: str
    draining: bool
    sinks: Mapping[str, HostedRecord]

    @property
    def leads(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, sink in self.sinks.items() if sink.leads))

    @property
    def joined(self) -> frozenset[str]:
        return frozenset(name for name, sink in self.sinks.items() if sink.state == JOINED)


class OwnWorkerRecord:
    """This process's record. Not for several threads at once."""

    def __init__(self, client: KazooClient, root: str, worker: str) -> None:
        """`root` is the znode that the sinks' trees stand in."""
        self._client = client
        self._records = Records(client, root.rstrip("/"))
        self.name = f"{worker}:{uuid.uuid4().hex[:12]}"
        self._path = _path(root, self.name)

    def publish(self, record: WorkerRecord) -> None:
        """Makes or replaces the record, which ends with the session."""
        data = codec.to_bytes(_document(record), compress_above=COMPRESS_ABOVE)
        try:
            self._records.result_of(self._client.set_async(self._path, data))
        except NoNodeError:
            self._records.result_of(self._client.create_async(self._path, data, ephemeral=True, makepath=True))

    def forget(self) -> None:
        """Removes the record."""
        try:
            self._records.result_of(self._client.delete_async(self._path))
        except NoNodeError:
            return


def worker_records(client: KazooClient, root: str) -> tuple[WorkerRecord, ...]:
    """Returns the records of live processes whose sinks' trees stand in `root`, in order of their workers."""
    records = Records(client, root.rstrip("/"))
    try:
        names = sorted(records.children(DIRECTORY))
    except NoNodeError:
        return ()
    answers = [client.get_async(_path(root, name)) for name in names]
    found = [_record(records, answer, name) for name, answer in zip(names, answers, strict=True)]
    return tuple(record for record in found if record is not None)


def worker_record(client: KazooClient, root: str, name: str) -> WorkerRecord | None:
    """Returns the record in the znode of that name."""
    return _record(Records(client, root.rstrip("/")), client.get_async(_path(root, name)), name)


def joined_sinks(client: KazooClient, root: str, name: str) -> frozenset[str]:
    """Returns the sinks that the process has joined, by the record of that name. A record of a thousand sinks takes six
    times as long to decode.
    """

    def build(d: Any) -> frozenset[str]:
        return frozenset(require_str(sink) for sink, hosted in d["sinks"].items() if hosted["state"] == JOINED)

    return _decoded(Records(client, root.rstrip("/")), client.get_async(_path(root, name)), name, build) or frozenset()


def _record(records: Records, answer: Any, name: str) -> WorkerRecord | None:
    return _decoded(records, answer, name, _build)


def _decoded(records: Records, answer: Any, name: str, build: Callable[[Any], T]) -> T | None:
    with suppress(NoNodeError, OtherVersion):
        return decode(records.result_of(answer)[0], f"ZooKeeper: {DIRECTORY}/{name}", build)
    return None


def _path(root: str, name: str) -> str:
    return f"{root.rstrip('/')}/{DIRECTORY}/{name}"


def _document(record: WorkerRecord) -> dict[str, Any]:
    sinks = {
        name: {
            "state": sink.state,
            "leads": int(sink.leads),
            "reason": sink.reason,
            "impaired": int(sink.impaired),
            "weight": sink.weight,
        }
        for name, sink in record.sinks.items()
    }
    return {
        "worker": record.worker,
        "host": record.host,
        "pid": record.pid,
        "version": record.version,
        "draining": int(record.draining),
        "sinks": sinks,
    }


def _build(d: Any) -> WorkerRecord:
    sinks = {
        require_str(name): HostedRecord(
            require_str(sink["state"]),
            require_flag(sink["leads"]),
            require_str(sink["reason"]),
            require_flag(sink["impaired"]),
            require_int(sink["weight"]),
        )
        for name, sink in d["sinks"].items()
    }
    return WorkerRecord(
        require_str(d["worker"]),
        require_str(d["host"]),
        require_int(d["pid"]),
        require_str(d["version"]),
        require_flag(d["draining"]),
        sinks,
    )
