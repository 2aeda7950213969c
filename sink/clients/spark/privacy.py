"""Keeps other local users away from the worker's Spark: its JVM listens on no port, and its files are private.

Guarantee: with a local master the driver's JVM listens on no port. If settings name files that tasks fetch from the
driver, RPC and block manager listen and demand a secret that Spark makes in the JVM, so that no argument, environment
or file has it; what they read before they know who asks costs memory. For every master, temporary files of the driver's
JVM are in directories of mode 0700. On a cluster `spark.authenticate` is the cluster's, since its daemons must know the
secret. Voided by a process of the same user and by root. Raises ConfigError.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark import SparkContext
from pyspark.serializers import CPickleSerializer
from pyspark.sql import DataFrame, Row

from sink.clients.host.private_directory import private_directories, private_directory

LOCAL_PRIVACY: Mapping[str, str] = {
    "spark.authenticate": "true",
    # The driver would fetch larger results of tasks from its own block manager, by its port.
    "spark.task.maxDirectResultSize": "2047m",
    "spark.rpc.message.maxSize": "2047",
}
_FETCHED = ("spark.jars", "spark.jars.packages", "spark.files", "spark.archives", "spark.submit.pyFiles")
"""Settings of files that tasks fetch from the driver, by the port of its RPC."""

_SERVER = "org.apache.spark.network.server.TransportServer"
_LOCAL_DIRS = "SPARK_LOCAL_DIRS"
"""The variable comes before `spark.local.dir`, and holds for the driver alone."""


def temporary_files() -> str:
    """Returns the JVM's option for temporary files. Native code of libraries is among them."""
    return shlex.quote(f"-Djava.io.tmpdir={private_directory()}")


def private_hadoop() -> Mapping[str, str]:
    """Returns the setting for Hadoop's temporary files. Its default is one directory for each user name, which any
    user can make first; uploads to an object store are in it."""
    return {"spark.hadoop.hadoop.tmp.dir": str(private_directory() / "hadoop")}


def local_directories(roots: str) -> Mapping[str, str]:
    """Returns the environment of the driver's JVM that names its directories for blocks, in each of the user's `roots`
    (`spark.local.dir`, or the variable)."""
    named = os.environ.get(_LOCAL_DIRS, roots)
    return {_LOCAL_DIRS: ",".join(map(str, private_directories(named.split(","))))}


def close_ports(context: SparkContext) -> None:
    """Closes the ports of a local master's RPC and block manager, unless its tasks fetch files there."""
    if any(context.getConf().get(name, "") for name in _FETCHED):
        return
    environment: Any = context._jvm.org.apache.spark.SparkEnv.get()  # type: ignore[union-attr]
    for owner in (environment.rpcEnv(), environment.blockManager().blockTransferService()):
        # By its type: Scala makes names of its own for private fields.
        [server] = [field for field in owner.getClass().getDeclaredFields() if _SERVER in str(field.getType())]
        server.setAccessible(True)
        server.get(owner).close()


def local_rows(frame: DataFrame) -> Iterator[Row]:
    """Yields the rows of a frame, with one job for each partition, as `toLocalIterator` does, but through py4j's
    connections. PySpark opens a port for each result and takes the first connection: a stranger's that is faster than
    its own makes the job fail."""
    pickled: Any = frame._jdf.javaToPython().toLocalIterator()
    for rows in pickled:
        yield from CPickleSerializer().loads(rows)  # type: ignore[no-untyped-call]


def collect_binary(frame: DataFrame) -> list[bytes]:
    """Collects the only column of a frame with one job, through py4j's connections."""
    rows: Any = frame._jdf.collect()
    return [bytes(row.get(0)) for row in rows]
