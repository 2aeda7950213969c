"""Cleans, compacts and archives Hudi's metadata table where no transaction waits for all of it at once.

Hudi does the three in one go when a writer begins an instant. Guarantee: each runs under the table lock, which is free
between them, so that a transaction waits for one of them at most, and asks ZooKeeper last whether it is still held;
each first deletes what is half-written, and does what Hudi does at that moment, with Hudi's own client of that table. A
run that dies leaves a pending plan, which the next writer that begins an instant carries out. Never raises for a
service that fails: its outcome says so.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import cached_property, partial
from typing import Any

from coordination.zookeeper.table_service_lock import ServiceOutcome
from sink.hudi.archiving import Archiving
from sink.hudi.client import HudiClient
from sink.hudi.lock import Locks
from sink.hudi.metadata_timeline import (
    METADATA_TIMELINE,
    compaction_interval,
    completed,
    is_due,
    newest_commit,
    pending,
    timeline_names,
)
from sink.hudi.moments import require_no_restore
from sink.hudi.options import commit_options
from sink.hudi.service_outcome import run_service
from sink.hudi.specification import TableSpecification
from sink.hudi.timeline import HudiTimeline
from sink.telemetry.failpoints import Failpoints

_TIMELINE = ".hoodie/timeline"
_LATE_READERS = 3
"""Commits after a compaction until files are cleaned that a reader may have opened before it: Hudi's own number."""


class MetadataTableServices:
    """One run on the metadata table of `hudi`, with a client of its own. `locks` gives the table lock."""

    def __init__(self, hudi: HudiClient, table: TableSpecification, locks: Locks) -> None:
        self._hudi = hudi.with_options(commit_options(table))
        self._timeline = HudiTimeline(self._hudi, table.sink)
        self._locks = locks
        self._clients = ExitStack()
        self._failpoints = Failpoints.from_environment()

    def run(self, wait: Callable[[], bool]) -> tuple[ServiceOutcome, ...]:
        """Runs the services that are due; none where the table has no metadata table. `wait` is called between two
        services, and says whether to end there.
        """
        with closing(self._hudi), self._clients:
            self._hudi.keep_metadata_table()
            names = self._hudi.metadata_names()
            if names is None or not is_due(names, compaction_interval(self._hudi.options)):
                return ()
            services: list[ServiceOutcome] = []
            for name, step in (("cleaning", self._clean), ("compaction", self._compact), ("archiving", self._archive)):
                if services and wait():
                    break
                services.append(run_service(f"metadata {name}", partial(self._under_lock, f"metadata {name}", step)))
            return tuple(services)

    def _under_lock(self, name: str, step: Callable[[Callable[[], None]], str]) -> str:
        with self._locks(name) as require_held:
            # What a restore does with the metadata table depends on what was compacted when it began.
            require_no_restore(self._hudi)
            # An instant whose completion is cut short is pending: a compaction that has it could not be rolled back.
            self._timeline.locked_snapshot(require_held)
            return step(require_held)

    @cached_property
    def _client(self) -> Any:
        """Returns Hudi's write client of the metadata table, made from the table's configuration as Hudi does."""
        java, hudi = self._hudi.java, self._hudi
        version = hudi.meta_client().getTableConfig().getTableVersion()
        policy = java.common.model.HoodieFailedWritesCleaningPolicy.EAGER
        config = java.metadata.HoodieMetadataWriteUtils.createMetadataWriteConfig(hudi.config, policy, version)
        client = java.client.SparkRDDMetadataWriteClient(hudi.engine_context, config, hudi.option())
        self._clients.callback(client.close)
        return client

    def _clean(self, require_held: Callable[[], None]) -> str:
        names = timeline_names(self._hudi) or ()
        complete = completed(names)
        compacted = max((name.partition("_")[0] for name in names if name.endswith(".commit")), default="")
        if compacted and sum(1 for instant in complete if instant > compacted) < _LATE_READERS:
            return ""
        require_held()
        cleaned = self._client.clean()
        return "" if cleaned is None else str(cleaned.getStartCleanTime())

    def _compact(self, require_held: Callable[[], None]) -> str:
        """Carries out a dead writer's plan before it makes a new one."""
        require_held()
        self._client.runAnyPendingCompactions()
        instant = self._compaction_instant()
        if not instant or instant in completed(timeline_names(self._hudi) or ()):
            return ""
        if not self._client.scheduleCompactionAtInstant(instant, self._hudi.option()):
            return ""
        self._failpoints.reach("Metadata.compaction.scheduled")
        require_held()
        self._client.compact(instant, True)
        return instant

    def _compaction_instant(self) -> str:
        """Returns a time before each transaction that the metadata table holds and the table does not yet, so that it
        can be rolled back; without any, the next after the newest commit. It is not the time of this host: readers
        take a commit that is completed before a compaction's time for a part of it, and the clock of the host that
        completes the next one may be behind. Empty without a commit.
        """
        names = timeline_names(self._hudi) or ()
        open_instants = pending(self._hudi.names(_TIMELINE)) & completed(names)
        times = self._hudi.java.common.table.timeline.HoodieInstantTimeGenerator
        if not open_instants:
            newest = newest_commit(names)
            return str(times.instantTimePlusMillis(newest, 1)) if newest else ""
        return str(times.instantTimeMinusMillis(min(open_instants), 1))

    def _archive(self, require_held: Callable[[], None]) -> str:
        config = self._client.getConfig()
        table = self._hudi.java.table.HoodieSparkTable.create(config, self._hudi.engine_context)
        Archiving(self._hudi, table, METADATA_TIMELINE, require_held).run()
        return ""
