"""A real Hive metastore from PySpark's jars, with a database of its own (Derby), for tests of the catalogue.

`python -m tests.metastore DIRECTORY PORT STORAGE` is the server. It assembles the metastore as its `main` does, which
would listen on every address of the host.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sink.clients.java.installation import storage_jars
from sink.devtools.local.servers import LOOPBACK, Server
from sink.storage.access import CONNECTORS

HEAP = "256m"
_HIVE = "org.apache.hadoop.hive"


class MetastoreServer(Server):
    """`uri` is for clients. Registered tables survive a restart.

    `storage` has Hadoop's settings for tables on S3: a metastore reads each table's directory itself.
    """

    def __init__(self, directory: Path, port: int = 0, storage: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, port, "Hive metastore")
        self._storage = dict(storage or {})

    @property
    def uri(self) -> str:
        return f"thrift://{self.address}"

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "tests.metastore", str(self.directory), str(self.port), json.dumps(self._storage)]

    def _answers(self) -> bool:
        """Whether the metastore listens, which it does once its database exists."""
        time.sleep(0.1)
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, self.port)) == 0


def serve(directory: Path, port: int, storage: Mapping[str, str]) -> None:
    """Serves until the process ends."""
    if storage:
        os.environ["SPARK_DIST_CLASSPATH"] = os.pathsep.join(map(str, storage_jars(CONNECTORS["s3a"])))
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    options = f"-Dderby.system.home={directory} -Dderby.stream.error.file={directory / 'derby.log'}"
    spark_conf = SparkConf(False).set("spark.driver.memory", HEAP).set("spark.driver.extraJavaOptions", options)
    jvm = launch_gateway(spark_conf).jvm  # type: ignore[no-untyped-call]
    conf = _conf(jvm, directory, storage)
    metastore, thrift = jvm.org.apache.hadoop.hive.metastore, jvm.org.apache.thrift
    handler = getattr(metastore, "HiveMetaStore$HMSHandler")("metastore", conf, False)
    handler = metastore.HiveMetaStore.newRetryingHMSHandler(handler, conf)
    address = thrift.transport.TServerSocket(jvm.java.net.InetSocketAddress(LOOPBACK, port))
    arguments = getattr(thrift.server, "TThreadPoolServer$Args")(address)
    arguments = arguments.processor(metastore.TUGIBasedProcessor(handler))
    arguments = arguments.transportFactory(
        getattr(jvm.org.apache.hadoop.hive.thrift, "TUGIContainingTransport$Factory")()
    )
    arguments = arguments.protocolFactory(getattr(thrift.protocol, "TBinaryProtocol$Factory")())
    thrift.server.TThreadPoolServer(arguments).serve()


def _conf(jvm: Any, directory: Path, storage: Mapping[str, str]) -> Any:
    conf = jvm.org.apache.hadoop.hive.conf.HiveConf()
    for name, value in {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={directory / 'database'};create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": str(directory / "warehouse"),
        "hive.async.log.enabled": "false",
        **storage,
    }.items():
        conf.set(name, value)
    return conf


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
