"""Real ZooKeeper, Kafka and workers as child processes on free loopback ports: for demo, tests, benchmarks.

A server that `start` returned has answered a client. Restarting keeps port and data. Nothing listens outside
loopback, and no admin, JMX or metrics port is opened. Not for production: one broker, no security, and data
that is only as durable as the directory. Raises `Unavailable`, with the end of the server's log.
"""

from __future__ import annotations

import base64
import logging
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from coordination.errors import Unavailable
from sink.local import packages
from sink.local.java import BROKER_VERSIONS, find_java
from sink.local.process import Child

if sys.version_info >= (3, 11):
    from typing import Self
else:
    from typing_extensions import Self

LOOPBACK = "127.0.0.1"
PORTS = range(20000, 32000)
"""Below the range that the kernel gives to outgoing connections: a client that keeps trying a stopped
server's port could otherwise be connected to itself, and hold the port when the server returns."""
READY_SECONDS = 90.0
ZOOKEEPER_JARS = (
    "zookeeper*",
    "slf4j-api*",
    "log4j-*",
    "netty-*",
    "snappy-java*",
    "metrics-core*",
    "commons-cli*",
)
LOG4J = """\
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1} %m%n
"""
LARGEST_MESSAGE = 16 * 1024 * 1024
_NOWHERE = logging.getLogger(f"{__name__}.probe")
_NOWHERE.addHandler(logging.NullHandler())
_NOWHERE.propagate = False


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports that nobody listens on now."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise Unavailable(f"no {count} free loopback ports in {PORTS.start}-{PORTS.stop - 1}")


class Lifecycle(ABC):
    """What a server and an ensemble of servers share; `with` starts and stops."""

    @property
    @abstractmethod
    def address(self) -> str:
        """`host:port`, or several of them separated by commas: what a client is given."""

    @abstractmethod
    def start(self) -> Self:
        """Starts, and returns when a client was answered."""

    @abstractmethod
    def stop(self) -> None:
        """Ends in an orderly way."""

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Server(Lifecycle):
    """A JVM that listens on one port and keeps its data in `directory`."""

    def __init__(self, directory: Path, port: int, name: str) -> None:
        self.directory = directory
        self.port = port or free_ports(1)[0]
        self.name = name
        self._child: Child | None = None

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    @property
    def pid(self) -> int:
        return self._child.pid if self._child else 0

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    def launch(self) -> None:
        """Starts without waiting for an answer."""
        if not self.running:
            self.directory.mkdir(parents=True, exist_ok=True)
            (self.directory / "log4j2.properties").write_text(LOG4J)
            self._child = Child(self.name, self._command(), self.log)
            self._child.start()

    def start(self) -> Self:
        self.launch()
        limit = time.monotonic() + READY_SECONDS
        while not self._answers():
            if self._child is None or not self._child.running or time.monotonic() > limit:
                tail = self._child.tail() if self._child else ""
                self.kill()
                raise Unavailable(f"{self.name} did not start on {self.address}: {tail} (log: {self.log})")
        return self

    def stop(self) -> None:
        if self._child:
            self._child.stop()

    def kill(self) -> None:
        if self._child:
            self._child.kill()

    def pause(self) -> None:
        if self._child:
            self._child.pause()

    def resume(self) -> None:
        if self._child:
            self._child.resume()

    def _java(self, heap: str, jars: Sequence[Path], *arguments: str, versions: tuple[int, ...]) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"
        classes = ":".join(str(jar) for jar in jars)
        binary = find_java(versions).binary
        return [
            str(binary),
            f"-Xmx{heap}",
            "-XX:+UseSerialGC",
            "-Djava.awt.headless=true",
            logging,
            "-cp",
            classes,
            *arguments,
        ]

    @abstractmethod
    def _command(self) -> list[str]:
        """Prepares the directory and gives the command line."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether a real client was answered; waits a moment for it."""


