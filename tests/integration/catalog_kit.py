"""Reads tables by their names through a Hive metastore, with Spark SQL in a process of its own.

`python -m tests.integration.catalog_kit URI DIRECTORY SETTINGS` is that process: it reads one statement a line from
standard input and answers each with one line of JSON. The tests' own session has a catalogue in memory, and a JVM has
only one catalogue.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sink.clients.java.installation import pyspark_jars, spark_jars, storage_jars
from sink.storage.access import CONNECTORS


class Reader:
    """A process with Spark, Hudi's jar, S3's jars and the metastore's address; `more` are Spark's settings."""

    def __init__(self, uri: str, directory: Path, more: Mapping[str, str] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / "reader.log"
        command = [sys.executable, "-m", "tests.integration.catalog_kit", uri, str(directory)]
        command.append(json.dumps(dict(more or {})))
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def rows(self, statement: str) -> list[list[Any]]:
        """Returns the query's rows. Raises RuntimeError with Spark's reason."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(statement) + "\n")
        self._process.stdin.flush()
        # Hudi prints warnings of its own where the answers go.
        line = next((line for line in self._process.stdout if line.startswith("{")), "")
        assert line, f"the reader ended: {self._log.read_text()[-2000:]}"
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        rows: list[list[Any]] = answer["rows"]
        return rows

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def _serve(uri: str, directory: str, more: str) -> None:
    os.environ["SPARK_HOME"] = str(pyspark_jars().parent)
    jars = [*spark_jars(), *storage_jars(CONNECTORS["s3a"])]
    os.environ["SPARK_DIST_CLASSPATH"] = os.pathsep.join(map(str, jars))
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
        "spark.hadoop.hive.metastore.uris": uri,
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        **json.loads(more),
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"rows": [list(row) for row in spark.sql(json.loads(line)).collect()]}
        except (Py4JError, PySparkException) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
