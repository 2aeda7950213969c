"""Tells whether a local master's executor still takes tasks.

A message can stop the executor of a local master while its SparkContext lives: later tasks are then never run, and
nothing in Spark reports it. Guarantee: `stopped` names it once the context or the executor was stopped. On a cluster
it is about the context only, since the cluster replaces executors. Raises what py4j raises.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pyspark import SparkContext

from sink.clients.java.errors import JAVA_ERRORS

_SOURCE = "org.apache.spark.executor.ExecutorSource"
_POOL = "java.util.concurrent.ThreadPoolExecutor"


class TaskRunners:
    """The SparkContext of this process and the threads of its local executor."""

    def __init__(self, context: SparkContext) -> None:
        self._context: Any = context._jsc
        self._pool = _local_pool(context) if self._context.isLocal() else None

    def stopped(self) -> str:
        """Returns what was stopped, for a log; empty if tasks can run."""
        if self._context.sc().isStopped():
            return "the Spark context was stopped"
        if self._pool is not None and self._pool.isShutdown():
            return "Spark's local executor was stopped"
        return ""


def _local_pool(context: SparkContext) -> Any:
    """Returns the executor's threads: the executor's metrics refer to them, and nothing else within reach does."""
    jvm: Any = context._jvm
    # Another Spark may keep them elsewhere: then only the context is watched.
    with suppress(*JAVA_ERRORS):
        source = jvm.org.apache.spark.executor.Executor.executorSourceLocalModeOnly()
        for field in jvm.java.lang.Class.forName(_SOURCE).getDeclaredFields():
            if field.getType().getName() == _POOL:
                field.setAccessible(True)
                return field.get(source)
    return None
