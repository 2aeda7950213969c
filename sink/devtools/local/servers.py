"""Real servers as child processes on free loopback ports, for demo, tests and benchmarks.

When `start` returns, the server has answered a client. A restart keeps port and data. No server listens outside
loopback, or opens an admin, JMX or metrics port. Not for production: no security, no replication. Raises `Unavailable`,
with the end of the server's log.
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
"""Below the range of outgoing ports: otherwise a client that retries the port of a stopped server could connect to
itself, and occupy the port when the server returns."""
READY_SECONDS = 90.0
LOG4J = """\
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1} %m%n
"""
SILENT = logging.getLogger(f"{__name__}.probe")
"""A logger for clients that only check whether a server answers."""
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


def free_ports(count: int) -> list[int]:
    """Returns distinct loopback ports that no process listens on now."""
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
    raise Unavailable(f"no {count} free loopback ports in {PORTS.start}-{PORTS.stop - 1}")


class Server(Child, ABC):
    """A server process that listens on one port and keeps its data in `directory`. A context manager."""

    def __init__(self, directory: Path, port: int, name: str) -> None:
        super().__init__(name, (), directory / "server.log")
        self.directory = directory
        self.port = port or free_ports(1)[0]

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def launch(self) -> None:
        """Starts without waiting for an answer."""
        if not self.running:
            self.directory.mkdir(parents=True, exist_ok=True)
            (self.directory / "log4j2.properties").write_text(LOG4J)
            self._arguments = self._command()
            super().start()

    def start(self) -> Self:
        """Starts, and returns when a client got an answer."""
        self.launch()
        deadline = time.monotonic() + READY_SECONDS
        while not self._answers():
            if not self.running or time.monotonic() > deadline:
                tail = self.tail()
                self.kill()
                raise Unavailable(f"{self.name} did not start on {self.address}: {tail} (log: {self.log})")
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _java(self, heap: str, jars: Sequence[Path], *arguments: str, versions: tuple[int, ...]) -> list[str]:
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
        """Prepares the directory. Returns the command line."""

    @abstractmethod
    def _answers(self) -> bool:
        """Returns whether a real client gets an answer. Waits a moment for it."""
