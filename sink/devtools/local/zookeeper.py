"""A real ZooKeeper server as a child process, for demo, tests and benchmarks. Raises what `sink.devtools.local.servers`
raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from sink.clients.java.installation import BROKER_VERSIONS, pyspark_jars
from sink.devtools.local.servers import LOOPBACK, PROBE_LOG, Server

_JARS = (
    "zookeeper*",
    "slf4j-api*",
    "log4j-*",
    "netty-*",
    "snappy-java*",
    "metrics-core*",
    "commons-cli*",
)
"""Names of the jars that the server needs."""


class ZooKeeperServer(Server):
    """A ZooKeeper server that runs from PySpark's jars. `settings` override those of zoo.cfg below."""

    def __init__(self, directory: Path, port: int = 0, settings: Mapping[str, object] | None = None) -> None:
        super().__init__(directory, port, "ZooKeeper")
        self._settings = dict(settings or {})

    def _jars(self) -> list[Path]:
        return sorted(jar for pattern in _JARS for jar in pyspark_jars().glob(f"{pattern}.jar"))

    def _command(self) -> list[str]:
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        settings = {
            "dataDir": data,
            "clientPort": self.port,
            "clientPortAddress": LOOPBACK,
            # In milliseconds. Sessions of a second let tests wait less for one to expire.
            "tickTime": 500,
            "minSessionTimeout": 1000,
            "maxSessionTimeout": 60000,
            # No limit: all clients connect from one address.
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
            "4lw.commands.whitelist": "ruok,srvr",
            **self._settings,
        }
        config = self.directory / "zoo.cfg"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        # Also the main class of a server on its own, which has no `server.N` in its settings.
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        options = (
            "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.jmx.log4j.disable=true",
            # No fsync: the data has to outlive the process, not the machine.
            "-Dzookeeper.forceSync=no",
        )
        return self._java("160m", self._jars(), *options, main, str(config), versions=BROKER_VERSIONS)

    def _answers(self) -> bool:
        return zookeeper_answers(self.address, seconds=2.0)


def zookeeper_answers(address: str, seconds: float) -> bool:
    """Returns whether a ZooKeeper at the address opens a session within `seconds`."""
    client = KazooClient(hosts=address, timeout=5.0, logger=PROBE_LOG)
    try:
        client.start(timeout=seconds)
    except KazooTimeoutError:
        return False
    finally:
        client.stop()
        client.close()
    return True
