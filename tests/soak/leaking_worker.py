"""A worker that loses memory on purpose, in its JVM's heap and in Python: what a soak has to find.

`python -m tests.soak.leaking_worker MB_PER_HOUR --config FILE`
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from pyspark import SparkContext

STEP_SECONDS = 20.0


def _leak(bytes_per_step: int, kept: list[Any]) -> None:
    pause = threading.Event()
    while not pause.wait(STEP_SECONDS):
        kept.append(b"\1" * bytes_per_step)
        context = SparkContext._active_spark_context
        if context is not None:
            gateway = context._gateway
            # The JVM keeps what Python refers to.
            kept.append(gateway.new_array(gateway.jvm.byte, bytes_per_step))  # type: ignore[union-attr]


def main() -> None:
    megabytes_per_hour = float(sys.argv.pop(1))
    bytes_per_step = int(megabytes_per_hour * 1e6 * STEP_SECONDS / 3600)
    threading.Thread(target=_leak, args=(bytes_per_step, []), daemon=True).start()
    from sink.worker import main as run

    sys.exit(run())


if __name__ == "__main__":
    main()
