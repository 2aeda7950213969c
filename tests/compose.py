"""Runs the services of docker/compose.yaml as processes of this machine, as Compose would, without a Docker engine.

Commands, settings, waits, health checks and volumes are the file's own. The contents of the images are replaced:
ZooKeeper and Kafka are those of the tests, the package is this source tree, and services have loopback addresses.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from sink.clients.host.child_environment import child_environment
from sink.clients.java.installation import BROKER_VERSIONS, find_java, pyspark_jars
from sink.devtools.jars import kafka_jars
from sink.devtools.local.child_process import Child
from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.servers import free_ports
from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.kafka_tools import tools_jars

DOCKER = Path(__file__).resolve().parents[1] / "docker"
OURS = "hudi-keeper-sink"
JAVA_TOOLS = {
    "zkServer.sh status": ("org.apache.zookeeper.client.FourLetterWordMain", "{zookeeper}", "srvr"),
    "/opt/kafka/bin/kafka-broker-api-versions.sh": ("org.apache.kafka.tools.BrokerApiVersionsCommand",),
}
"""The scripts of the images, and the Java commands that replace them."""


class Compose:
    """The services of the file, each started after its dependencies."""

    def __init__(self, directory: Path) -> None:
        self.services: dict[str, dict[str, Any]] = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
        self.running: dict[str, Child | ZooKeeperServer | KafkaServer] = {}
        self._directory = directory
        self._entrypoint = _dockerfile_words("ENTRYPOINT")
        self._default_command = _dockerfile_words("CMD")
        self._ports = dict(zip(self.services, free_ports(len(self.services)), strict=True))

    def up(self) -> None:
        for name in self.services:
            self._start(name)

    def close(self) -> None:
        for server in reversed(self.running.values()):
            server.kill() if isinstance(server, Child) else server.stop()

    def child(self, name: str) -> Child:
        child = self.running[name]
        assert isinstance(child, Child)
        return child

    def port(self, name: str) -> int:
        """Returns the loopback port that stands for the service's published port."""
        return self._ports[name]

    def execute(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs `docker compose exec NAME COMMAND`."""
        return self._run(name, command, 120)

    def healthy(self, name: str) -> bool:
        """Whether the service's health check passes now."""
        check = self.services[name]["healthcheck"]
        kind, *command = check["test"]
        if kind == "CMD-SHELL":
            command = ["sh", "-c", *command]
        return self._run(name, command, _seconds(check["timeout"]) * 3).returncode == 0

    def wait_healthy(self, name: str) -> None:
        """Waits as Compose does: the service is unhealthy when the start period and all retries are over."""
        check = self.services[name]["healthcheck"]
        deadline = time.monotonic() + _seconds(check["start_period"]) + check["retries"] * _seconds(check["interval"])
        while not self.healthy(name):
            child = self.running[name]
            assert child.running, f"{name} has ended\n{self.log(name)}"
            assert time.monotonic() < deadline, f"{name} is ill\n{self.log(name)}"

    def log(self, name: str) -> str:
        return "\n".join(self.running[name].log.read_text().splitlines()[-40:])

    def stop(self, name: str) -> int:
        """Runs `docker compose stop NAME`. Returns the exit status; -9 when the service took longer than its grace."""
        child = self.child(name)
        os.kill(child.pid, signal.SIGTERM)
        return child.wait(_seconds(self.services[name]["stop_grace_period"]))

    def _start(self, name: str) -> None:
        if name in self.running:
            return
        service = self.services[name]
        for other, dependency in service.get("depends_on", {}).items():
            self._start(other)
            if dependency["condition"] == "service_healthy":
                self.wait_healthy(other)
        directory = self._directory / name
        if service["image"].startswith("zookeeper:"):
            allowed = service["environment"]["ZOO_4LW_COMMANDS_WHITELIST"]
            server = ZooKeeperServer(directory, self._ports[name], settings={"4lw.commands.whitelist": allowed})
            self.running[name] = server.start()
        elif service["image"].startswith("apache/kafka:"):
            self.running[name] = KafkaServer(
                directory, self._ports[name], _broker_settings(service["environment"])
            ).start()
        else:
            assert service["image"] == OURS
            command = [*self._entrypoint, *service.get("command", self._default_command)]
            child = Child(name, self._host_command(name, command), directory / "log", self._environment(name))
            self.running[name] = child.start()

    def _run(self, name: str, command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._host_command(name, command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env=child_environment(self._environment(name)),
        )

    def _environment(self, name: str) -> dict[str, str]:
        environment = self.services[name].get("environment", {})
        return dict(environment) if self.services[name]["image"] == OURS else {}

    def _host_command(self, name: str, command: Sequence[str]) -> list[str]:
        """Returns the command with this machine's paths, addresses and programs in place of the container's."""
        volumes = self._volumes(name)
        words = [self._addresses(name, word) for word in command]
        for target, source in volumes.items():
            words = [word.replace(target, str(source)) for word in words]
        for script, tool in JAVA_TOOLS.items():
            words = [word.replace(script, " ".join(self._java(tool))) for word in words]
        programs = {"python": sys.executable, "sink": f"{Path(sys.executable).parent}/sink"}
        return [programs.get(words[0], words[0]), *words[1:]]

    def _java(self, tool: Sequence[str]) -> list[str]:
        jars = [*kafka_jars(), *tools_jars()] if "kafka" in tool[0] else pyspark_jars().glob("*.jar")
        java = [str(find_java(BROKER_VERSIONS).binary), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        arguments = [word.format(zookeeper=f"127.0.0.1 {self._ports['zookeeper']}") for word in tool]
        return [*java, "-cp", ":".join(map(str, jars)), *arguments]

    def _addresses(self, name: str, text: str) -> str:
        text = re.sub(
            r"\b(" + "|".join(self.services) + r"):\d+", lambda match: f"127.0.0.1:{self._ports[match[1]]}", text
        )
        return re.sub(r"(127\.0\.0\.1|0\.0\.0\.0):8490", f"127.0.0.1:{self._ports[name]}", text)

    def _volumes(self, name: str) -> Mapping[str, Path]:
        """Creates the service's volumes. Returns each one's path on this machine, by its path in the container."""
        paths: dict[str, Path] = {}
        for volume in self.services[name].get("volumes", []) if self.services[name]["image"] == OURS else ():
            source, target = volume.split(":")[:2]
            if source.startswith("."):
                paths[target] = self._directory / name / Path(source).name
            else:
                paths[target] = self._directory / "volumes" / source
                paths[target].mkdir(parents=True, exist_ok=True)
        for target, path in paths.items():
            original = DOCKER / path.name
            if original.is_file():
                text = self._addresses(name, original.read_text())
                for mount_point, directory in paths.items():
                    text = text.replace(f"{mount_point}/", f"{directory}/") if mount_point != target else text
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        return paths


def _dockerfile_words(instruction: str) -> list[str]:
    match = re.search(rf"^{instruction} (\[.+\])$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    assert match is not None
    words: list[str] = json.loads(match[1])
    return words


def _broker_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the broker settings behind variables of the image, without addresses and directories."""
    settings = {name.removeprefix("KAFKA_").lower().replace("_", "."): value for name, value in environment.items()}
    replaced = ("listener", "controller", "advertised", "process", "node", "log.dirs")
    return {name: value for name, value in settings.items() if not name.startswith(replaced)}


def _seconds(duration: str) -> float:
    assert duration.endswith("s")
    return float(duration[:-1])
