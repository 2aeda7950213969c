"""Options of the JVMs of tests, and their end."""

from __future__ import annotations

import os

from pyspark import SparkContext

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A short-lived JVM never earns back the cost of the better compiler."""
JVM_END_SECONDS = 120


def start_fast() -> None:
    """From now on every JVM that this process starts, or that starts below it, unless somebody has said otherwise."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED)


def end_jvm() -> None:
    """Ends the JVM of this process's session too, which `SparkSession.stop` leaves."""
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=JVM_END_SECONDS)
        SparkContext._gateway = None
        SparkContext._jvm = None
