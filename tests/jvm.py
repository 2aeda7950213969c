"""Options of the JVMs of tests, and their end."""

from __future__ import annotations

import os

from pyspark import SparkContext

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A short-lived JVM never earns back the cost of the better compiler."""
JVM_END_SECONDS = 120


def start_fast() -> None:
    """Sets the options for every JVM below this process from now on, unless the environment already has options."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED)


def end_jvm() -> None:
    """Ends the JVM of this process's Spark session, which `SparkSession.stop` leaves running."""
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=JVM_END_SECONDS)
        SparkContext._gateway = None
        SparkContext._jvm = None
