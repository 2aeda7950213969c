"""Runs the worker of a configuration in this process, until a signal or an operator's drain ends it."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable
from threading import Event
from types import FrameType

import structlog

from coordination.errors import SinkError
from sink.clients.spark.starting_session import StartingSession
from sink.config import Configuration
from sink.operations.exposure import exposure_notes
from sink.operations.heap_room import heap_room
from sink.runtime.process.signals import Signals
from sink.runtime.watches.jvm_watchdog import kill_process_tree
from sink.telemetry.logs import ContextThread

LOG = structlog.get_logger("sink.worker")
SHUTDOWN_SECONDS = 75.0
"""Seconds from `signals.stop` to SIGKILL: 60 for the drain, and 15 for closing, however long a store hangs."""


def run_worker(
    fleet: Configuration, signals: Signals, on_refused: Callable[[str, SinkError], None] = lambda _name, _error: None
) -> None:
    """Runs the worker until `signals.stop` is set or an operator has drained every sink; drains, and returns. Calls
    `on_refused` with the name and the error of each sink that cannot run while another can. Raises SinkError if no sink
    can run.
    """
    _write_no_core_file()
    heap_room(fleet)  # raises ConfigError if the heap is too small
    for note in exposure_notes(fleet):
        LOG.info("settings.exposed", note=note)
    name = f"sink-{fleet.all_settings[0].name}" if fleet.is_one_sink else "sinks"
    spark_log = fleet.process.log_dir / f"{fleet.process.worker_id}-spark.log"
    with StartingSession(fleet.session, name, spark_log, not fleet.is_one_sink) as starting:
        # Half of Python's imports happen here: while the JVM starts, which takes longer.
        from sink.runtime.process.worker_process import WorkerProcess

        WorkerProcess(fleet, signals, starting, on_refused).run()


def _write_no_core_file() -> None:
    """Disables core dumps of this process and its children: a dump would hold every secret."""
    _, limit = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, limit))


def handled_signals(cut_short_status: int = 0) -> Signals:
    """Handles signals. SIGTERM and SIGINT ask for a drain; one that arrives once the process is already ending, for any
    reason, kills it and all its children with status 128 + the signal. SIGHUP asks for a reload of the configuration.

    A process that still runs `SHUTDOWN_SECONDS` after `stop` was set is killed with `cut_short_status`.
    """
    signals = Signals()
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    own_pid = os.getpid()

    def note(signum: int, _frame: FrameType | None) -> None:
        # Takes no lock: the interrupted thread may hold it. A forked child shares the pipe and must not write to it.
        if os.getpid() == own_pid:
            os.write(write_end, bytes((signum,)))

    ContextThread(target=_carry_out, args=(read_end, signals), name="signals", daemon=True).start()
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, note)
    last_resort = (signals.stop, cut_short_status)
    ContextThread(target=_cut_short, args=last_resort, name="last-resort", daemon=True).start()
    return signals


def _carry_out(read_end: int, signals: Signals) -> None:
    """Carries out signals in its own thread, so that they work even while the main thread waits in C."""
    while True:
        for signum in os.read(read_end, 64):
            if signum == signal.SIGHUP:
                signals.reload.set()
            elif signals.stop.is_set():
                kill_process_tree(128 + signum)
            else:
                signals.stop.set()


def _cut_short(stop: Event, status: int) -> None:
    """Ends the process as SIGKILL would, `SHUTDOWN_SECONDS` after `stop`: other workers finish or roll back its
    transactions.
    """
    stop.wait()
    time.sleep(SHUTDOWN_SECONDS)
    LOG.warning("worker.cut_short", seconds=SHUTDOWN_SECONDS, reason="a request still runs, as a rule at the store")
    kill_process_tree(status)
