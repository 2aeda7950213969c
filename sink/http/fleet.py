"""Reads the fleet for HTTP clients: each sink's tree from ZooKeeper, and the ends of its log from Kafka.

Two threads look every few seconds, and only while a client has asked in the last ten minutes. Clients wait for the
first reading, or the first after a pause, and then for five seconds at most. Guarantee: the requests to ZooKeeper and
Kafka do not grow with the number of clients, and each thread takes a tenth of a core at most. ZooKeeper's watches keep
readings fresh: a quiet tree is read once a minute. Raises nothing: a tree that cannot be read is a finding, and worker
records that cannot be read are left out.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import structlog
from kazoo.client import KazooClient
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import EventType, WatchedEvent

from coordination.errors import Corrupt, OtherVersion, SinkError, Unavailable
from coordination.state.model import LogView, WorkerState
from coordination.state.tree import KeeperView, member_path
from coordination.zookeeper.full_tree import FullTree
from coordination.zookeeper.keeper import Keeper
from coordination.zookeeper.worker_records import HostedRecord
from coordination.zookeeper.worker_summaries import WorkerSummaries
from sink.http.facts import HostedSink, WorkerFacts
from sink.http.logs import LogCache
from sink.operations.health import HealthEvidence, Judgement, judge
from sink.operations.remedies import Finding, finding
from sink.operations.status import OutsideStatus, outside_workers, status_of
from sink.telemetry.backlog import Trend
from sink.telemetry.periodic import Periodic

LOG = structlog.get_logger("sink.worker")
POLL_SECONDS = 3.0
"""Seconds between two looks at the trees."""
LOG_SECONDS = 5.0
"""Seconds between two looks at the ends of the logs."""
FIRST_LOG_SECONDS = 0.2
"""Seconds between two looks at the logs while no sink is known yet."""
SHARE = 0.1
"""The share of one core that each of the two threads may take at most."""
REREAD_SECONDS = 60.0
"""Seconds after which a tree is read again, even if no watch has fired."""
HOSTS_SECONDS = 15.0
"""Seconds between two looks at which worker processes host which sinks."""
IDLE_SECONDS = 600.0
"""Seconds after the last question until the threads pause."""
FIRST_WAIT_SECONDS = 5.0
"""The most seconds that clients wait for the first reading after a pause."""
GONE_SECONDS = 900.0
"""Seconds for which a note says that a worker has left without draining."""


class OutsideWorkers:
    """Finds workers that host a sink and have not joined it. One reading serves all sinks below one fleet znode. For
    one thread only.
    """

    def __init__(self) -> None:
        self._refreshed_at = -HOSTS_SECONDS
        self._summaries: dict[tuple[int, str], WorkerSummaries] = {}
        self._hosts: dict[tuple[int, str], dict[str, dict[str, HostedRecord]]] = {}

    def refresh(self, sinks: Iterable[HostedSink]) -> None:
        now = time.monotonic()
        if now - self._refreshed_at < HOSTS_SECONDS:
            return
        self._refreshed_at = now
        clients = {_fleet_key(sink): sink.client for sink in sinks if sink.client.connected}
        self._summaries = {
            key: self._summaries.get(key) or WorkerSummaries(client, key[1]) for key, client in clients.items()
        }
        self._hosts = {key: _hosts(summaries) for key, summaries in self._summaries.items()}

    def workers_of(self, sink: HostedSink) -> tuple[OutsideStatus, ...]:
        hosts = self._hosts.get(_fleet_key(sink), {})
        return outside_workers(hosts.get(sink.observed.name, {}))


def _fleet_key(sink: HostedSink) -> tuple[int, str]:
    # Another ensemble may have a fleet at the same path.
    return id(sink.client), sink.observed.fleet_znode


def _hosts(summaries: WorkerSummaries) -> dict[str, dict[str, HostedRecord]]:
    try:
        return summaries.hosts()
    except SinkError as error:
        LOG.debug("http.workers_unread", reason=str(error))
        return {}


@dataclass(frozen=True, slots=True)
class SinkNow:
    """The last reading of one sink."""

    evidence: HealthEvidence
    judgement: Judgement
    trend: Trend


@dataclass(frozen=True, slots=True)
class FleetReading:
    """When the reading was complete: in wall seconds, and in monotonic ones."""

    worker: str
    at: float
    complete_at: float
    sinks: Mapping[str, SinkNow] = field(default_factory=dict)
    misconfigured: Mapping[str, Judgement] = field(default_factory=dict)
    """The configured sinks of this worker that cannot be used."""

    @property
    def names(self) -> list[str]:
        return sorted([*self.sinks, *self.misconfigured])

    def judgement(self, name: str) -> Judgement:
        return self.misconfigured[name] if name in self.misconfigured else self.sinks[name].judgement


@dataclass(slots=True)
class _Watched:
    """The state of a sink that is kept from reading to reading."""

    hosted: HostedSink
    keeper: Keeper
    trend: Trend
    changed: threading.Event = field(default_factory=threading.Event)
    tree: FullTree | None = None
    read_at: float = -math.inf
    """When the last reading of the tree began, in monotonic seconds."""
    unread: Finding | None = None
    """Why the last attempt to read the tree failed. `tree` is an older one then."""
    members: dict[str, str] = field(default_factory=dict)
    """The ids of joined workers, by incarnation."""
    unwatched: set[str] = field(default_factory=set)
    """Incarnations whose watch has ended or was not set. ZooKeeper's thread adds to it, a reading takes them out."""
    draining: set[str] = field(default_factory=set)
    """Incarnations that have announced a drain: it may be over before the next reading."""
    left: dict[str, float] = field(default_factory=dict)
    """When workers left without a drain, by worker id, in wall seconds."""


