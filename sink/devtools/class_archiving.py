"""`python -m sink.devtools.class_archiving`: makes a class data sharing archive, with which workers start faster.

It starts Spark as a worker does, rehearses commits and a rollback on a table in a temporary directory, and has the JVM
archive the classes that it loaded. Each combination of Java, PySpark and jars needs one archive. Making it takes about
a minute, 1.5 GB of memory and 200 MB of disk. Guarantee: `archive_path()` names a complete archive or no file. The exit
status is 0 if the archive exists, or if this Java cannot use one; else 1, with the reason on standard error. Workers
also start without an archive.
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

_EXIT_SECONDS = 300.0
"""The longest that the JVM may take to write the archive and exit."""


def main() -> int:
    archive = archive_path()
    if archive is None or archive.is_file():
        return 0
    print("making the class archive, with which workers start faster (once, about a minute)", flush=True)
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with locked(archive.with_suffix(".lock"), "making the same class archive"):
            if not archive.is_file():
                _make_archive(archive)
    except (SinkError, *JAVA_ERRORS, OSError, subprocess.TimeoutExpired) as error:
        print(f"class archive: not made: {error_summary(error)}. Workers start without it.", file=sys.stderr)
        return 1
    return 0


def _make_archive(archive: Path) -> None:
    part = archive.with_suffix(".part")
    # A process that was killed may have left an incomplete one.
    part.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="sink-archive-") as directory:
        settings = _settings(Path(directory), f"-XX:ArchiveClassesAtExit={part}")
        log = Path(directory, "spark.log")
        spark = start_session(settings.session, "class-archive", log)
        warm_up(spark)
        rehearse(spark, settings, table_schema(settings.table, settings.records))
        _exit_jvm(spark)
        if not part.is_file():
            raise OSError(f"the JVM wrote no archive: {log.read_text()[-500:]}")
    part.rename(archive)


def _settings(directory: Path, java_option: str) -> Settings:
    """Returns the settings of a sink that never runs: its servers do not exist, and nothing connects to them."""
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


def _exit_jvm(spark: SparkSession) -> None:
    """Closes the JVM's standard input, at whose end it exits. It writes the archive on exit."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_EXIT_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
