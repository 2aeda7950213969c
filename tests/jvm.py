"""What the JVMs of tests are started with, and how they end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark import SparkContext

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What the better compiler costs is never earned back."""
ARCHIVES = "tests-java*.jsa"
"""Those of `tests.class_archive`, in the virtual environment."""
JVM_END_SECONDS = 120


def start_fast() -> None:
    """From now on every JVM that this process starts, or that starts below it, unless somebody has said otherwise."""
    # A JVM of another version or other classes goes without the archive, and would say so on its standard output.
    shared = "".join(f" -XX:SharedArchiveFile={archive} -Xlog:disable" for archive in Path(sys.prefix).glob(ARCHIVES))
    os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED + shared)


def end_jvm() -> None:
    """Ends the JVM of this process's session too, which `SparkSession.stop` leaves."""
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=JVM_END_SECONDS)
        SparkContext._gateway = None
        SparkContext._jvm = None
