"""How long `sink status` of many sinks takes, and how often `--watch` looks.

`python -m tests.bench.status --sinks 300` starts a ZooKeeper and a Kafka broker, makes a topic and a tree for each
sink, and runs the command as a user would: as a process of its own. It prints the seconds of each run, and of the looks
of `--watch`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from coordination.state import codec
from coordination.state.model import Member
from coordination.state.tree import member_path
from coordination.zookeeper.keeper import Keeper
from sink.config import load_fleet
from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.zookeeper import ZooKeeperServer

LOOKS = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.status", description=__doc__)
    parser.add_argument("--sinks", type=int, default=300)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="sink-status-") as name,
        ZooKeeperServer(Path(name) / "zookeeper") as zookeeper,
        KafkaServer(Path(name) / "kafka") as kafka,
    ):
        config = _configuration(Path(name), zookeeper.address, kafka.address, options.sinks)
        _make_topics(kafka.address, options.sinks)
        _make_trees(config, zookeeper.address)
        for _ in range(options.runs):
            began, cpu = time.monotonic(), _children_cpu()
            result = subprocess.run(
                _command(config, "--json"), capture_output=True, text=True, timeout=300, check=False
            )
            seconds = time.monotonic() - began
            load, used = os.getloadavg()[0], _children_cpu() - cpu
            print(
                f"sink status of {options.sinks} sinks: {seconds:.2f} s, {used:.2f} s of CPU, exit status"
                f" {result.returncode}, {result.stdout.count('zookeeper')} trees; load of the machine {load:.1f}",
                flush=True,
            )
        _watch(config)
    return 0


def _children_cpu() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _command(config: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "sink", "status", "--config", str(config), *arguments]


def _watch(config: Path) -> None:
    with subprocess.Popen(_command(config, "--json", "--watch"), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        seen = [time.monotonic()]
        for _ in range(LOOKS):
            process.stdout.readline()
            seen.append(time.monotonic())
        process.kill()
    print(f"--watch: a look every {(seen[-1] - seen[0]) / LOOKS:.2f} s", flush=True)


def _configuration(directory: Path, zookeeper: str, kafka: str, sinks: int) -> Path:
    names = [f"orders-{number:04}" for number in range(sinks)]
    document = {
        "zookeeper.connect": zookeeper,
        "kafka.bootstrap.servers": kafka,
        "schema.ddl": "id BIGINT",
        "sinks": {name: {"kafka.topic.names": name, "target.base.path": str(directory / name)} for name in names},
    }
    config = directory / "fleet.yaml"
    config.write_text(yaml.safe_dump(document))
    return config


def _make_topics(kafka: str, sinks: int) -> None:
    topics = [NewTopic(f"orders-{number:04}", 1, 1) for number in range(sinks)]
    admin = AdminClient({"bootstrap.servers": kafka})
    for future in admin.create_topics(topics, operation_timeout=60).values():
        future.result(120)


def _make_trees(config: Path, zookeeper: str) -> None:
    client = KazooClient(zookeeper)
    client.start()
    for settings in load_fleet(config).sinks:
        keeper = Keeper(client, settings.root_znode, lambda: None)
        keeper.bootstrap(settings.config_digest)
        for number in range(3):
            member = Member(f"w{number}:1", "host", 1, "1", config=settings.config_digest)
            client.create(f"{settings.root_znode}/{member_path(member.incarnation)}", codec.encode_member(member))
    client.stop()
    client.close()


if __name__ == "__main__":
    raise SystemExit(main())
