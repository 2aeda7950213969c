"""Records what each worker process hosts: its sinks, what state they are in, and which of them it leads.

A record is an ephemeral znode beside the sinks' trees, one for each process. It means nothing to the protocol: it is
for people, and for workers that share out the coordinators among themselves. A record that cannot be read is none.
Raises Unavailable.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from coordination.state import codec
from coordination.state.require import require_flag, require_int, require_str
from coordination.zookeeper.records import Records

DIRECTORY = "~workers"
"""No sink can be called so: `~` is in no name."""


@dataclass(frozen=True, slots=True)
class HostedRecord:
    """One sink of a process. `reason` says why it waits, hangs or was refused. `leads` is 1 for its coordinator."""

    state: str
    leads: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """`draining` is 1 for a process that is about to end."""

    worker: str
    host: str
    pid: int
    version: str
    draining: int
    sinks: Mapping[str, HostedRecord]

    @property
    def leads(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, sink in self.sinks.items() if sink.leads))

    @property
    def joined(self) -> frozenset[str]:
        return frozenset(name for name, sink in self.sinks.items() if sink.state == "joined")


class WorkerRecords:
    """The records below one root of sinks. Not for several threads at once."""

    def __init__(self, client: KazooClient, root: str, worker: str) -> None:
        """`root` is the znode that the sinks' trees stand in; `worker` the one that `tell` tells of."""
        self._client = client
        self._records = Records(client, root.rstrip("/"))
        self._path = f"{root.rstrip('/')}/{DIRECTORY}/{worker}:{uuid.uuid4().hex[:12]}"

    def tell(self, record: WorkerRecord) -> None:
        """Makes or replaces this process's record, which ends with the session."""
        data = codec.to_bytes(asdict(record))
        try:
            self._records.ask(self._client.set_async(self._path, data))
        except NoNodeError:
            try:
                self._records.ask(self._client.create_async(self._path, data, ephemeral=True, makepath=True))
            except NodeExistsError:
                self._records.ask(self._client.set_async(self._path, data))

    def all(self) -> tuple[WorkerRecord, ...]:
        """The live processes, in order of their workers."""
        try:
            names = sorted(self._records.children(DIRECTORY))
        except NoNodeError:
            return ()
        records = (self._records.read(f"{DIRECTORY}/{name}", _build) for name in names)
        return tuple(record for record in records if record is not None)

    def forget(self) -> None:
        """Removes this process's record."""
        try:
            self._records.ask(self._client.delete_async(self._path))
        except NoNodeError:
            return


def _build(d: Any) -> WorkerRecord:
    sinks = {
        require_str(name): HostedRecord(
            require_str(sink["state"]), int(require_flag(sink["leads"])), require_str(sink["reason"])
        )
        for name, sink in d["sinks"].items()
    }
    return WorkerRecord(
        require_str(d["worker"]),
        require_str(d["host"]),
        require_int(d["pid"]),
        require_str(d["version"]),
        int(require_flag(d["draining"])),
        sinks,
    )