class FleetWatch:
    """Keeps the last reading of all sinks. Any thread may ask for it; only the two looks make new ones."""

    def __init__(self, facts: WorkerFacts) -> None:
        self._facts = facts
        self._watched: dict[str, _Watched] = {}
        self._logs = LogCache()
        self._outside = OutsideWorkers()
        self._asked_at = -IDLE_SECONDS
        self._resumed_at = 0.0
        """When a client ended the last pause, in monotonic seconds. Clients wait for a reading that is newer."""
        self._waking = threading.Condition()
        self._looks = (
            Periodic("http-trees", self._when_asked(self._read_all), lambda: POLL_SECONDS, share=SHARE),
            Periodic("http-logs", self._when_asked(self._refresh_logs), self._log_pause, share=SHARE),
        )
        self._started = False
        self._fleet = FleetReading(facts.worker, time.time(), -IDLE_SECONDS)

    def last_reading(self) -> FleetReading:
        """Returns the last reading. Waits `FIRST_WAIT_SECONDS` at most for the first one, and for the first after a
        pause; then returns what there is: an empty one, or that from before the pause.
        """
        now = time.monotonic()
        with self._waking:
            if now - self._asked_at >= IDLE_SECONDS:
                self._resumed_at = now
            self._asked_at = now
            if not self._started and not self._ended:
                self._started = True
                for look in self._looks:
                    look.start()
            self._waking.notify_all()
            seconds_left = max(0.0, self._resumed_at + FIRST_WAIT_SECONDS - now)
            self._waking.wait_for(lambda: self._fleet.complete_at >= self._resumed_at or self._ended, seconds_left)
        return self._fleet

    def close(self) -> None:
        with self._waking:
            for look in self._looks:
                look.stop()
            self._waking.notify_all()

    @property
    def _ended(self) -> bool:
        return self._looks[0].ended.is_set()

    def _when_asked(self, look: Callable[[], None]) -> Callable[[], None]:
        """Returns a look that first waits until a client has asked in the last `IDLE_SECONDS`."""

        def once_asked() -> None:
            with self._waking:
                self._waking.wait_for(lambda: self._ended or time.monotonic() - self._asked_at < IDLE_SECONDS)
            if not self._ended:
                look()

        return once_asked

    def _log_pause(self) -> float:
        return LOG_SECONDS if self._watched else FIRST_LOG_SECONDS

    def _refresh_logs(self) -> None:
        # A copy: sinks come and go on the other thread.
        views = {
            name: (watched.hosted, watched.tree.view if watched.tree is not None else None)
            for name, watched in self._watched.copy().items()
        }
        self._logs.refresh(views)

    def _read_all(self) -> None:
        self._follow_sinks()
        is_first = not self._fleet.sinks
        self._outside.refresh([watched.hosted for watched in self._watched.values()])
        for watched in self._watched.values():
            self._read(watched)
        if is_first and self._watched:
            # The first answer shall have the ends of the logs, too.
            self._logs.wait_for(self._watched, FIRST_WAIT_SECONDS / 2)
        wall = time.time()
        sinks = {name: self._sink_now(name, watched, wall) for name, watched in sorted(self._watched.items())}
        misconfigured = {
            name: Judgement((finding("refused", reason),))
            for name, reason in self._facts.misconfigured.items()
            if name not in sinks
        }
        with self._waking:
            self._fleet = FleetReading(self._facts.worker, wall, time.monotonic(), sinks, misconfigured)
            self._waking.notify_all()

    def _follow_sinks(self) -> None:
        hosted = {sink.observed.name: sink for sink in self._facts.sinks}
        for name in self._watched.keys() - hosted.keys():
            self._drop(name)
        for name, sink in hosted.items():
            watched = self._watched.get(name)
            if watched is not None:
                if watched.hosted.client is sink.client and watched.hosted.observed is sink.observed:
                    watched.hosted = sink
                    continue
                self._drop(name)
            changed = threading.Event()
            keeper = Keeper(sink.client, sink.observed.root_znode, changed.set)
            sink.client.add_listener(keeper.session_changed)
            self._watched[name] = _Watched(sink, keeper, Trend(sink.observed.normal_wait), changed)

    def _drop(self, name: str) -> None:
        watched = self._watched.pop(name)
        watched.hosted.client.remove_listener(watched.keeper.session_changed)

    def _read(self, watched: _Watched) -> None:
        client: KazooClient = watched.hosted.client
        if not client.connected:
            watched.unread = finding(
                "zookeeper", f"this worker has no connection to {watched.hosted.observed.ensemble}"
            )
            return
        now = time.monotonic()
        is_old = now - watched.read_at >= REREAD_SECONDS
        try:
            if watched.unread is not None or watched.changed.is_set() or is_old:
                watched.changed.clear()
                watched.tree = watched.keeper.read_full()
                watched.read_at = now
                _follow_members(watched, watched.tree.view, time.time())
        except Unavailable as error:
            watched.unread = finding("zookeeper", str(error))
        except (Corrupt, OtherVersion) as error:
            watched.unread = finding("znode" if isinstance(error, Corrupt) else "other-version", str(error))
        else:
            watched.unread = None

    def _sink_now(self, name: str, watched: _Watched, wall: float) -> SinkNow:
        hosted, tree = watched.hosted, watched.tree
        sink, silent = hosted.observed, tuple(self._facts.liveness())
        evidence = HealthEvidence(sink, wall, unread=watched.unread, troubles=hosted.troubles, silent=silent)
        if tree is not None:
            log = self._logs.answer_for(name)
            watched.trend.observe(tree.view, log if isinstance(log, LogView) else None, wall)
            outside = self._outside.workers_of(hosted)
            evidence = replace(
                evidence,
                view=tree.view,
                status=status_of(sink, tree, log, wall, outside),
                departed_workers=tuple(
                    sorted(worker for worker, left_at in watched.left.items() if wall - left_at < GONE_SECONDS)
                ),
                trend=watched.trend,
                retention=hosted.retention,
            )
        return SinkNow(evidence, judge(evidence), watched.trend)


