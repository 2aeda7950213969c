"""`python -m sink.worker --config FILE`: a worker of the fleet.

Exit status: 0 after SIGTERM, Ctrl-C or `sink drain`, 2 for settings or a table that cannot be used, 70 when the JVM or
a machine stopped answering and everything here was killed; a supervisor is expected to start it again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sink.runtime.process.interruption import quiet_interrupt


def main() -> int:
    with quiet_interrupt():
        from coordination.errors import SinkError
        from sink.config import load_configuration
        from sink.runtime.process.launch import handled_signals, run_worker
        from sink.telemetry.logs import configure, identify
        from sink.telemetry.redaction import Redactor
        from sink.telemetry.shown import shown_lines
    parser = argparse.ArgumentParser(prog="python -m sink.worker", description="Run a worker of a fleet.")
    parser.add_argument("-c", "--config", type=Path, required=True, help="settings: YAML, .properties, or a directory")
    arguments = parser.parse_args()
    try:
        with quiet_interrupt():
            fleet = load_configuration(arguments.config, strict=False)
            process = fleet.process
            configure(process.log_level, process.log_format, Redactor(fleet.secrets))
            identify(process.worker_id, fleet.sinks[0].name if fleet.is_one_sink else None)
        run_worker(fleet, handled_signals())
    except SinkError as error:
        print(f"sink: {shown_lines(str(error))}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