class ZooKeeperServer(Server):
    """One ZooKeeper from PySpark's jars. `ensemble` names all servers' `host:quorum port:election port`; `settings` go
    on top of its own."""

    def __init__(
        self,
        directory: Path,
        port: int = 0,
        ensemble: Mapping[int, str] | None = None,
        own: int = 0,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(directory, port, f"ZooKeeper {own}" if own else "ZooKeeper")
        self._ensemble = dict(ensemble or {})
        self._own = own
        self._settings = dict(settings or {})

    def empty(self) -> Self:
        """Loses everything it ever held, and starts again on the same port."""
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
            (data / "myid").write_text(str(self._own))
            settings |= {"initLimit": 20, "syncLimit": 10}
            settings |= {f"server.{number}": place for number, place in self._ensemble.items()}
        config = self.directory / "zoo.cfg"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        jars = sorted(
            jar for pattern in ZOOKEEPER_JARS for jar in packages.pyspark_jars().glob(f"{pattern}.jar")
        )
        package = "org.apache.zookeeper.server"
        main = f"{package}.quorum.QuorumPeerMain" if self._ensemble else f"{package}.ZooKeeperServerMain"
        options = (
            "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Dzookeeper.forceSync=no",
        )
        return self._java("160m", jars, *options, main, str(config), versions=BROKER_VERSIONS)

    def _answers(self) -> bool:
        return zookeeper_answers(self.address, seconds=2.0)


class ZooKeeperEnsemble(Lifecycle):
    """Three ZooKeepers that keep working when one is gone; `servers` are the single ones."""

    def __init__(self, directory: Path, size: int = 3) -> None:
        ports = free_ports(3 * size)
        places = {
            n: f"{LOOPBACK}:{ports[size + n - 1]}:{ports[2 * size + n - 1]};{LOOPBACK}:{ports[n - 1]}"
            for n in range(1, size + 1)
        }
        self.servers = tuple(
            ZooKeeperServer(directory / str(n), ports[n - 1], places, n) for n in range(1, size + 1)
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


@dataclass(frozen=True, slots=True)
class Listener:
    """Another address of a broker: clients that come to `port` are sent on to `advertised`."""

    name: str
    port: int
    advertised: str
    protocol: str = "PLAINTEXT"

    @property
    def bound(self) -> str:
        return f"{LOOPBACK}:{self.port}"


class KafkaServer(Server):
    """One Kafka broker that is its own controller (KRaft)."""

    def __init__(
        self,
        directory: Path,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        heap: str = "512m",
        listeners: Sequence[Listener] = (),
    ) -> None:
        super().__init__(directory, port, "Kafka")
        self._controller = Listener("CONTROLLER", free_ports(1)[0], "")
        self._listeners = (Listener("PLAINTEXT", self.port, self.address), *listeners)
        self._settings = dict(settings or {})
        self._heap = heap

    def _command(self) -> list[str]:
        data = self.directory / "data"
        config = self.directory / "server.properties"
        everywhere = (*self._listeners, self._controller)
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self._controller.bound}",
            "listeners": ",".join(f"{each.name}://{each.bound}" for each in everywhere),
            "advertised.listeners": ",".join(f"{each.name}://{each.advertised}" for each in self._listeners),
            "controller.listener.names": self._controller.name,
            "listener.security.protocol.map": ",".join(f"{each.name}:{each.protocol}" for each in everywhere),
            "log.dirs": str(data),
            "metric.reporters": "",
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "500",
            "message.max.bytes": str(LARGEST_MESSAGE),
            "log.retention.ms": "-1",
            "log.cleaner.backoff.ms": "500",
            "log.cleaner.dedupe.buffer.size": str(8 * 1024 * 1024),
            "log.segment.delete.delay.ms": "1000",
            **self._settings,
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        jars = packages.kafka_jars()
        if not (data / "meta.properties").is_file():
            self._format(jars, config)
        return self._java(self._heap, jars, "kafka.Kafka", str(config), versions=BROKER_VERSIONS)

    def _format(self, jars: Sequence[Path], config: Path) -> None:
        arguments = ("kafka.tools.StorageTool", "format", "-t", _kafka_uuid(), "-c", str(config))
        command = self._java("128m", jars, "-XX:TieredStopAtLevel=1", *arguments, versions=BROKER_VERSIONS)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(
                f"Kafka's storage cannot be formatted: {(done.stderr or done.stdout).strip()[-500:]}"
            )

    def _answers(self) -> bool:
        return kafka_answers(self.address, seconds=2.0)


class Part(Enum):
    """Which processes of a worker a signal is for."""

    PYTHON = "PYTHON"
    JVM = "JVM"
    GROUP = "GROUP"


class WorkerProcess(Child):
    """`python -m sink.worker --config FILE` as a process of its own; output goes to `log`."""

    def __init__(
        self, config: Path, log: Path, environment: Mapping[str, str] | None = None, name: str = ""
    ) -> None:
        command = (sys.executable, "-m", "sink.worker", "--config", str(config))
        super().__init__(name or log.stem, command, log, environment)
        self.config = config

    @property
    def jvm_pid(self) -> int | None:
        """The process id of its Spark driver's JVM; None when it has none (yet, or any more)."""
        for pid in self._members():
            try:
                if "org.apache.spark.deploy.SparkSubmit" in psutil.Process(pid).cmdline():
                    return pid
            except psutil.NoSuchProcess:
                continue
        return None

    def signal(self, number: signal.Signals, part: Part = Part.GROUP) -> None:
        """Sends a signal to the part. Raises `Unavailable` when there is no such process."""
        if part is Part.GROUP:
            self._send(number, self._members())
            return
        pid = self.pid if part is Part.PYTHON else self.jvm_pid
        if not pid:
            raise Unavailable(f"{self.name} has no {part.value} process")
        self._send(number, [pid])

    def kill_part(self, part: Part) -> None:
        self.signal(signal.SIGKILL, part)

    def pause_part(self, part: Part) -> None:
        self.signal(signal.SIGSTOP, part)


def zookeeper_answers(address: str, seconds: float) -> bool:
    """Whether a session can be opened within `seconds`."""
    client = KazooClient(hosts=address, timeout=5.0, logger=_NOWHERE)
    try:
        client.start(timeout=seconds)
    except KazooTimeoutError:
        return False
    finally:
        client.stop()
        client.close()
    return True


def kafka_answers(address: str, seconds: float) -> bool:
    """Whether a broker tells its cluster's metadata within `seconds`."""
    admin = AdminClient({"bootstrap.servers": address}, logger=_NOWHERE)
    try:
        return bool(admin.list_topics(timeout=seconds).brokers)
    except KafkaException:
        return False


def _kafka_uuid() -> str:
    """As Kafka writes ids; not one that looks like an option of a command line."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        continue
    return text
