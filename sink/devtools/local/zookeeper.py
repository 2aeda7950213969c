"""Real ZooKeeper servers as child processes, one or an ensemble."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from sink.clients import artifacts
from sink.clients.java import BROKER_VERSIONS
from sink.devtools.local.servers import LOOPBACK, SILENT, Lifecycle, Server, free_ports

if sys.version_info >= (3, 11):
    from typing import Self
else:
    from typing_extensions import Self

_JARS = (
    "zookeeper*",
    "slf4j-api*",
    "log4j-*",
    "netty-*",
    "snappy-java*",
    "metrics-core*",
    "commons-cli*",
)


class ZooKeeperServer(Server):
    """A ZooKeeper server from PySpark's jars. `ensemble` has `host:quorum port:election port` of all servers;
    `settings` override the server's defaults."""

    def __init__(
        self,
        directory: Path,
        port: int = 0,
        ensemble: Mapping[int, str] | None = None,
        server_id: int = 0,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(directory, port, f"ZooKeeper {server_id}" if server_id else "ZooKeeper")
        self._ensemble = dict(ensemble or {})
        self._server_id = server_id
        self._settings = dict(settings or {})

    def empty(self) -> Self:
        """Deletes the server's data, and starts it again on the same port."""
        self.stop()
        shutil.rmtree(self.directory / "data", ignore_errors=True)
        return self.start()

    def _command(self) -> list[str]:
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        settings = {
            "dataDir": data,
            "clientPort": self.port,
            "clientPortAddress": LOOPBACK,
            "tickTime": 500,
            "minSessionTimeout": 1000,
            "maxSessionTimeout": 60000,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
            "4lw.commands.whitelist": "ruok,srvr",
            **self._settings,
        }
        if self._ensemble:
            (data / "myid").write_text(str(self._server_id))
            settings |= {"initLimit": 20, "syncLimit": 10}
            settings |= {f"server.{number}": server_address for number, server_address in self._ensemble.items()}
        config = self.directory / "zoo.cfg"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        package = "org.apache.zookeeper.server"
        main = f"{package}.quorum.QuorumPeerMain" if self._ensemble else f"{package}.ZooKeeperServerMain"
        options = (
            "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Dzookeeper.forceSync=no",
        )
        return self._java("160m", self._jars(), *options, main, str(config), versions=BROKER_VERSIONS)

    def _jars(self) -> list[Path]:
        return sorted(jar for pattern in _JARS for jar in artifacts.pyspark_jars().glob(f"{pattern}.jar"))

    def _answers(self) -> bool:
        return zookeeper_answers(self.address, seconds=2.0)


class ZooKeeperEnsemble(Lifecycle):
    """An ensemble of ZooKeeper servers, three by default; `servers` are its members."""

    def __init__(self, directory: Path, size: int = 3) -> None:
        ports = free_ports(3 * size)
        addresses = {
            number: f"{LOOPBACK}:{ports[size + number - 1]}:{ports[2 * size + number - 1]}"
            f";{LOOPBACK}:{ports[number - 1]}"
            for number in range(1, size + 1)
        }
        self.servers = tuple(
            ZooKeeperServer(directory / str(number), ports[number - 1], addresses, number)
            for number in range(1, size + 1)
        )

    @property
    def address(self) -> str:
        return ",".join(server.address for server in self.servers)

    def start(self) -> Self:
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.start()
        return self

    def stop(self) -> None:
        for server in self.servers:
            server.stop()


def zookeeper_answers(address: str, seconds: float) -> bool:
    """Returns whether a session can be opened within `seconds`."""
    client = KazooClient(hosts=address, timeout=5.0, logger=SILENT)
    try:
        client.start(timeout=seconds)
    except KazooTimeoutError:
        return False
    finally:
        client.stop()
        client.close()
    return True
