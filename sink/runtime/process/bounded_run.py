"""Runs a worker until all is committed that was in Kafka at a moment, for a scheduler.

Beside the worker, a thread for each sink looks up its target, asks the sink to commit at once, and waits until the
fleet has reached the target. A sink that this worker refuses is not waited for. Then this worker drains. Guarantee:
`run` returns only when the target of every sink is reached. Raises Unfinished when one is not, ConfigError when a sink
was refused, and what `sink.runtime.process.launch` raises.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import BoundedSemaphore
from typing import TypeVar

import structlog
from kazoo.client import KazooClient

from coordination.errors import ConfigError, Conflict, SinkError, Unavailable
from sink.clients.kafka.log import Log
from sink.clients.zookeeper.session import connected
from sink.config import Configuration, Settings
from sink.operations.catching_up import TOPIC_GONE, CatchUpTarget, target_of, wait_for
from sink.operations.chosen import known_sinks
from sink.operations.control import Overdue, SinkControl, requester
from sink.operations.observed_sink import observed_sink
from sink.operations.table_version import require_own_table
from sink.runtime.process.launch import run_worker
from sink.runtime.process.signals import Signals
from sink.telemetry.logs import ContextThread

LOG = structlog.get_logger("sink.worker")
RETRY_SECONDS = 1.0
POLL_SECONDS = 0.2
SIDE_BY_SIDE = 16
"""Sinks whose targets are looked up together."""
_T = TypeVar("_T")


class Unfinished(SinkError):
    """The run has ended before everything was committed."""


class BoundedRun:
    """`at`: commits all records before that time, in seconds since 1970; None: all that are there now. `seconds`: how
    long it may take.
    """

    def __init__(self, fleet: Configuration, signals: Signals, at: float | None, seconds: float) -> None:
        self._fleet = fleet
        self._signals = signals
        self._at = at
        self._deadline = time.monotonic() + seconds
        self._sinks: Sequence[Settings] = fleet.hosted
        self._looking = BoundedSemaphore(SIDE_BY_SIDE)
        self._summaries: dict[str, str] = {}
        self._failures: dict[str, SinkError] = {}

    def run(self) -> Sequence[str]:
        """Runs until every target is reached. Returns one sentence for each sink."""
        ContextThread(target=self._end_when_reached, name="bounds", daemon=True).start()
        try:
            run_worker(self._fleet, self._signals, self._refuse)
        finally:
            self._signals.stop.set()
        for error in self._failures.values():
            if not isinstance(error, Conflict | Overdue):
                raise error
        if self._failures:
            raise Unfinished("\n".join(map(str, self._failures.values())))
        if missing := [sink.name for sink in self._sinks if sink.name not in self._summaries]:
            raise Unfinished(f"the run was stopped before everything was committed: {', '.join(missing)}")
        return tuple(self._summaries.values())

    def _end_when_reached(self) -> None:
        try:
            self._wait_for_the_time()
            known = self._until_answered(lambda: known_sinks(self._fleet))
            hosted = [settings for settings in known.sinks if self._fleet.hosts(settings.name)]
            self._sinks = [settings for settings in hosted if settings.name not in known.gone]
            for settings in hosted:
                if settings.name in known.gone:
                    self._summaries[settings.name] = f"sink {settings.name}: {TOPIC_GONE}"
            with ExitStack() as stack:
                client = self._until_answered(lambda: stack.enter_context(connected(self._fleet.process.ensemble)))
                pool = stack.enter_context(ThreadPoolExecutor(max(1, len(self._sinks)), "bounds"))
                # The waits for refused sinks end with the run.
                stack.callback(self._signals.stop.set)
                for settings in self._sinks:
                    pool.submit(self._reach, settings, client)
                while not self._is_settled() and not self._signals.stop.wait(POLL_SECONDS):
                    pass
        except SinkError as error:
            self._failures[""] = error
            self._signals.stop.set()

    def _is_settled(self) -> bool:
        return all(sink.name in self._summaries or sink.name in self._failures for sink in self._sinks)

    def _refuse(self, name: str, error: SinkError) -> None:
        self._failures[name] = ConfigError(f"sink {name} cannot run: {error}")

    def _reach(self, settings: Settings, client: KazooClient) -> None:
        control = SinkControl(observed_sink(settings), client, f"sink run by {requester()}")
        try:
            target = self._until_answered(lambda: self._target(settings, control))
            LOG.info("run.bounded", sink=settings.name, offsets=target.missing(control.read().states))
            self._summaries[settings.name] = wait_for(
                control, target, self._seconds_left(), hurry=True, stop=self._signals.stop
            )
        except SinkError as error:
            self._failures.setdefault(settings.name, error)
        except Exception as error:
            LOG.exception("run.failed", sink=settings.name, reason=repr(error))
            self._failures[settings.name] = Unavailable(f"a defect: {error!r}")

    def _target(self, settings: Settings, control: SinkControl) -> CatchUpTarget:
        """Reads the target before the wait begins: later records do not belong to it."""
        with self._looking:
            # The run may end before the sink has opened its table.
            require_own_table(settings)
            log = Log(settings.kafka_native)
            try:
                return target_of(log, control.sink, control.read(), self._at)
            finally:
                log.close()

    def _wait_for_the_time(self) -> None:
        """Waits until `at` has passed: before, records of an earlier time can still come. Raises Overdue."""
        while self._at is not None and (seconds := self._at - time.time()) > 0:
            if self._signals.stop.wait(min(seconds, self._seconds_left())):
                raise Overdue("the run was stopped before the time that it runs until")
            if self._seconds_left() <= 0 and time.time() < self._at:
                raise Overdue("the time-out was over before the time that the run runs until")

    def _until_answered(self, request: Callable[[], _T]) -> _T:
        """Asks again until the server answers: it may come back, as for any worker."""
        while True:
            try:
                return request()
            except Unavailable:
                if self._seconds_left() <= 0:
                    raise
                self._signals.stop.wait(RETRY_SECONDS)
                if self._signals.stop.is_set():
                    raise

    def _seconds_left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())
