"""`python -m sink.worker --config FILE`: a worker of the fleet.

Exit status: 0 after SIGTERM or Ctrl-C, 2 for settings or a table that cannot be used, 70 when the JVM or a
machine stopped answering and everything here was killed; a supervisor is expected to start it again.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from threading import Event, Timer
from types import FrameType

import structlog

from coordination.errors import SinkError
from sink.clients.spark import StartingSession
from sink.config import Settings, load
from sink.runtime.jvm_watchdog import kill_process_tree
from sink.telemetry.logs import configure, identify
from sink.telemetry.redaction import Redactor

LOG = structlog.get_logger("sink.worker")
END_SECONDS = 75.0
"""From a signal to the end, at most: the drain has a minute, and then nobody waits for a store that does not answer."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sink.worker", description="Run a worker of a sink's fleet.")
    parser.add_argument("--config", type=Path, required=True, help="settings: YAML or .properties")
    arguments = parser.parse_args()
    try:
        settings = load(arguments.config)
        configure(settings.log_level, settings.log_format, Redactor(settings.secrets))
        identify(settings.worker_id, settings.name)
        _run(settings, _stop_on_signals())
    except SinkError as error:
        print(f"sink: {error}", file=sys.stderr)
        return 2
    return 0


def _run(settings: Settings, stop: Event) -> None:
    with StartingSession(settings, f"sink-{settings.name}", _spark_log(settings)) as starting:
        # Half of what Python imports is imported here: while the JVM starts, which takes longer.
        from sink.runtime.process import WorkerProcess

        WorkerProcess(settings, [settings], stop, starting).run()


def _stop_on_signals() -> Event:
    """Set by SIGTERM and SIGINT; a second signal ends this process and all its children at once."""
    stop = Event()

    def request(signum: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            kill_process_tree(128 + signum)
        stop.set()
        last_resort = Timer(END_SECONDS, _cut_short)
        last_resort.daemon = True
        last_resort.start()

    signal.signal(signal.SIGTERM, request)
    signal.signal(signal.SIGINT, request)
    return stop


def _cut_short() -> None:
    """As with SIGKILL: what is under way is finished or rolled back by others."""
    LOG.warning("worker.cut_short", seconds=END_SECONDS, reason="what is under way does not end")
    kill_process_tree(0)


def _spark_log(settings: Settings) -> Path | None:
    return Path(settings.log_dir) / f"{settings.worker_id}-spark.log" if settings.log_dir else None


if __name__ == "__main__":
    sys.exit(main())