def _follow_members(watched: _Watched, view: KeeperView, wall: float) -> None:
    """Remembers workers that left without announcing a drain. A member's znode changes only for a drain."""
    members = {member.incarnation: member.worker for member in view.members}
    for incarnation, worker in watched.members.items():
        if incarnation not in members and incarnation not in watched.draining:
            watched.left[worker] = wall
    lost = watched.unwatched & members.keys()
    watched.unwatched -= lost
    for incarnation in (members.keys() - watched.members.keys()) | lost:
        _watch_member(watched, incarnation)
    watched.draining &= members.keys()
    watched.draining |= {member.incarnation for member in view.members if member.state is WorkerState.DRAINING}
    alive = set(members.values())
    watched.left = {
        gone_worker: left_at
        for gone_worker, left_at in watched.left.items()
        if wall - left_at < GONE_SECONDS and gone_worker not in alive
    }
    watched.members = members


def _watch_member(watched: _Watched, incarnation: str) -> None:
    def on_event(event: WatchedEvent) -> None:
        if event.type == EventType.CHANGED:
            watched.draining.add(incarnation)
        elif event.type == EventType.NONE:
            # The connection ended, and the watch with it: a drain would go unnoticed.
            watched.unwatched.add(incarnation)

    def on_answer(answer: IAsyncResult) -> None:
        if not answer.successful():
            watched.unwatched.add(incarnation)

    path = f"{watched.hosted.observed.root_znode}/{member_path(incarnation)}"
    watched.hosted.client.get_async(path, watch=on_event).rawlink(on_answer)
