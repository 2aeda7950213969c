"""Runs the services of docker/compose.yaml as processes of this machine, as Compose would: for want of an engine.

Commands, settings, waits, health checks and volumes are the file's own. What an image brings is replaced: ZooKeeper and
Kafka are those of the tests, the package is this source tree, and a service's address is one of loopback.
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

from sink.clients import artifacts
from sink.clients.child_process import Child, child_environment
from sink.clients.java import BROKER_VERSIONS, find_java
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
"""The scripts of the images, and what they run."""


class Compose:
    """The services of the file, each started after what it depends on."""

    def __init__(self, directory: Path) -> None:
        self.services: dict[str, dict[str, Any]] = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
        self.running: dict[str, Child | ZooKeeperServer | KafkaServer] = {}
        self._directory = directory
        self._entry = _of_dockerfile("ENTRYPOINT")
        self._usual = _of_dockerfile("CMD")
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
        """The loopback port for the one that the service publishes."""
        return self._ports[name]

    def execute(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        """`docker compose exec NAME COMMAND`."""
        return self._run(name, command, 120)

    def healthy(self, name: str) -> bool:
        """Whether its health check passes now."""
        check = self.services[name]["healthcheck"]
        kind, *command = check["test"]
        if kind == "CMD-SHELL":
            command = ["sh", "-c", *command]
        return self._run(name, command, _seconds(check["timeout"]) * 3).returncode == 0

    def wait_healthy(self, name: str) -> None:
        """As Compose waits: the service is ill when the start period and all retries are over."""
        check = self.services[name]["healthcheck"]
        deadline = time.monotonic() + _seconds(check["start_period"]) + check["retries"] * _seconds(check["interval"])
        while not self.healthy(name):
            child = self.running[name]
            assert child.running, f"{name} has ended\n{self.log(name)}"
            assert time.monotonic() < deadline, f"{name} is ill\n{self.log(name)}"

    def log(self, name: str) -> str:
        return "\n".join(self.running[name].log.read_text().splitlines()[-40:])

    def stop(self, name: str) -> int:
        """`docker compose stop NAME`: its exit status; -9 when it took longer than its grace."""
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
            self.running[name] = KafkaServer(directory, self._ports[name], _of_broker(service["environment"])).start()
        else:
            assert service["image"] == OURS
            command = [*self._entry, *service.get("command", self._usual)]
            child = Child(name, self._here(name, command), directory / "log", self._environment(name))
            self.running[name] = child.start()

    def _run(self, name: str, command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._here(name, command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env=child_environment(self._environment(name)),
        )

    def _environment(self, name: str) -> dict[str, str]:
        given = self.services[name].get("environment", {})
        return dict(given) if self.services[name]["image"] == OURS else {}

    def _here(self, name: str, command: Sequence[str]) -> list[str]:
        """The command with what stands on this machine for what is in the container."""
        volumes = self._volumes(name)
        words = [self._addresses(name, word) for word in command]
        for target, source in volumes.items():
            words = [word.replace(target, str(source)) for word in words]
        for script, tool in JAVA_TOOLS.items():
            words = [word.replace(script, " ".join(self._java(tool))) for word in words]
        programs = {"python": sys.executable, "sink": f"{Path(sys.executable).parent}/sink"}
        return [programs.get(words[0], words[0]), *words[1:]]

    def _java(self, tool: Sequence[str]) -> list[str]:
        jars = (
            [*artifacts.kafka_jars(), *tools_jars()] if "kafka" in tool[0] else artifacts.pyspark_jars().glob("*.jar")
        )
        java = [str(find_java(BROKER_VERSIONS).binary), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        arguments = [word.format(zookeeper=f"127.0.0.1 {self._ports['zookeeper']}") for word in tool]
        return [*java, "-cp", ":".join(map(str, jars)), *arguments]

    def _addresses(self, name: str, text: str) -> str:
        text = re.sub(
            r"\b(" + "|".join(self.services) + r"):\d+", lambda found: f"127.0.0.1:{self._ports[found[1]]}", text
        )
        return re.sub(r"(127\.0\.0\.1|0\.0\.0\.0):8490", f"127.0.0.1:{self._ports[name]}", text)

    def _volumes(self, name: str) -> Mapping[str, Path]:
        """The place on this machine of each volume, by its place in the container."""
        found: dict[str, Path] = {}
        for volume in self.services[name].get("volumes", []) if self.services[name]["image"] == OURS else ():
            source, target = volume.split(":")[:2]
            if source.startswith("."):
                found[target] = self._directory / name / Path(source).name
            else:
                found[target] = self._directory / "volumes" / source
                found[target].mkdir(parents=True, exist_ok=True)
        for target, place in found.items():
            original = DOCKER / place.name
            if original.is_file():
                text = self._addresses(name, original.read_text())
                for directory, here in found.items():
                    text = text.replace(f"{directory}/", f"{here}/") if directory != target else text
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text)
        return found


def _of_dockerfile(instruction: str) -> list[str]:
    found = re.search(rf"^{instruction} (\[.+\])$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    assert found is not None
    words: list[str] = json.loads(found[1])
    return words


def _of_broker(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings behind variables of the image, but for addresses and places."""
    settings = {name.removeprefix("KAFKA_").lower().replace("_", "."): value for name, value in environment.items()}
    here = ("listener", "controller", "advertised", "process", "node", "log.dirs")
    return {name: value for name, value in settings.items() if not name.startswith(here)}


def _seconds(duration: str) -> float:
    assert duration.endswith("s")
    return float(duration[:-1])
