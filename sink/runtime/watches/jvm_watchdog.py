"""Watches the JVM next to this Python process, and ends both when it is gone, or silent for too long.

Python and its JVM can stop separately. A coordinator whose JVM hangs would keep its session and its lock for
ever; so a JVM that gives no sign of life for the session time-out counts as dead, like a worker would. A JVM that has
ended, whose SparkContext or local executor was stopped, or that does nothing but collect garbage, is gone at once.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import psutil
from pyspark import SparkContext
from pyspark.sql import SparkSession

from sink.clients.java.errors import JAVA_ERRORS
from sink.clients.java.heap import OUT_OF_MEMORY_STATUSES
from sink.clients.spark.local_executor import TaskRunners
from sink.telemetry.periodic import Periodic

EXIT_JVM_GONE = 70
PING_SECONDS = 1.0
END_SECONDS = 5.0
"""The JVM's connections close a moment before its process ends."""
COLLECTING_SECONDS = 20.0
COLLECTING_SHARE = 0.95
_TOO_SMALL = "Raise spark.driver.memory. `sink validate` says what these sinks need."


class JvmWatchdog(Periodic):
    """`answered_at` is when the JVM last gave a sign of life, in monotonic seconds. `gone` says why it is gone; it is
    empty until then."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__("guardian", self._ping, lambda: PING_SECONDS, at_once=False)
        self._context = spark.sparkContext
        self._runners = TaskRunners(self._context)
        self._collections = Collections(collection_seconds(self._context))
        self.answered_at = time.monotonic()
        self.gone = ""

    def _ping(self) -> None:
        try:
            reason = self._runners.stopped() or self._collections.exhausted(time.monotonic())
        except (*JAVA_ERRORS, OSError, EOFError) as error:
            # A JVM that has ended, or closed its connection, never answers again.
            reason = _end_of_jvm(self._context) or repr(error)
        if reason:
            # Nor does one whose context was taken away, or whose heap is full: only a new process gets another.
            self.gone = reason
            self.stop()
        else:
            self.answered_at = time.monotonic()


class Collections:
    """How much of its time the JVM collects garbage. With a heap that is nearly full it does little else, for minutes
    before an allocation fails."""

    def __init__(self, spent: Callable[[], float]) -> None:
        """`spent` returns the seconds that all collections took together."""
        self._spent = spent
        self._looks: deque[tuple[float, float]] = deque()

    def exhausted(self, now: float) -> str:
        """Returns why the heap counts as exhausted, or an empty text. `now` is in monotonic seconds. Raises what
        `spent` raises."""
        spent = self._spent()
        self._looks.append((now, spent))
        while len(self._looks) > 2 and now - self._looks[1][0] >= COLLECTING_SECONDS:
            self._looks.popleft()
        since, spent_before = self._looks[0]
        if now - since < COLLECTING_SECONDS or spent - spent_before < COLLECTING_SHARE * (now - since):
            return ""
        return f"for {now - since:.0f} s it has done nothing but collect garbage. {_TOO_SMALL}"


def collection_seconds(context: SparkContext) -> Callable[[], float]:
    """Returns a function that returns the seconds in which the JVM stood still for its collectors so far."""
    jvm: Any = context._jvm
    collectors = [
        collector
        for collector in jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
        # ZGC and Shenandoah have one for the time of cycles, beside which the JVM works.
        if not str(collector.getName()).endswith("Cycles")
    ]
    return lambda: sum(float(collector.getCollectionTime()) for collector in collectors) / 1000


def _end_of_jvm(context: SparkContext) -> str:
    """Returns how the JVM's process ended, or an empty text if it did not."""
    gateway: Any = context._gateway
    try:
        status = gateway.proc.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        return ""
    if status in OUT_OF_MEMORY_STATUSES:
        return f"it ran out of memory (exit status {status}). {_TOO_SMALL}"
    return f"it ended with signal {-status}" if status < 0 else f"it ended with exit status {status}"


def kill_process_tree(status: int) -> None:
    """Ends every child, then this process, at once: nothing here may still have an effect."""
    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    os._exit(status)
