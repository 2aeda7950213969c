"""`python -m tests.class_archive` makes an archive of the classes that a Spark loads, once for a virtual environment,
that halves the work of each start; without it the tests' JVMs only start more slowly.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyspark

from sink.local.java import find_java
from sink.local.kafka import KafkaServer
from sink.local.zookeeper import ZooKeeperServer
from sink.session import start_session, warm_up
from sink.write.source import read_slices
from tests.conftest import topics
from tests.fleet import produce
from tests.integration.sinktable import slices_of
from tests.integration.table_kit import Driver, connected, settings
from tests.jvm import ARCHIVES, SHORT_LIVED, end_jvm

FIRST_WITH_ARCHIVES = 13


def main() -> int:
    archive = _archive()
    if archive.is_file() or find_java().version < FIRST_WITH_ARCHIVES:
        return 0
    print("an archive of classes for the tests' JVMs, once (a minute)", flush=True)
    part = archive.with_suffix(".part")
    with (
        tempfile.TemporaryDirectory() as place,
        ZooKeeperServer(Path(place, "zookeeper")) as zookeeper,
        connected(zookeeper.address) as client,
        KafkaServer(Path(place, "kafka")) as kafka,
        topics(kafka.address) as topic,
    ):
        name = topic()
        produce(kafka.address, name, records=10, partitions=1)
        options = {
            "kafka__bootstrap__servers": kafka.address,
            "spark__driver__extraJavaOptions": f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={part}",
            "hoodie__metadata__enable": "true",
        }
        given = settings(Path(place, "table"), zookeeper.address, **options)
        session = start_session(given, "archive", Path(place, "spark.log"))
        warm_up(session)
        driver = Driver(session, given, client)
        driver.table.ensure()
        for number in (1, 2):
            driver.land(number)
            read_slices(session, given, slices_of(name, (0, 0, 10))).where("length(value) > 0").collect()
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
