"""Watches the JVM next to this Python process, and ends both when it is silent for too long.

Python and its JVM can stop separately. A coordinator whose JVM hangs would keep its session and its lock for
ever; so a JVM that gives no sign of life for the session time-out counts as dead, like a worker would. A JVM whose
SparkContext or local executor was stopped runs no task any more, and counts as dead, too.
"""

from __future__ import annotations

import os
import time

import psutil
import structlog
from pyspark.sql import SparkSession

from sink.clients.java_errors import JAVA_ERRORS
from sink.clients.local_executor import TaskRunners
from sink.runtime.pools import Background

LOG = structlog.get_logger("sink.worker")
EXIT_JVM_SILENT = 70
PING_SECONDS = 1.0


class JvmWatchdog(Background):
    """`answered_at` is when the JVM last gave a sign of life, in monotonic seconds."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__("guardian", self._ping)
        self._runners = TaskRunners(spark.sparkContext)
        self.answered_at = time.monotonic()

    def _ping(self) -> None:
        while not self._ended.wait(PING_SECONDS):
            try:
                stopped = self._runners.stopped()
            except (*JAVA_ERRORS, OSError, EOFError) as error:
                # A JVM that is gone never answers again: it will be missed.
                LOG.error("jvm.gone", reason=str(error))
                return
            if stopped:
                # Neither does a context that a cluster has taken away: only a new process gets another one.
                LOG.error("jvm.gone", reason=f"{stopped}; see the log of Spark")
                return
            self.answered_at = time.monotonic()


def kill_process_tree(status: int) -> None:
    """Ends every child, then this process, at once: nothing here may still have an effect."""
    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    os._exit(status)
