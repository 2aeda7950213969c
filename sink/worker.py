"""`python -m sink.worker --config FILE`: a worker of the fleet.

Exit status: 0 after SIGTERM or Ctrl-C, 2 for settings or a table that cannot be used, 70 when the JVM or a
machine stopped answering and everything here was killed; a supervisor is expected to start it again.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from threading import Timer
from types import FrameType

import structlog

from coordination.errors import SinkError
from sink.clients.spark import StartingSession
from sink.config import Fleet, ProcessSettings, load_fleet
from sink.runtime.jvm_watchdog import kill_process_tree
from sink.runtime.signals import Signals
from sink.telemetry.logs import configure, identify
from sink.telemetry.redaction import Redactor

LOG = structlog.get_logger("sink.worker")
END_SECONDS = 75.0
"""From a signal to the end, at most: the drain has a minute, and then nobody waits for a store that does not answer."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sink.worker", description="Run a worker of a fleet.")
    parser.add_argument("--config", type=Path, required=True, help="settings: YAML, .properties, or a directory")
    arguments = parser.parse_args()
    try:
        fleet = load_fleet(arguments.config)
        process = fleet.process
        configure(process.log_level, process.log_format, Redactor(fleet.secrets))
        identify(process.worker_id, fleet.sinks[0].name if fleet.is_one_sink else None)
        _run(fleet, _signals())
    except SinkError as error:
        print(f"sink: {error}", file=sys.stderr)
        return 2
    return 0


def _run(fleet: Fleet, signals: Signals) -> None:
    first, *others = fleet.everything
    name = f"sink-{first.name}" if fleet.is_one_sink else "sinks"
    with StartingSession(first, name, _spark_log(fleet.process), others) as starting:
        # Half of what Python imports is imported here: while the JVM starts, which takes longer.
        from sink.runtime.process import WorkerProcess

        WorkerProcess(fleet, signals, starting).run()


def _signals() -> Signals:
    """SIGTERM and SIGINT ask for the end; a second one ends this process and all its children at once. SIGHUP asks for
    the configuration to be read again.
    """
    signals = Signals()

    def stop(signum: int, _frame: FrameType | None) -> None:
        if signals.stop.is_set():
            kill_process_tree(128 + signum)
        signals.stop.set()
        last_resort = Timer(END_SECONDS, _cut_short)
        last_resort.daemon = True
        last_resort.start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGHUP, lambda *_: signals.reload.set())
    return signals


def _cut_short() -> None:
    """As with SIGKILL: what is under way is finished or rolled back by others."""
    LOG.warning("worker.cut_short", seconds=END_SECONDS, reason="what is under way does not end")
    kill_process_tree(0)


def _spark_log(process: ProcessSettings) -> Path | None:
    return Path(process.log_dir) / f"{process.worker_id}-spark.log" if process.log_dir else None


if __name__ == "__main__":
    sys.exit(main())
