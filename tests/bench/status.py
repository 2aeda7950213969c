"""How long `sink status` of many sinks takes, and how often `--watch` looks.

`python -m tests.bench.status --sinks 300` starts a ZooKeeper and a Kafka broker, makes a topic and a tree for each
sink, and runs the command as a user would: as a process of its own. It prints the seconds of each run, and of the looks
of `--watch`. A tree is that of a sink at work: three workers, one partition, a full ledger, an open transaction, a run
of the table services.
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

from coordination.state import codec, tree
from coordination.state.model import Header, Member, PartitionState, Phase, Plan, Slice, TopicPartition, WriteTask
from coordination.zookeeper.keeper import Keeper
from coordination.zookeeper.table_service_lock import ServiceOutcome, TableServiceLock, TableServiceRun
from sink.config import Settings, load_configuration
from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.zookeeper import ZooKeeperServer

LOOKS = 5
ENDED = tree.HISTORY


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
    for settings in load_configuration(config).sinks:
        _make_tree(client, settings)
    client.stop()
    client.close()


def _make_tree(client: KazooClient, settings: Settings) -> None:
    keeper = Keeper(client, settings.root_znode, lambda: None)
    keeper.bootstrap(settings.config_digest)
    members = [Member(f"w{number}:1", "host", 1, "1", config=settings.config_digest) for number in range(3)]
    ops: list[tree.Op] = []
    for number, member in enumerate(members):
        ops.append(tree.Create(tree.member_path(member.incarnation), codec.encode_member(member)))
        ops.append(tree.Create(f"{tree.ELECTION}/lock-{number:010d}", member.incarnation.encode()))
    partition, now = TopicPartition(settings.topics[0], 0), time.time()
    state = PartitionState("topic-id", 0, ENDED * 100, 1)
    history = tuple(_ended(number, now) for number in range(1, ENDED + 1))
    view = keeper.read()
    ops += tree.shard_ops(view, {partition: state})
    ops.append(tree.ledger_op(view, tree.Ledger(ENDED, ENDED, history=history)))
    slices = (Slice(partition.topic, 0, ENDED * 100, ENDED * 100 + 100, "topic-id", 1),)
    plan = Plan({member.incarnation: (WriteTask(slices),) if member is members[0] else () for member in members})
    ops += tree.plan_ops(ENDED + 1, plan)
    ops.append(tree.header_op(Header(ENDED + 1, ENDED + 1, 1, 1, ENDED, Phase.STARTED, 60.0, tree.plan_digest(plan))))
    keeper.write(ops)
    services = (ServiceOutcome("cleaning", 0.5), ServiceOutcome("archiving", 0.5))
    TableServiceLock(client, settings.root_znode, "").record(lambda _: TableServiceRun("w0", now, ENDED, services))


def _ended(number: int, now: float) -> tree.Summary:
    times = dict.fromkeys(("PLANNED", "STARTED", "PREPARED", "COMMITTED", "ENDED"), now)
    return tree.Summary(number, number, "COMMITTED", "20260101000000000", 100, "", times)


if __name__ == "__main__":
    raise SystemExit(main())
