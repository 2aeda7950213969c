"""A fleet's metrics, and Kafka's own tool, tell what the fleet does."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sink.clients.java.installation import find_java
from sink.devtools.jars import kafka_jars
from sink.devtools.local.kafka import BROKER_VERSIONS, KafkaServer
from sink.devtools.local.servers import free_ports
from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.conftest import topics
from tests.fleet import PATIENCE, Fleet, produce
from tests.integration.conftest import METADATA, PARTITIONS, MakeFleet
from tests.kafka_tools import tools_jars
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

RECORDS = 3000


def metrics(port: int) -> dict[tuple[str, str], float]:
    """Returns the samples by name and by the label that tells samples of a name apart here."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    distinguishing = ("partition", "outcome", "service", "for")
    return {
        (
            sample.name,
            next((sample.labels[label] for label in distinguishing if label in sample.labels), ""),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def described(kafka: str, group: str) -> dict[int, tuple[int, int, int]]:
    """Returns committed offset, log end and lag by partition, as `kafka-consumer-groups.sh --describe` prints them."""
    classes = ":".join(str(jar) for jar in [*kafka_jars(), *tools_jars()])
    java = [str(find_java(BROKER_VERSIONS).binary), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    arguments = ["--bootstrap-server", kafka, "--describe", "--group", group]
    result = subprocess.run([*java, "-cp", classes, tool, *arguments], capture_output=True, text=True, check=True)
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith(f"{group} ")]
    return {int(row[2]): (int(row[3]), int(row[4]), int(row[5])) for row in rows}


def test_a_fleet_tells_prometheus_and_kafkas_own_tool_what_has_landed(make_fleet: MakeFleet) -> None:
    [port] = free_ports(1)
    fleet = make_fleet(records=RECORDS, **METADATA, **{"metrics.port": port, "services.interval.commits": 1})
    fleet.start("w1")
    records_each = RECORDS // PARTITIONS
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), records_each))

    group = f"sink-{fleet.name}"
    eventually("the group has it", lambda: metrics(port).get(("sink_group_offset_commits_total", "done"), 0) > 0)
    expected = dict.fromkeys(range(PARTITIONS), (records_each, records_each, 0))
    eventually("Kafka's tool shows it", lambda: described(fleet.kafka, group) == expected, PATIENCE, fleet.logs)

    audit = [sys.executable, "-m", "sink.cli", "audit", "--config", str(fleet.directory / "w1.yaml")]
    subprocess.run(audit, env=os.environ, check=True, capture_output=True, timeout=240)
    eventually("the audit is told", lambda: ("sink_audit_held", "") in metrics(port), context=fleet.logs)
    eventually("files are told", lambda: ("sink_table_files", "") in metrics(port), context=fleet.logs)
    samples = metrics(port)
    assert samples["sink_audit_held", ""] == 1
    assert samples["sink_table_files", ""] == len(list(fleet.table.glob("*.parquet")))
    assert samples["sink_table_instants", ""] >= 1
    assert samples["sink_coordinator", ""] == samples["sink_workers", ""] == 1
    assert (samples["sink_freshness_seconds", ""], samples["sink_records_total", ""]) == (0, RECORDS)
    assert samples["sink_transaction_duration_seconds_count", "COMMITTED"] >= 1
    assert {samples["sink_waiting", server] for server in ("kafka", "registry", "storage", "topic", "zookeeper")} == {0}
    for partition in range(PARTITIONS):
        assert samples["sink_partition_committed_offset", str(partition)] == records_each
        assert samples["sink_partition_lag_offsets", str(partition)] == 0


def waiting(port: int, server: str) -> float:
    return metrics(port)["sink_waiting", server]


def group_process(fleet: Fleet) -> psutil.Process | None:
    worker = psutil.Process(fleet.workers["w1"].pid)
    return next((p for p in worker.children(recursive=True) if "sink.clients.kafka.groups" in p.cmdline()), None)


def test_the_process_that_tells_the_group_can_hang_and_die_and_no_commit_waits(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(records=RECORDS)
    fleet.start("w1")
    records_each = RECORDS // PARTITIONS
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), records_each))
    eventually("the process is there", lambda: group_process(fleet) is not None, context=fleet.logs)
    child = group_process(fleet)
    assert child is not None
    child.suspend()
    for batch in range(1, 4):
        produce(fleet.kafka, fleet.topic, RECORDS, PARTITIONS, first=batch * RECORDS)
        fleet.wait_landed(dict.fromkeys(range(PARTITIONS), records_each * (batch + 1)), seconds=60)
    # The worker itself ends it after 15 s without an answer.
    with suppress(psutil.NoSuchProcess):
        child.kill()
    total = records_each * 4
    expected = dict.fromkeys(range(PARTITIONS), (total, total, 0))
    eventually(
        "another one tells it", lambda: described(fleet.kafka, f"sink-{fleet.name}") == expected, 120, fleet.logs
    )
    fleet.assert_exactly_once(4 * RECORDS)


def test_a_server_that_is_away_shows_as_a_wait_and_no_more_once_it_is_back(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    [port] = free_ports(1)
    with (
        ZooKeeperServer(tmp_path / "zookeeper") as zookeeper,
        KafkaServer(tmp_path / "kafka") as kafka,
        topics(kafka.address) as topic,
    ):
        name = topic(partitions=PARTITIONS)
        produce(kafka.address, name, RECORDS, PARTITIONS)
        fleet = make_fleet(zookeeper=zookeeper.address, name=name, **{"metrics.port": port})
        fleet.kafka = kafka.address
        fleet.start("w1")
        fleet.wait_landed(dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS))
        for server_name, server in (("kafka", kafka), ("zookeeper", zookeeper)):
            waits_for = partial(waiting, port, server_name)
            assert waits_for() == 0
            server.pause()
            eventually(f"{server_name} is waited for", waits_for, 30, fleet.logs)
            server.resume()
            eventually(f"{server_name} is back", lambda ask=waits_for: not ask(), 60, fleet.logs)  # type: ignore[misc]
        produce(kafka.address, name, RECORDS, PARTITIONS, first=RECORDS)
        fleet.wait_landed(dict.fromkeys(range(PARTITIONS), 2 * RECORDS // PARTITIONS))
