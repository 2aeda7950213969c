"""A worker's membership in the fleet of one sink: from joining under a fresh incarnation to the end of its session.

Holds a participant for as long as it lasts, stands for election again and again, and runs a coordinator for
each term that it wins. The end of the ZooKeeper session ends everything here; a request under way may still
have its effect, and is fenced by epoch, header version and member znode.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace

import structlog
from kazoo.protocol.states import KazooState

from coordination.errors import ConfigError, Corrupt, OtherVersion, Unavailable
from coordination.machines.coordinator import Coordinator
from coordination.machines.participant import Participant
from coordination.state.messages import Drain, KeeperChanged, ParticipantViewSeen, Resign, StoreSeen, Tick
from coordination.state.model import Member, WorkerState
from coordination.zookeeper.election import Candidacy
from coordination.zookeeper.records import AuditRecord, CatalogRecord
from coordination.zookeeper.table_service_lock import TableServiceLock
from sink.config import Settings
from sink.hudi.shared_lock import LockIdentity
from sink.runtime.sinks.audit_service import audit_threads
from sink.runtime.sinks.catalog_sync import catalog_sync
from sink.runtime.sinks.coordinator_config import coordinator_config
from sink.runtime.sinks.effect_handlers import CoordinatorEffectHandler, ParticipantEffectHandler
from sink.runtime.sinks.resources import Resources
from sink.runtime.sinks.table_reports import TableMetricsReporter
from sink.runtime.sinks.table_service_runner import MetadataServices, TableServiceRunner
from sink.runtime.turns.actor import Actor, EffectHandler, Machine
from sink.runtime.turns.admission import AdmittedCoordinator
from sink.runtime.turns.pools import CoalescedRun, SerialExecutor
from sink.runtime.watches.storage_watch import WatchedEffectHandler
from sink.write.rows.row_spec import ColumnResolver

LOG = structlog.get_logger("sink.worker")
RETRY_SECONDS = 0.5
"""Seconds between two attempts, and between two looks of the loops that wait."""
POLL_SECONDS = 5.0
"""The least seconds between two looks of `follows` at ZooKeeper."""


class Membership:
    """`start` joins. `campaign` stands for election and coordinates, in the caller's thread, until the membership ends
    or drains. Other threads may call the rest.
    """

    def __init__(self, resources: Resources, member: Member) -> None:
        self._resources = resources
        self._member = member
        self._has_joined = False
        self._has_left = False
        self._znode_lock = threading.Lock()
        self.ended = threading.Event()
        self._draining = threading.Event()
        self._drained = threading.Event()
        self.is_asked_to_drain = False
        """Whether an operator has asked this incarnation to leave, through ZooKeeper."""
        self._campaign_ended = threading.Event()
        self._coordinator: Actor | None = None
        self._candidacy: Candidacy | None = None
        self._candidacy_pause = 0.0
        self._next_poll = math.inf
        self._writer = ParticipantEffectHandler(
            resources.keeper, resources.engine, member.incarnation, resources.observer.metrics
        )
        self._participant = self._actor(
            "participant",
            Participant(member.incarnation),
            self._writer,
            resources.participating,
            self._participant_resigned,
        )
        self._view_reader = CoalescedRun(resources.turns.pool, self._read_participant_view)
        service_lock = TableServiceLock(resources.client, resources.root, member.incarnation)
        audits = AuditRecord(resources.client, resources.root)
        settings, metrics = resources.settings, resources.observer.metrics
        catalog = CatalogRecord(resources.client, resources.root)
        self._services = TableServiceRunner(
            settings,
            service_lock,
            lambda: resources.table.services(),
            lambda: self.leads,
            metrics,
            [
                *catalog_sync(settings, catalog, lambda: resources.table.register(), service_lock.committed, metrics),
                *audit_threads(settings, audits),
            ],
            TableMetricsReporter(audits, lambda: resources.table.file_count(), metrics),
            MetadataServices(resources.table.metadata_services, resources.table.metadata_interval),
            resources.turns.services.run,
        )

    @property
    def leads(self) -> bool:
        return self._coordinator is not None

    def follows(self) -> bool:
        """Whether it has just seen that another live worker leads. False also if it did not look, which it does every
        `POLL_SECONDS` at most, or could not.
        """
        now = time.monotonic()
        if self.leads or now < self._next_poll:
            return False
        self._next_poll = now + POLL_SECONDS
        try:
            view = self._resources.keeper.read()
        except (Unavailable, Corrupt, OtherVersion):
            return False  # the actors report it; the caller asks again
        leader = view.coordinator
        return leader != self._member.incarnation and any(member.incarnation == leader for member in view.members)

    def last_heartbeat(self) -> float:
        """Returns the oldest sign of life of its actors, in monotonic seconds."""
        actors = [actor for actor in (self._participant, self._coordinator) if actor is not None and actor.alive]
        return min((actor.last_heartbeat for actor in actors), default=time.monotonic())

    def request_started_at(self) -> float:
        """Returns when the request that its coordinator waits for began, in monotonic seconds; now without one."""
        coordinator = self._coordinator
        return time.monotonic() if coordinator is None else coordinator.request_started_at

    def start(self) -> None:
        """Joins the fleet. Raises Unavailable, Corrupt, OtherVersion; ConfigError if the fleet runs another
        configuration; TableError if it shares no lock with the table's other sinks. After an error it has not joined,
        or its member znode ends with the session.
        """
        self._check_fleet()
        resources = self._resources
        # Each time: the ensemble may have been emptied meanwhile.
        resources.table.share_lock(LockIdentity(resources.client, resources.settings.table.lock.path))
        resources.keeper.bootstrap(resources.settings.config_digest)
        try:
            self._resources.keeper.join(self._member)
            # Again: if two workers join at once, the later sees the earlier, which may have looked too early.
            self._check_fleet()
        except (ConfigError, Corrupt, OtherVersion, Unavailable):
            # Also when it is unknown whether it has joined: a coordinator would wait for a member that does not write.
            self._leave()
            raise
        self._has_joined = True
        self._next_poll = time.monotonic() + POLL_SECONDS
        LOG.info("worker.joined", incarnation=self._member.incarnation)
        self._participant.start()
        self._services.start()
        self._view_reader.trigger()

    def session_changed(self, state: str) -> None:
        if state == KazooState.LOST and not self.ended.is_set():
            LOG.warning("session.lost", incarnation=self._member.incarnation)
            self.end()

    def tree_changed(self) -> None:
        self._view_reader.trigger()
        if (coordinator := self._coordinator) is not None:
            coordinator.post(KeeperChanged(time.monotonic()))

    def drain(self, seconds: float) -> bool:
        """Finishes open transactions and ends the membership. Returns False if transactions were abandoned: the time
        was too short, or the membership ended meanwhile.
        """
        if not self._has_joined:
            # It has no transactions; `campaign` returns at once.
            self.end()
            return True
        self._announce_drain()
        self._draining.set()
        self._services.end()
        deadline = time.monotonic() + seconds
        coordinator, candidacy = self._coordinator, self._candidacy
        if coordinator is not None:
            coordinator.post(Drain(time.monotonic()))
        elif candidacy is not None:
            candidacy.withdraw()
        has_campaign_ended = self._campaign_ended.wait(max(0.0, deadline - time.monotonic()))
        # Last: the coordinator needs this participant to finish what is open.
        self._participant.post(Drain(time.monotonic()))
        self.ended.wait(max(0.0, deadline - time.monotonic()))
        self.end()
        return has_campaign_ended and self._drained.is_set()

    def end(self) -> None:
        self.ended.set()
        self._services.end()
        if (candidacy := self._candidacy) is not None:
            candidacy.withdraw()

    def close(self, timeout: float) -> None:
        """Stops the participant and removes the member znode, after `campaign` has returned. Each of three waits takes
        `timeout` seconds at most.
        """
        self.end()
        self._participant.stop()
        # Its answer would be dropped, and the next membership's first write would wait for it.
        self._writer.cancel()
        self._view_reader.wait_idle(timeout)
        self._participant.join(timeout)
        self._services.join(timeout)
        self._leave()

    def _announce_drain(self) -> None:
        with self._znode_lock:
            if self._has_left:
                return  # writing it would create the member znode again
            try:
                self._resources.keeper.join(replace(self._member, state=WorkerState.DRAINING))
            except Unavailable as error:
                LOG.warning("drain.unannounced", reason=str(error))

    def _leave(self) -> None:
        with self._znode_lock:
            self._has_left = True
            try:
                if self._resources.client.connected:
                    self._resources.keeper.leave(self._member.incarnation)
            except Unavailable as error:
                LOG.warning("worker.left_unannounced", reason=str(error))

    def _check_fleet(self) -> None:
        """Refuses to run in a tree or beside workers of another version, or with another configuration under the same
        sink name.
        """
        members = self._resources.keeper.read().members
        other_workers = sorted(member.worker for member in members if member.config != self._member.config)
        if other_workers:
            raise ConfigError(
                f"sink {self._resources.settings.name!r}: {', '.join(other_workers)} already run under this name"
                " with another configuration. Use the same settings on every worker, stop the others first, or choose"
                " another sink.name."
            )

    def _participant_resigned(self, resignation: Resign) -> None:
        LOG.info("participant.resigned", reason=resignation.reason)
        self._drained.set()
        self.end()

    def _read_participant_view(self) -> None:
        # A view from before it joined would say that its member znode is gone.
        if self.ended.is_set() or not self._has_joined:
            return
        try:
            view = self._resources.keeper.participant_view(self._member.incarnation)
        except (Unavailable, Corrupt, OtherVersion) as error:
            LOG.warning("keeper.unread", reason=str(error))
            self.ended.wait(RETRY_SECONDS)
            self._view_reader.trigger()
            return
        self._resources.observer.metrics.halted(view.halted)
        self._resources.observer.metrics.paused(view.paused)
        if view.asked_to_drain and not self.is_asked_to_drain:
            LOG.info("worker.asked_to_drain", incarnation=self._member.incarnation)
            # No further candidacy: the coordinator resigns by itself.
            self._draining.set()
            self.is_asked_to_drain = True
        self._participant.post(ParticipantViewSeen(time.monotonic(), view))

    def campaign(self) -> None:
        """Campaigns and coordinates until the membership ends or drains. A defect ends the membership, which is then
        replaced.
        """
        try:
            self._campaign()
        except Exception as error:
            LOG.exception("incarnation.failed", reason=repr(error))
            self.end()
        finally:
            self._campaign_ended.set()

    def _campaign(self) -> None:
        while not self.ended.is_set() and not self._draining.is_set():
            candidacy = self._candidacy = Candidacy(
                self._resources.client, self._resources.root, self._member.incarnation
            )
            if self.ended.is_set() or self._draining.is_set():
                return  # `end` and `drain` may have seen the candidacy before this one
            try:
                # An operator may have removed the tree, or a part of it, since this incarnation joined.
                self._resources.keeper.bootstrap(self._resources.settings.config_digest)
                lock_path = candidacy.campaign()
            except Unavailable as error:
                LOG.warning("election.interrupted", reason=str(error))
                self.ended.wait(RETRY_SECONDS)
                continue
            if lock_path is not None:
                try:
                    if not self.ended.is_set():
                        self._coordinate(lock_path)
                finally:
                    self._give_up(candidacy)
                self._pause()

    def _pause(self) -> None:
        """Is not a candidate for as long as the last coordinator has asked."""
        until = time.monotonic() + self._candidacy_pause
        while time.monotonic() < until and not self._draining.is_set() and not self.ended.wait(RETRY_SECONDS):
            pass

    def _give_up(self, candidacy: Candidacy) -> None:
        """Withdraws its contender, as long as the session may live: else it would block every election."""
        while self._resources.client.state != KazooState.LOST:
            try:
                if self._resources.client.connected:
                    candidacy.resign()
                    return
            except Unavailable as error:
                LOG.warning("election.not_resigned", reason=str(error))
            time.sleep(RETRY_SECONDS)

    def _coordinate(self, lock_path: str) -> None:
        resigned = threading.Event()

        def resign(resignation: Resign) -> None:
            LOG.info("coordinator.resigned", reason=resignation.reason)
            self._candidacy_pause = resignation.pause
            resigned.set()

        self._candidacy_pause = 0.0

        settings = self._resources.settings
        column_resolver = ColumnResolver(settings.table, settings.records, self._resources.table)
        handler = CoordinatorEffectHandler(
            self._resources.keeper,
            self._resources.table,
            self._resources.errors,
            self._resources.log,
            column_resolver,
            lock_path,
            self._resources.observer.metrics,
            self._resources.observer.observe,
            self._resources.turns.commits.run,
        )
        config = coordinator_config(self._resources.settings, self._member.incarnation, lock_path)
        machine = AdmittedCoordinator(Coordinator(config), self._resources.turns.admission)
        actor = self._actor("coordinator", machine, handler, self._resources.coordinating, resign)
        machine.wake = lambda: actor.post(Tick(time.monotonic(), time.time()))
        actor.start()
        self._coordinator = actor
        self._resources.observer.metrics.coordinating(True)
        try:
            if self._draining.is_set():
                actor.post(Drain(time.monotonic()))
            while not resigned.wait(RETRY_SECONDS) and not self.ended.is_set():
                actor.post(StoreSeen(time.monotonic(), self._resources.observer.storage.is_faulty))
                if not actor.alive:
                    LOG.error("coordinator.died")
                    break
        finally:
            self._coordinator = None
            self._resources.observer.metrics.coordinating(False)
            actor.stop()
            machine.close()
            self._resources.table.stop_heartbeats()

    def _actor(
        self,
        name: str,
        machine: Machine,
        handler: EffectHandler,
        executor: SerialExecutor,
        on_resign: Callable[[Resign], None],
    ) -> Actor:
        resources, observer = self._resources, self._resources.observer
        watched = WatchedEffectHandler(handler, observer.storage, observer.registry)
        steps = SerialExecutor(resources.turns.pool)
        return Actor(name, machine, watched, executor, steps, resources.turns.ticker, observer.note, on_resign)


def new_member(settings: Settings, host: str, pid: int, version: str, cores: int = 1) -> Member:
    incarnation = f"{settings.worker_id}:{uuid.uuid4().hex[:12]}"
    return Member(incarnation, host, pid, version, config=settings.config_digest, cores=cores)
