"""Runs Hadoop's miniclusters in a JVM that Python steers, and writes the configuration files of their clients.

Ivy downloads their jars once (30 MB), as it does those of the other servers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from coordination.errors import Unavailable
from sink.clients.java.errors import message
from sink.clients.java.installation import fetch, find_java, pyspark_jars

COORDINATES = (
    "org.apache.hadoop:hadoop-client-minicluster:3.3.4",
    "junit:junit:4.13.2",
    "org.mockito:mockito-core:2.28.2",
    "org.bouncycastle:bcpkix-jdk15on:1.70",
)
"""Classes of the first artifact refer to the other artifacts."""
_HEAP = "-Xmx512m"
_GUICE = "--add-opens=java.base/java.lang=ALL-UNNAMED"
"""Guice is older than Java 17; YARN builds its pages with it."""


_SPARK_JARS = ("hadoop-client-*", "log4j-*", "slf4j-api-*", "commons-logging-*", "snappy-java-*")
_JAXB_JARS = ("jakarta.xml.bind-api-*", "jaxb-*", "istack-commons-runtime-*", "activation-*")
"""Java 8 included JAXB."""


def minicluster_jars() -> list[Path]:
    """Returns PySpark's jars of the same Hadoop version, and the jars that have to be downloaded."""
    patterns = (*_SPARK_JARS, *_JAXB_JARS)
    spark_jars = [jar for pattern in patterns for jar in sorted(pyspark_jars().glob(f"{pattern}.jar"))]
    in_pyspark = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "commons-logging", "snappy-java")
    return [*spark_jars, *fetch("minicluster", COORDINATES, without=in_pyspark)]


@contextmanager
def hadoop_jvm(directory: Path, name: str) -> Iterator[JavaGateway]:
    """Starts a JVM that logs to `<name>.log`. Raises Unavailable with the text of a Java error."""
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
        # The error's text has to be read before the JVM ends.
        raise Unavailable(f"the cluster: {message(error)}") from None
    finally:
        gateway.shutdown()
        process.kill()
        process.wait()


def write_site(directory: Path, name: str, settings: Mapping[str, str]) -> None:
    """Writes a Hadoop configuration file, as an administrator hands it out."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = (f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items())
    text = "\n".join(('<?xml version="1.0"?>', "<configuration>", *lines, "</configuration>", ""))
    (directory / f"{name}.xml").write_text(text)
