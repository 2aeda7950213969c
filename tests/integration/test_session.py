"""The Spark session is as the sink needs it, whatever its users do first."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from coordination.errors import ConfigError
from sink.clients.java import class_archive
from sink.clients.java.class_archive import archive_option, archive_path
from sink.clients.java.errors import JAVA_ERRORS
from sink.clients.java.installation import find_java
from sink.clients.spark.session import _conf, start_session
from tests.integration.table_kit import table_settings

pytestmark = pytest.mark.integration

SCHEMA = "HOODIE_METADATA_AVRO_SCHEMA"


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ({"spark__plugins": "no.such.Plugin"}, r"[\w.]*ClassNotFoundException: .*no\.such\.Plugin.*"),
        ({"spark__driver__memory": "2 GB"}, "Invalid maximum heap size: -Xmx2 GB"),
    ],
)
def test_a_spark_that_does_not_start_says_why_in_one_line(tmp_path: Path, option: dict[str, str], reason: str) -> None:
    program = f"""
from pathlib import Path
from sink.clients.java.errors import JAVA_ERRORS
from sink.clients.spark.session import start_session
from tests.integration.table_kit import table_settings
path = Path({str(tmp_path)!r})
settings = table_settings(path / "table", "127.0.0.1:9", **{option!r})
start_session(settings.session, "none", path / "spark.log")
"""
    sentence = rf"Spark did not start on .*: {reason}\. See .*spark\.log\."
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert re.fullmatch(rf"coordination\.errors\.Unavailable: {sentence}", result.stderr.splitlines()[-1])


def test_the_metadata_tables_schema_is_one_object_though_it_is_parsed_first(spark: SparkSession) -> None:
    """Hudi compares this schema by identity: with two objects, commits would fail for as long as the JVM lives."""
    jvm = spark._jvm
    assert jvm is not None
    text = jvm.org.apache.hudi.avro.model.HoodieMetadataRecord.getClassSchema().toString()
    schemas = jvm.org.apache.hudi.common.schema
    parsed = schemas.HoodieSchemaCache.intern(schemas.HoodieSchema.parse(text)).toAvroSchema()
    payload = "org.apache.hudi.metadata.HoodieMetadataPayload"
    field = jvm.org.apache.spark.util.Utils.classForName(payload, True, False).getDeclaredField(SCHEMA)
    field.setAccessible(True)
    identity = jvm.java.lang.System.identityHashCode
    assert identity(parsed) == identity(field.get(None))


def test_tasks_are_forked_from_a_python_that_has_imported_the_writer(spark: SparkSession) -> None:
    def forked_from(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"module": [sys.modules["__main__"].__spec__.name]})

    (row,) = spark.range(1).mapInArrow(forked_from, "module string").collect()
    assert row["module"] == "sink.write.engines.daemon"


def test_an_archive_of_classes_that_does_not_fit_costs_no_start(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    for content in (b"", b"no archive", bytes(1 << 20)):
        archive.write_bytes(content)
        options = ["-XX:SharedArchiveFile=" + str(archive), "-version"]
        assert subprocess.run([find_java().binary, *options], capture_output=True).returncode == 0


def test_an_archive_is_used_by_the_jvm_if_there_is_one_for_its_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_archive, "cache_home", lambda: tmp_path)
    assert archive_option() == ""
    archive = archive_path()
    assert archive is not None
    archive.parent.mkdir()
    archive.touch()
    assert archive_option() == f"-XX:SharedArchiveFile={archive}"


def test_a_session_that_was_started_for_nothing_is_stopped(tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
from pyspark import SparkContext
from sink.clients.spark.starting_session import StartingSession
from tests.integration.table_kit import table_settings
path = Path({str(tmp_path)!r})
try:
    with StartingSession(table_settings(path / "table", "127.0.0.1:9").session, "none", path / "spark.log"):
        raise ValueError("refused")
except ValueError as error:
    print(error, SparkContext._gateway is not None, SparkContext._active_spark_context)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout.splitlines()[-1:] == ["refused True None"], result.stderr


def test_whatever_java_throws_is_caught_as_a_java_error(spark: SparkSession) -> None:
    """PySpark turns the first into an exception of its own, which is none of py4j's."""
    assert spark._jvm is not None
    checks = spark._jvm.org.apache.hudi.common.util.ValidationUtils
    for check in (checks.checkArgument, checks.checkState):
        with pytest.raises(JAVA_ERRORS):
            check(False)


def test_jars_of_a_user_are_loaded_together_with_hudis(tmp_path: Path) -> None:
    """Hudi looks for a user's classes in the class loader of its own."""
    user_jar = "/opt/own.jar"
    for more in ({"spark__jars": user_jar}, {"spark__master": "spark://127.0.0.1:7077"}):
        jars = (
            _conf(table_settings(tmp_path / "table", "127.0.0.1:9", **more).session, "none")
            .get("spark.jars", "")
            .split(",")
        )
        assert any("hudi-spark" in jar for jar in jars)
        assert (user_jar in jars) == ("spark__jars" in more)
    assert _conf(table_settings(tmp_path / "table", "127.0.0.1:9").session, "none").get("spark.jars") is None


def test_a_log_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"log\.dir: .* cannot be written \(.*\). Set another one"):
        start_session(
            table_settings(tmp_path / "table", "127.0.0.1:9").session, "none", tmp_path / "file" / "spark.log"
        )
