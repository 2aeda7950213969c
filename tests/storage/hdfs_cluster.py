"""A real HDFS cluster for tests: Hadoop's own, two namenodes of one name service and two datanodes in one JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordination.errors import Unavailable
from sink.devtools.local.servers import LOOPBACK, free_ports
from tests.storage.hadoop_jvm import hadoop_jvm, write_site

SERVICE = "lake"
NAMENODES = ("nn1", "nn2")


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
        """Settings as a user writes them."""
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
        provider = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
        client = {**self.hadoop, f"dfs.client.failover.proxy.provider.{SERVICE}": provider}
        write_site(directory, "core-site", {"fs.defaultFS": f"hdfs://{SERVICE}"})
        write_site(directory, "hdfs-site", client)
        return directory


@contextmanager
def a_cluster(directory: Path) -> Iterator[HdfsCluster]:
    with hadoop_jvm(directory, "hdfs") as gateway:
        ports = tuple(free_ports(2 * len(NAMENODES)))
        cluster = _started(gateway.jvm, directory, ports)
        path = gateway.jvm.org.apache.hadoop.fs.Path
        yield HdfsCluster(ports[: len(NAMENODES)], cluster, gateway.new_array(gateway.jvm.String, 0), path)
        cluster.shutdown()


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
