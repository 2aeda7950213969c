"""Runs the worker of a configuration in this process, until a signal or an operator's drain ends it."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from types import FrameType

import structlog

from coordination.errors import SinkError
from sink.clients.spark.starting_session import StartingSession
from sink.config import Configuration, ProcessSettings
from sink.operations.exposure import exposure_notes
from sink.operations.heap_room import heap_room
from sink.runtime.process.signals import Signals
from sink.runtime.watches.jvm_watchdog import kill_process_tree
from sink.telemetry.logs import ContextThread

LOG = structlog.get_logger("sink.worker")
END_SECONDS = 75.0
"""From `Signals.stop` to the end, at most: the drain has a minute, and then the process does not wait for a store."""


def run_worker(
    fleet: Configuration, signals: Signals, on_refused: Callable[[str, SinkError], None] = lambda _name, _error: None
) -> None:
    """Runs the worker. Returns after a drain, when `signals.stop` is set. Raises SinkError when no sink can run.
    `on_refused` gets each sink that cannot run while others can.
    """
    _write_no_core_file()
    heap_room(fleet)
    for note in exposure_notes(fleet):
        LOG.info("settings.exposed", note=note)
    name = f"sink-{fleet.all_settings[0].name}" if fleet.is_one_sink else "sinks"
    with StartingSession(fleet.session, name, _spark_log(fleet.process), not fleet.is_one_sink) as starting:
        # Half of Python's imports happen here: while the JVM starts, which takes longer.
        from sink.runtime.process.worker_process import WorkerProcess

        WorkerProcess(fleet, signals, starting, on_refused).run()


def _write_no_core_file() -> None:
    """Keeps this process and its children from core files, which hold every secret."""
    _, limit = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, limit))


def handled_signals(cut_short_status: int = 0) -> Signals:
    """Handles signals: SIGTERM and SIGINT ask for the end, a second one ends this process and all its children at once.
    SIGHUP asks for the configuration to be read again.

    A process that does not end within `END_SECONDS`, whatever asked for its end, is ended with `cut_short_status`.
    """
    signals = Signals()
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    own_pid = os.getpid()

    def note(signum: int, _frame: FrameType | None) -> None:
        # No lock: the thread that this interrupts may hold the one of any event. A forked child has the same pipe.
        if os.getpid() == own_pid:
            os.write(write_end, bytes((signum,)))

    ContextThread(target=_carry_out, args=(read_end, signals), name="signals", daemon=True).start()
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, note)
    last_resort = (signals.stop, cut_short_status)
    ContextThread(target=_cut_short, args=last_resort, name="last-resort", daemon=True).start()
    return signals


def _carry_out(read_end: int, signals: Signals) -> None:
    """Does what the signals ask for, in a thread of its own: also while the main thread waits."""
    while True:
        for signum in os.read(read_end, 64):
            if signum == signal.SIGHUP:
                signals.reload.set()
            elif signals.stop.is_set():
                kill_process_tree(128 + signum)
            else:
                signals.stop.set()


def _cut_short(stop: Event, status: int) -> None:
    """Ends the process as SIGKILL would, `END_SECONDS` after `stop`: other workers finish or roll back its
    transactions.
    """
    stop.wait()
    time.sleep(END_SECONDS)
    LOG.warning("worker.cut_short", seconds=END_SECONDS, reason="what is under way does not end")
    kill_process_tree(status)


def _spark_log(process: ProcessSettings) -> Path | None:
    return Path(process.log_dir) / f"{process.worker_id}-spark.log" if process.log_dir else None
