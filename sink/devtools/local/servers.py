"""The base of the ZooKeeper and Kafka servers that the demo, tests and benchmarks run as child processes.

Guarantee: when `start` returns, the server has answered a client. A restart keeps port and data. A server listens on
loopback only, and opens no admin, JMX or metrics port. Not for production: it has no security and no replication.
Raises Unavailable, with the end of the server's log, for a server that does not start, and if too few ports are free.
"""

from __future__ import annotations

import logging
import random
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import Self

from coordination.errors import Unavailable
from sink.clients.java.installation import find_java
from sink.devtools.local.child_process import Child

LOOPBACK = "127.0.0.1"
PORTS = range(20000, 32000)
"""Ports for servers, below those that Linux gives to outgoing connections. A client that retries the port of a stopped
server could otherwise get that port as its own, connect to itself, and keep the server from starting again."""
READY_SECONDS = 90.0
"""The longest wait for a server's first answer."""
LOG4J = """\
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1} %m%n
"""
PROBE_LOG = logging.getLogger(f"{__name__}.probe")
"""The logger of clients that only check whether a server answers. It discards their lines."""
PROBE_LOG.addHandler(logging.NullHandler())
PROBE_LOG.propagate = False


def free_ports(count: int) -> list[int]:
    """Returns distinct loopback ports that are free now. Another process may take one before the caller does."""
    ports: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise Unavailable(
        f"{LOOPBACK}: {len(ports)} of ports {PORTS.start}-{PORTS.stop - 1} are free, and {count} are needed."
        " Stop other servers."
    )


class Server(Child, ABC):
    """A server process that listens on one port and keeps its data in `directory`. A context manager: it starts and
    stops the server.
    """

    def __init__(self, directory: Path, port: int, name: str) -> None:
        """`port` 0 stands for a free port. `name` is the server's name in error messages."""
        # `launch` sets the command.
        super().__init__(name, (), directory / "server.log")
        self.directory = directory
        self.port = port or free_ports(1)[0]

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def launch(self) -> None:
        """Starts the process, unless it runs, and does not wait for an answer."""
        if not self.running:
            self.directory.mkdir(parents=True, exist_ok=True)
            (self.directory / "log4j2.properties").write_text(LOG4J)
            self._arguments = self._command()
            super().start()

    def start(self) -> Self:
        """Starts the server, and waits until it answers a client. Kills it and raises Unavailable if it does not."""
        self.launch()
        deadline = time.monotonic() + READY_SECONDS
        # `_answers` waits a moment, so that this does not spin.
        while not self._answers():
            if not self.running or time.monotonic() > deadline:
                tail = self.tail()
                self.kill()
                raise Unavailable(f"{self.name} did not start on {self.address}: {tail}. See {self.log}.")
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _java(self, heap: str, jars: Sequence[Path], *arguments: str, versions: tuple[int, ...]) -> list[str]:
        """Returns the command line of a JVM. `heap` is its largest heap, such as `512m`. `arguments` are the main class
        and its arguments. `versions` are the Java versions that may run it.
        """
        log4j_option = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"
        class_path = ":".join(str(jar) for jar in jars)
        binary = find_java(versions).binary
        return [
            str(binary),
            f"-Xmx{heap}",
            "-XX:+UseSerialGC",
            "-Djava.awt.headless=true",
            log4j_option,
            "-cp",
            class_path,
            *arguments,
        ]

    @abstractmethod
    def _command(self) -> list[str]:
        """Writes the server's configuration into `directory`, and returns the command line."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether the server answers a client's request within a moment."""
