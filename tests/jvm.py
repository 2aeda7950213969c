"""What the JVMs of tests are started with. `python -m tests.jvm` makes an archive of the classes that a Spark loads,
once for a virtual environment, that halves the work of each start; without it they only start more slowly.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark import SparkContext

from sink.local.java import find_java
from sink.local.servers import ZooKeeperServer
from sink.session import start_session, warm_up
from tests.integration.table_kit import Driver, connected, settings

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What the better compiler costs is never earned back."""
FIRST_WITH_ARCHIVES = 13
ARCHIVES = "tests-java*.jsa"
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


def main() -> int:
    archive = _archive()
    if archive.is_file() or find_java().version < FIRST_WITH_ARCHIVES:
        return 0
    print("an archive of classes for the tests' JVMs, once (a minute)", flush=True)
    part = archive.with_suffix(".part")
    with (
        tempfile.TemporaryDirectory() as place,
        ZooKeeperServer(Path(place, "zookeeper")) as server,
        connected(server.address) as client,
    ):
        options = {
            "spark__driver__extraJavaOptions": f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={part}",
            "hoodie__metadata__enable": "true",
        }
        given = settings(Path(place, "table"), server.address, **options)
        session = start_session(given, "archive", Path(place, "spark.log"))
        warm_up(session)
        driver = Driver(session, given, client)
        driver.table.ensure()
        for number in (1, 2):
            driver.land(number)
        driver.count()
        session.stop()
        end_jvm()
    if part.is_file():
        part.rename(archive)
    return 0


def _archive() -> Path:
    """It holds for one Java, one Spark and one place of both."""
    return Path(sys.prefix) / ARCHIVES.replace("*", f"{find_java().version}-spark{pyspark.__version__}")


if __name__ == "__main__":
    sys.exit(main())
