"""An ensemble of ZooKeeper servers, and servers that lose their data."""

from __future__ import annotations

import shutil
from pathlib import Path

from typing_extensions import Self

from sink.devtools.local.servers import LOOPBACK, free_ports
from sink.devtools.local.zookeeper import ZooKeeperServer


class ZooKeeperEnsemble:
    """An ensemble of ZooKeeper servers, three by default; `servers` are its members. A context manager."""

    def __init__(self, directory: Path, size: int = 3) -> None:
        ports = free_ports(3 * size)
        settings: dict[str, object] = {"initLimit": 20, "syncLimit": 10}
        for number in range(1, size + 1):
            own, quorum, election = ports[number - 1 :: size]
            settings[f"server.{number}"] = f"{LOOPBACK}:{quorum}:{election};{LOOPBACK}:{own}"
        self.servers = tuple(
            ZooKeeperServer(directory / str(number), port, settings) for number, port in enumerate(ports[:size], 1)
        )

    @property
    def address(self) -> str:
        return ",".join(server.address for server in self.servers)

    def start(self) -> Self:
        for number, server in enumerate(self.servers, 1):
            data = server.directory / "data"
            data.mkdir(parents=True, exist_ok=True)
            (data / "myid").write_text(str(number))
            server.launch()
        for server in self.servers:
            server.start()
        return self

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def empty(server: ZooKeeperServer) -> None:
    """Deletes the server's data, and starts it again on the same port."""
    server.stop()
    shutil.rmtree(server.directory / "data", ignore_errors=True)
    server.start()
