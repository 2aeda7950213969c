"""Runs one sink in a worker process: opens its table, joins its fleet, and joins again whenever its membership ends.

Guarantee: if a sink waits, is refused, halts or hangs, the process and its other sinks go on, with one exception: if a
request hangs while this process holds the table's lock (`blocks_table`), the process ends, because no worker could
commit. Unusable settings or an unusable table end this sink only; `refusal` says why. A request that hangs for
`REQUEST_SECONDS` ends the membership: another worker takes over, and this one rejoins after the request returns. A
process with a single sink ends instead. Raises nothing.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from threading import Event
from typing import TypeVar

import structlog
from kazoo.protocol.states import KazooState

from coordination.errors import ConfigError, Corrupt, SinkError, Unavailable
from coordination.zookeeper.keeper import Keeper
from sink.clients.java.errors import JAVA_ERRORS, error_summary
from sink.config import Settings
from sink.hudi.lock import WAIT_SECONDS, TableLocks
from sink.hudi.options import require_usable
from sink.hudi.table import Table
from sink.operations.adoption import warn_of_foreign_offsets
from sink.operations.observed_sink import observed_sink
from sink.operations.table_version import require_own_table
from sink.runtime.sinks.life import Life, SinkEvent, SinkState
from sink.runtime.sinks.membership import Membership, new_member
from sink.runtime.sinks.resources import Resources, SharedParts, make_resources
from sink.runtime.turns.spreading import IMPAIRED_SECONDS
from sink.runtime.turns.waiting import until_stopped
from sink.runtime.watches.notes import Observer
from sink.schema.table_schema import TableSchema
from sink.storage.faults import fault_in
from sink.storage.files import require_answer
from sink.telemetry.logs import ContextThread, bound, in_context
from sink.telemetry.metrics import SinkMetrics
from sink.telemetry.version import sink_version
from sink.write.rows.row_spec import table_schema
from sink.write.rows.value_rules import left_open

LOG = structlog.get_logger("sink.worker")
REQUEST_SECONDS = 900.0
"""A coordinator's request that takes longer counts as hung. It may hold the election lock and the table's lock, so that
no other worker can act."""
REJOIN_SECONDS = 1.0
DRAIN_SECONDS = 60.0
POLL_SECONDS = 0.2
CLOSE_SECONDS = 5.0
"""Seconds for each of the three waits of `Membership.close`."""
WAITING_FOR = {
    "ZooKeeper": "zookeeper",
    "the schema registry": "registry",
    "the store": "storage",
    "the table": "storage",
    "the errors table": "storage",
    "the process that asks Kafka": "kafka",
}
"""Names in the metric `sink_waiting`."""
_Done = TypeVar("_Done")


class Sink:
    """One sink of a process, in its own thread. `shared` completes when ZooKeeper's session and Spark have started."""

    def __init__(self, settings: Settings, shared: Future[SharedParts], metrics: SinkMetrics) -> None:
        self.settings = settings
        observed = self.observed = observed_sink(settings)
        self.schema: TableSchema | None = None
        """The table's schema, once it is known to be usable."""
        self._life = Life()
        self._hanging = ""
        """Why the last membership was ended, until its hung request has returned; empty otherwise."""
        self.refusal: SinkError | None = None
        self._shared = shared
        self._metrics = metrics
        metrics.configured(observed.commit_allowance, observed.services_overdue, observed.open_limit)
        metrics.waits_for("zookeeper", True)
        self._stop = Event()
        self.ended = Event()
        self._is_new_table = False
        self._locks: tuple[TableLocks, ...] = ()
        self._keeper: Keeper | None = None
        self._membership: Membership | None = None
        self._observer: Observer | None = None
        self._thread = ContextThread(target=self._run, name=f"sink-{settings.name}", daemon=True)
        self.is_asked_to_drain = False
        """Whether an operator has asked this worker to leave the sink."""
        self._drainer = ContextThread(
            target=self.drain, args=(DRAIN_SECONDS,), name=f"drain-{settings.name}", daemon=True
        )

    @property
    def state(self) -> SinkState:
        return self._life.state

    @property
    def reason(self) -> str:
        """Why it waits, hangs or was refused."""
        return self._hanging or self._life.reason

    @property
    def leads(self) -> bool:
        return (membership := self._membership) is not None and membership.leads

    @property
    def troubles(self) -> tuple[str, ...]:
        """Reasons why it waits, hangs or was refused, and the faults of its store and of the schema registry."""
        observer = self._observer
        faults = () if observer is None else (observer.storage.trouble, observer.registry.trouble)
        return tuple(filter(None, (self.reason, *faults)))

    @property
    def is_impaired(self) -> bool:
        """Whether something keeps its coordinator here from its work."""
        membership = self._membership
        return bool(self.troubles) or (membership is not None and self._silent(membership) > IMPAIRED_SECONDS)

    @property
    def retention(self) -> Mapping[str, float]:
        """How long Kafka keeps a record, in seconds, by topic; empty where this worker does not coordinate."""
        return self._metrics.retention_by_topic

    def start(self) -> None:
        with bound(sink=self.settings.name):
            self._thread.start()

    def follows(self) -> bool:
        """Whether another live worker coordinates this sink. Asks ZooKeeper every 5 s at most; False in between."""
        return (membership := self._membership) is not None and membership.follows()

    def poll(self) -> None:
        """Polls the store's health and starts a requested drain. One thread calls it every 0.5 s. Returns at once."""
        observer, membership = self._observer, self._membership
        if observer is not None and observer.storage.can_ask:
            with bound(sink=self.settings.name):
                observer.storage.poll()
        if membership is not None and membership.is_asked_to_drain and not self.is_asked_to_drain:
            self.is_asked_to_drain = True
            self.leave()

    def leave(self) -> None:
        """Drains in a thread of its own, and ends."""
        if not self._stop.is_set():
            self._stop.set()
            with bound(sink=self.settings.name):
                self._drainer.start()

    def leave_to_others(self) -> None:
        """Ends the membership if a request of its coordinator hangs. The sink's thread rejoins after it returns."""
        membership = self._membership
        if membership is None or membership.ended.is_set() or self._silent(membership) <= REQUEST_SECONDS:
            return
        self._hanging = f"a request to its table or to Kafka has hung for {REQUEST_SECONDS:.0f} s"
        with bound(sink=self.settings.name):
            action = "leaving this sink to other workers"
            if self.blocks_table:
                action = "ending this process, which holds the table's lock"
            LOG.critical("sink.hangs", reason=self.reason, action=action)
        membership.end()

    @property
    def blocks_table(self) -> bool:
        """Whether a request hangs here, and a lock that it may hold has been held for longer than others wait for it.

        The lock cannot be released under a call of Hudi, which might still complete its instant.
        """
        now = time.monotonic()
        is_locked = any(now - locks.held_since > WAIT_SECONDS for locks in self._locks)
        return is_locked and bool(self._hanging)

    def last_heartbeat(self) -> float:
        """Returns the oldest sign of life, in monotonic seconds; now, if no part of it has to give one."""
        return time.monotonic() if (membership := self._membership) is None else membership.last_heartbeat()

    def request_started_at(self) -> float:
        """Returns when its coordinator's request began, in monotonic seconds; now, if there is none."""
        return time.monotonic() if (membership := self._membership) is None else membership.request_started_at()

    def drain(self, seconds: float) -> bool:
        """Finishes open transactions, leaves the fleet and ends; False if time ran out and they were abandoned."""
        self._stop.set()
        membership = self._membership
        drained = True
        if membership is not None and not membership.ended.is_set():
            with bound(sink=self.settings.name):
                drained = membership.drain(seconds)
                if not drained:
                    LOG.warning("drain.abandoned", seconds=seconds)
        return drained

    def session_changed(self, state: str) -> None:
        self._metrics.waits_for("zookeeper", state != KazooState.CONNECTED)
        with bound(sink=self.settings.name):
            if self._keeper is not None:
                self._keeper.session_changed(state)
            if (membership := self._membership) is not None:
                membership.session_changed(state)

    def _run(self) -> None:
        try:
            self._open_and_take_part()
        except SinkError as error:
            self.refusal = error
            self._life.happens(SinkEvent.REFUSES, str(error))
        except CancelledError:
            LOG.debug("sink.not_opened", reason="the process ends")
        except Exception as error:
            self.refusal = Unavailable(f"a defect: {error!r}")
            self._life.happens(SinkEvent.REFUSES, repr(error))
            LOG.exception("sink.failed", reason=repr(error))
        finally:
            if self.state is not SinkState.REFUSED:
                self._life.happens(SinkEvent.ENDS)
            self.ended.set()

    def _open_and_take_part(self) -> None:
        settings = self.settings
        schema = self._until_stopped("the schema registry", lambda: table_schema(settings.table, settings.records))
        if schema is None:
            return
        require_usable(settings.table, schema)
        for sentence in left_open(settings.records.form, schema):
            LOG.info("values.left_open", note=sentence)
        self.schema = schema
        LOG.debug("worker.reached", phase="schema")
        shared = self._shared.result()
        resources = make_resources(shared, settings, schema, self._metrics, self._tree_changed)
        self._locks, self._keeper, self._observer = resources.locks, resources.keeper, resources.observer
        self._open(resources, shared)
        while not self._stop.is_set() and not shared.is_warm.wait(POLL_SECONDS):
            pass
        if self._stop.is_set():
            return
        if self._is_new_table:
            shared.preparing.submit(in_context(self._prepare), resources.table)
        offsets = ContextThread(
            target=warn_of_foreign_offsets, args=(settings, resources.keeper), name="offsets", daemon=True
        )
        offsets.start()
        while not self._stop.is_set():
            self._take_part(resources, shared)

    def _open(self, resources: Resources, shared: SharedParts) -> None:
        """Waits until each server answers, and creates the table if it does not exist."""
        settings, observer = resources.settings, resources.observer
        resources.engine.check()
        # First: nothing may be created beside a tree of another version.
        self._until_stopped("ZooKeeper", resources.keeper.require_own_version)
        is_away = {"storage": lambda: observer.storage.is_faulty, "registry": lambda: bool(observer.registry.trouble)}
        self._metrics.watch(lambda: shared.watchdog.answered_at, is_away)
        store = settings.table.store
        self._until_stopped("the store", lambda: self._in_store(lambda: require_answer(store.base_path, store.access)))
        require_own_table(settings)
        self._is_new_table = bool(self._until_stopped("the table", lambda: self._in_store(resources.table.ensure)))
        LOG.debug("worker.reached", phase="table")
        self._until_stopped("the errors table", lambda: self._in_store(resources.errors.verify))
        self._until_stopped("the process that asks Kafka", shared.kafka(settings).start)

    def _prepare(self, table: Table) -> None:
        """Makes the metadata table early. Nothing depends on it: the first transaction makes the missing parts."""
        if self._stop.is_set():
            return
        try:
            table.prepare()
        except (SinkError, *JAVA_ERRORS) as error:
            LOG.warning("table.not_prepared", reason=error_summary(error))

    def _take_part(self, resources: Resources, shared: SharedParts) -> None:
        """Runs one membership, from joining to the end of its session or of the sink."""
        self._wait_for_hanging_request(resources)
        if not shared.session.wait(self._stop):
            return
        cores = shared.spark.sparkContext.defaultParallelism
        member = new_member(self.settings, socket.gethostname(), os.getpid(), sink_version(), cores)
        membership = self._membership = Membership(resources, member)
        try:
            if self._stop.is_set():
                return  # `drain` may not have seen this membership
            membership.start()
            self._life.happens(SinkEvent.JOINS)
            membership.campaign()
            membership.ended.wait()
            membership.close(CLOSE_SECONDS)
        except (Corrupt, Unavailable) as error:
            LOG.warning("worker.waits", reason=str(error))
            self._life.happens(SinkEvent.LACKS, str(error))
            self._stop.wait(REJOIN_SECONDS)
        finally:
            self._membership = None
            self._metrics.left()
            if self.state is SinkState.JOINED:
                self._life.happens(SinkEvent.LEAVES)

    def _wait_for_hanging_request(self, resources: Resources) -> None:
        """Waits until the hung request returns. Before that, this worker could win the election and then only queue
        behind the request, with the election lock held.
        """
        if self._hanging:
            self._life.happens(SinkEvent.HANGS, self._hanging)
        while self._hanging and not self._stop.is_set():
            if resources.coordinating.wait_idle(REJOIN_SECONDS):
                self._hanging = ""
                self._life.happens(SinkEvent.RETURNS)

    @staticmethod
    def _silent(membership: Membership) -> float:
        """Returns the seconds for which its coordinator's request has had no answer."""
        return time.monotonic() - membership.request_started_at()

    def _until_stopped(self, server: str, action: Callable[[], _Done]) -> _Done | None:
        def wait(reason: str) -> None:
            self._life.happens(SinkEvent.LACKS, reason)
            self._metrics.waits_for(WAITING_FOR[server], True)

        result = until_stopped(self._stop, server, action, wait)
        self._life.happens(SinkEvent.HAS)
        self._metrics.waits_for(WAITING_FOR[server], False)
        return result

    def _in_store(self, action: Callable[[], _Done]) -> _Done:
        """Re-raises a recognised store fault; ConfigError if retrying cannot help."""
        try:
            return action()
        except Unavailable as error:
            fault = fault_in(str(error), self.settings.base_path, self.settings.storage_as_set)
            if fault is None:
                raise
            raise (ConfigError if fault.lasts else Unavailable)(fault.sentence) from error

    def _tree_changed(self) -> None:
        if (membership := self._membership) is not None:
            membership.tree_changed()
