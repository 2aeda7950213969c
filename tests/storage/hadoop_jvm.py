"""A JVM with Hadoop's own small clusters, which Python starts and tells what to do; and the files that clients read.

Its jars come from where the others come from, once (30 MB).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from coordination.errors import Unavailable
from sink.clients.artifacts import fetch, pyspark_jars
from sink.clients.java import find_java
from sink.clients.java_errors import message

COORDINATES = (
    "org.apache.hadoop:hadoop-client-minicluster:3.3.4",
    "junit:junit:4.13.2",
    "org.mockito:mockito-core:2.28.2",
    "org.bouncycastle:bcpkix-jdk15on:1.70",
)
"""The others are named by classes of the first's."""
_HEAP = "-Xmx512m"
_GUICE = "--add-opens=java.base/java.lang=ALL-UNNAMED"
"""Guice is older than Java 17; YARN builds its pages with it."""


_OF_SPARK = ("hadoop-client-*", "log4j-*", "slf4j-api-*", "commons-logging-*", "snappy-java-*")
_JAXB = ("jakarta.xml.bind-api-*", "jaxb-*", "istack-commons-runtime-*", "activation-*")
"""Java 8 had it."""


def minicluster_jars() -> list[Path]:
    """With those of the same Hadoop that PySpark has already."""
    own = [jar for pattern in (*_OF_SPARK, *_JAXB) for jar in sorted(pyspark_jars().glob(f"{pattern}.jar"))]
    brought = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "commons-logging", "snappy-java")
    return [*own, *fetch("minicluster", COORDINATES, without=brought)]


@contextmanager
def hadoop_jvm(directory: Path, name: str) -> Iterator[JavaGateway]:
    """`name` is its log's. What is wrong there is Unavailable, with the text."""
    jars = minicluster_jars()
    directory.mkdir(parents=True, exist_ok=True)
    java = find_java()
    with (directory / f"{name}.log").open("a") as log:
        port, secret, process = launch_gateway(
            jarpath=str(next(pyspark_jars().glob("py4j-*.jar"))),
            classpath=os.pathsep.join(map(str, jars)),
            javaopts=[_HEAP, _GUICE, "-XX:+UseSerialGC", f"-Dtest.build.data={directory}"],
            java_path=str(java.binary),
            die_on_exit=True,
            enable_auth=True,
            redirect_stderr=log,
            return_proc=True,
        )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=secret))
    try:
        yield gateway
    except Py4JJavaError as error:
        # Its text comes from a JVM that is about to be gone.
        raise Unavailable(f"the cluster: {message(error)}") from None
    finally:
        gateway.shutdown()
        process.kill()
        process.wait()


def write_site(directory: Path, name: str, settings: Mapping[str, str]) -> None:
    """A file of Hadoop's, as an administrator hands it out."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = (f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items())
    text = "\n".join(('<?xml version="1.0"?>', "<configuration>", *lines, "</configuration>", ""))
    (directory / f"{name}.xml").write_text(text)
