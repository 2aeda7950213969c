"""`python -m sink.devtools.class_archiving`: makes the archive of JVM classes with which workers start faster.

It starts Spark as a worker does, lets it make, fill and roll back a table in a temporary directory, and has the JVM
write down the classes that it loaded. Done once for a Java, a PySpark and a set of jars; takes about a minute, 1.5 GB
of memory and 200 MB of disk. Guarantee: the archive is whole or not there. Exit status 1, with the reason, if it could
not be made: workers then start as fast as without it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from coordination.errors import SinkError
from sink.clients.java.class_archive import archive_path
from sink.clients.java.errors import JAVA_ERRORS, error_summary
from sink.clients.java.installation import locked
from sink.clients.spark.session import start_session, warm_up
from sink.config import Settings, load_configuration
from sink.runtime.process.commit_warmup import rehearse
from sink.write.rows.row_spec import table_schema

END_SECONDS = 300.0


def main() -> int:
    archive = archive_path()
    if archive is None or archive.is_file():
        return 0
    print("making an archive of classes, with which workers start faster (a minute, once)", flush=True)
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with locked(archive.with_suffix(".lock"), "making the same archive of classes"):
            if not archive.is_file():
                _make_archive(archive)
    except (SinkError, *JAVA_ERRORS, OSError, subprocess.TimeoutExpired) as error:
        print(f"no archive of classes was made, workers start without it: {error_summary(error)}", file=sys.stderr)
        return 1
    return 0


def _make_archive(archive: Path) -> None:
    part = archive.with_suffix(".part")
    with tempfile.TemporaryDirectory(prefix="sink-archive-") as directory:
        settings = _settings(Path(directory), f"-XX:ArchiveClassesAtExit={part}")
        log = Path(directory, "spark.log")
        spark = start_session(settings.session, "class-archive", log)
        warm_up(spark)
        rehearse(spark, settings, table_schema(settings.table, settings.records))
        _end(spark)
        if not part.is_file():
            raise OSError(f"the JVM wrote none: {log.read_text()[-500:]}")
    part.rename(archive)


def _settings(directory: Path, java_option: str) -> Settings:
    """Returns settings of a sink that never runs: nothing is sent to its servers."""
    config = directory / "archive.properties"
    values = {
        "zookeeper.connect": "127.0.0.1:9",
        "kafka.bootstrap.servers": "127.0.0.1:9",
        "kafka.topic.names": "none",
        "target.base.path": str(directory / "table"),
        "target.table.name": "archive",
        "schema.ddl": "id BIGINT, name STRING, amount DOUBLE",
        "spark.master": "local[1]",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": java_option,
    }
    config.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return load_configuration(config, {}).sinks[0]


def _end(spark: SparkSession) -> None:
    """Closes the JVM's standard input: it ends, and writes the archive then."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(END_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
