"""Runs a real HDFS cluster for tests: Hadoop's MiniDFSCluster, two namenodes and two datanodes in one JVM.

Both namenodes belong to one name service. In a Kerberos realm they ask for tickets, and the datanodes, too, by SASL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordination.errors import Unavailable
from sink.devtools.local.servers import LOOPBACK, free_ports
from tests.storage.hadoop_jvm import hadoop_jvm, write_site
from tests.storage.kdc import REALM, KeyDistributionCentre

SERVICE = "lake"
NAMENODES = ("nn1", "nn2")
_PRINCIPAL = f"hdfs/localhost@{REALM}"
_SECURE = {
    "hadoop.security.authentication": "kerberos",
    "dfs.namenode.kerberos.principal": _PRINCIPAL,
    "dfs.data.transfer.protection": "authentication",
}
"""A client's settings for a cluster in a realm."""
_SECURE_SERVER = {
    **_SECURE,
    "hadoop.security.authorization": "true",
    "dfs.datanode.kerberos.principal": _PRINCIPAL,
    "dfs.web.authentication.kerberos.principal": f"HTTP/localhost@{REALM}",
    "dfs.block.access.token.enable": "true",
    # Else the pages of namenodes and datanodes would need certificates.
    "ignore.secure.ports.for.testing": "true",
}
_KEYTABS = ("dfs.namenode.keytab.file", "dfs.datanode.keytab.file", "dfs.web.authentication.kerberos.keytab")


@dataclass
class HdfsCluster:
    """The cluster's client settings, and faults of its namenodes, which are numbered from 0."""

    ports: tuple[int, ...]
    cluster: Any
    no_arguments: Any
    """An empty Java array of strings."""
    path: Callable[[str], Any]
    """Makes a Hadoop path."""
    security: Mapping[str, str]
    """A client's settings of Kerberos."""
    _stopped_datanode: Any = None

    @property
    def hadoop(self) -> dict[str, str]:
        """A client's settings, under Hadoop's names."""
        prefix = f"dfs.namenode.rpc-address.{SERVICE}"
        addresses = {f"{prefix}.{name}": f"{LOOPBACK}:{port}" for name, port in zip(NAMENODES, self.ports, strict=True)}
        names = {"dfs.nameservices": SERVICE, f"dfs.ha.namenodes.{SERVICE}": ",".join(NAMENODES)}
        return {**names, **addresses, **self.security}

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings as a user writes them."""
        return {f"spark.hadoop.{name}": value for name, value in self.hadoop.items()}

    def activate(self, number: int) -> None:
        """Makes the namenode active, and the other one the standby, if it runs."""
        for other in range(len(self.ports)):
            if other != number and self.cluster.isNameNodeUp(other):
                self.cluster.transitionToStandby(other)
        self.cluster.transitionToActive(number)

    def stop(self, number: int) -> None:
        """Stops the namenode as a crash does. If it was active, the service has no active namenode afterwards."""
        self.cluster.shutdownNameNode(number)

    def start(self, number: int) -> None:
        """Starts the namenode as a standby."""
        self.cluster.restartNameNode(number, False, self.no_arguments)

    def stop_datanode(self, number: int) -> None:
        self._stopped_datanode = self.cluster.stopDataNode(number)

    def start_datanode(self) -> None:
        """Restarts the stopped datanode with its data, on its port. Raises Unavailable."""
        if not self.cluster.restartDataNode(self._stopped_datanode, True):
            raise Unavailable("the datanode did not start")
        self.cluster.triggerHeartbeats()

    def conf_dir(self, directory: Path) -> Path:
        """Writes files for `HADOOP_CONF_DIR`, as an administrator hands them out."""
        provider = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
        client = {**self.hadoop, f"dfs.client.failover.proxy.provider.{SERVICE}": provider}
        write_site(directory, "core-site", {"fs.defaultFS": f"hdfs://{SERVICE}", **self.security})
        write_site(directory, "hdfs-site", client)
        return directory


@contextmanager
def a_cluster(directory: Path, realm: KeyDistributionCentre | None = None) -> Iterator[HdfsCluster]:
    """Yields a cluster whose root directory, in a realm, everybody may write."""
    with hadoop_jvm(directory, "hdfs") as gateway:
        ports, path = tuple(free_ports(2 * len(NAMENODES))), gateway.jvm.org.apache.hadoop.fs.Path
        conf = gateway.jvm.org.apache.hadoop.hdfs.HdfsConfiguration()
        if realm is not None:
            _log_in(gateway.jvm, conf, realm)
        cluster = _start_cluster(gateway.jvm, conf, directory, ports)
        if realm is not None:
            everybody = gateway.jvm.org.apache.hadoop.fs.permission.FsPermission("777")
            cluster.getFileSystem(0).setPermission(path("/"), everybody)
        security = {} if realm is None else _SECURE
        no_arguments = gateway.new_array(gateway.jvm.String, 0)
        yield HdfsCluster(ports[: len(NAMENODES)], cluster, no_arguments, path, security)
        cluster.shutdown()


def _log_in(jvm: Any, conf: Any, realm: KeyDistributionCentre) -> None:
    """Makes the JVM's servers the realm's."""
    keytab = str(realm.keytab(*(name.partition("@")[0] for name in (_PRINCIPAL, f"HTTP/localhost@{REALM}"))))
    for name, value in {**_SECURE_SERVER, **dict.fromkeys(_KEYTABS, keytab)}.items():
        conf.set(name, value)
    jvm.java.lang.System.setProperty("java.security.krb5.conf", str(realm.client_file))
    users = jvm.org.apache.hadoop.security.UserGroupInformation
    users.setConfiguration(conf)
    users.loginUserFromKeytab(_PRINCIPAL, keytab)


def _start_cluster(jvm: Any, conf: Any, directory: Path, ports: tuple[int, ...]) -> Any:
    hdfs = jvm.org.apache.hadoop.hdfs
    topology, service = hdfs.MiniDFSNNTopology(), getattr(hdfs, "MiniDFSNNTopology$NSConf")(SERVICE)
    for number, name in enumerate(NAMENODES):
        namenode = getattr(hdfs, "MiniDFSNNTopology$NNConf")(name)
        namenode.setIpcPort(ports[number]).setHttpPort(ports[len(NAMENODES) + number])
        service.addNN(namenode)
    # The standby reads the active namenode's edits after 1 s: a test waits for it.
    conf.set("dfs.ha.tail-edits.period", "1")
    conf.set("dfs.namenode.safemode.extension", "0")
    builder = getattr(hdfs, "MiniDFSCluster$Builder")(conf, jvm.java.io.File(str(directory)))
    cluster = builder.nnTopology(topology.addNameservice(service)).numDataNodes(2).build()
    cluster.waitActive()
    cluster.transitionToActive(0)
    return cluster
