"""A real HDFS cluster for tests: Hadoop's own, two namenodes of one name service and two datanodes in one JVM.

Its jars come from where the others come from, once (30 MB). Python starts the JVM and tells it what to do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from coordination.errors import Unavailable
from sink.java_errors import message
from sink.local.java import find_java
from sink.local.packages import fetch, pyspark_jars
from sink.local.servers import LOOPBACK, free_ports

SERVICE = "lake"
NAMENODES = ("nn1", "nn2")
COORDINATES = (
    "org.apache.hadoop:hadoop-client-minicluster:3.3.4",
    "junit:junit:4.13.2",
    "org.mockito:mockito-core:2.28.2",
)
"""The others are named by classes of the first's."""
_HEAP = "-Xmx512m"


_OF_SPARK = ("hadoop-client-*", "log4j-*", "slf4j-api-*", "commons-logging-*", "snappy-java-*")


def minicluster_jars() -> list[Path]:
    """With those of the same Hadoop that PySpark has already."""
    own = [jar for pattern in _OF_SPARK for jar in sorted(pyspark_jars().glob(f"{pattern}.jar"))]
    brought = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "commons-logging", "snappy-java")
    return [*own, *fetch("minicluster", COORDINATES, without=brought)]


@dataclass
class HdfsCluster:
    """As a client sees it; and what happens to its namenodes, which are known by their number."""

    ports: tuple[int, ...]
    cluster: Any
    no_arguments: Any
    """An empty array of Java's strings."""
    path: Callable[[str], Any]
    """Makes one of Hadoop's paths."""
    _stopped: Any = None

    @property
    def hadoop(self) -> dict[str, str]:
        """A client's settings, by Hadoop's names."""
        prefix = f"dfs.namenode.rpc-address.{SERVICE}"
        addresses = {f"{prefix}.{name}": f"{LOOPBACK}:{port}" for name, port in zip(NAMENODES, self.ports, strict=True)}
        return {"dfs.nameservices": SERVICE, f"dfs.ha.namenodes.{SERVICE}": ",".join(NAMENODES), **addresses}

    @property
    def settings(self) -> Mapping[str, str]:
        """What a user writes."""
        return {f"spark.hadoop.{name}": value for name, value in self.hadoop.items()}

    def activate(self, number: int) -> None:
        """The other one becomes the standby, if it is there."""
        for other in range(len(self.ports)):
            if other != number and self.cluster.isNameNodeUp(other):
                self.cluster.transitionToStandby(other)
        self.cluster.transitionToActive(number)

    def stop(self, number: int) -> None:
        """As a crash: nobody is active from then on, if it was this one."""
        self.cluster.shutdownNameNode(number)

    def start(self, number: int) -> None:
        """As a standby."""
        self.cluster.restartNameNode(number, False, self.no_arguments)

    def stop_datanode(self, number: int) -> None:
        self._stopped = self.cluster.stopDataNode(number)

    def start_datanode(self) -> None:
        """The one that was stopped, with what it has and where it was."""
        if not self.cluster.restartDataNode(self._stopped, True):
            raise Unavailable("the datanode did not start")
        self.cluster.triggerHeartbeats()

    def conf_dir(self, directory: Path) -> Path:
        """Files for `HADOOP_CONF_DIR`, as an administrator hands them out."""
        directory.mkdir(parents=True, exist_ok=True)
        provider = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
        client = {**self.hadoop, f"dfs.client.failover.proxy.provider.{SERVICE}": provider}
        for name, settings in (("core-site", {"fs.defaultFS": f"hdfs://{SERVICE}"}), ("hdfs-site", client)):
            lines = (
                f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items()
            )
            text = "\n".join(('<?xml version="1.0"?>', "<configuration>", *lines, "</configuration>", ""))
            (directory / f"{name}.xml").write_text(text)
        return directory


@contextmanager
def a_cluster(directory: Path) -> Iterator[HdfsCluster]:
    jars = minicluster_jars()
    directory.mkdir(parents=True, exist_ok=True)
    java = find_java()
    with (directory / "hdfs.log").open("a") as log:
        port, secret, process = launch_gateway(
            jarpath=str(next(pyspark_jars().glob("py4j-*.jar"))),
            classpath=os.pathsep.join(map(str, jars)),
            javaopts=[_HEAP, "-XX:+UseSerialGC", f"-Dtest.build.data={directory}"],
            java_path=str(java.binary),
            die_on_exit=True,
            enable_auth=True,
            redirect_stderr=log,
            return_proc=True,
        )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=secret))
    try:
        ports = tuple(free_ports(2 * len(NAMENODES)))
        cluster = _started(gateway.jvm, directory, ports)
        path = gateway.jvm.org.apache.hadoop.fs.Path
        yield HdfsCluster(ports[: len(NAMENODES)], cluster, gateway.new_array(gateway.jvm.String, 0), path)
        cluster.shutdown()
    except Py4JJavaError as error:
        # Its text comes from a JVM that is about to be gone.
        raise Unavailable(f"the cluster: {message(error)}") from None
    finally:
        gateway.shutdown()
        process.kill()
        process.wait()


def _started(jvm: Any, directory: Path, ports: tuple[int, ...]) -> Any:
    hdfs = jvm.org.apache.hadoop.hdfs
    topology, service = hdfs.MiniDFSNNTopology(), getattr(hdfs, "MiniDFSNNTopology$NSConf")(SERVICE)
    for number, name in enumerate(NAMENODES):
        namenode = getattr(hdfs, "MiniDFSNNTopology$NNConf")(name)
        namenode.setIpcPort(ports[number]).setHttpPort(ports[len(NAMENODES) + number])
        service.addNN(namenode)
    conf = hdfs.HdfsConfiguration()
    # A standby reads what the active one wrote at once: a test waits for it.
    conf.set("dfs.ha.tail-edits.period", "1")
    conf.set("dfs.namenode.safemode.extension", "0")
    builder = getattr(hdfs, "MiniDFSCluster$Builder")(conf, jvm.java.io.File(str(directory)))
    cluster = builder.nnTopology(topology.addNameservice(service)).numDataNodes(2).build()
    cluster.waitActive()
    cluster.transitionToActive(0)
    return cluster
