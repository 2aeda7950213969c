"""Looks at the records of the fleet's processes, to find workers that host a sink and take no part in it.

One reading serves all sinks below one root. Readings are rare, because only notes depend on them. Raises nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import structlog
from kazoo.client import KazooClient

from coordination.errors import SinkError
from coordination.zookeeper.worker_records import WorkerRecord, worker_records
from sink.config import Settings
from sink.http.facts import HostedSink
from sink.operations.status import OutsideStatus, outside_workers

LOG = structlog.get_logger("sink.worker")
POLL_SECONDS = 15.0


class OutsideWorkers:
    """For one thread only."""

    def __init__(self) -> None:
        self._refreshed_at = -POLL_SECONDS
        self._records: dict[tuple[int, str], tuple[WorkerRecord, ...]] = {}

    def refresh(self, sinks: Iterable[HostedSink]) -> None:
        now = time.monotonic()
        if now - self._refreshed_at < POLL_SECONDS:
            return
        self._refreshed_at = now
        sinks_by_root = {_root_key(sink.settings, sink.client): sink for sink in sinks if sink.client.connected}
        self._records = {root_key: _records(sink.client, root_key[1]) for root_key, sink in sinks_by_root.items()}

    def workers_of(self, sink: HostedSink) -> tuple[OutsideStatus, ...]:
        records = self._records.get(_root_key(sink.settings, sink.client), ())
        name = sink.settings.name
        return outside_workers({record.worker: record.sinks[name] for record in records if name in record.sinks})


def _root_key(settings: Settings, client: KazooClient) -> tuple[int, str]:
    return id(client), settings.root_znode.rpartition("/")[0]


def _records(client: KazooClient, root: str) -> tuple[WorkerRecord, ...]:
    try:
        return worker_records(client, root)
    except SinkError as error:
        LOG.debug("http.workers_unread", reason=str(error))
        return ()
