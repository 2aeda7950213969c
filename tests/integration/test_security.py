"""Servers require a login: every client of a worker logs in, and no password is visible."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from coordination.zookeeper.table_service_lock import TableServiceLock
from sink import cli
from sink.devtools.local.kafka import KafkaServer, Listener
from sink.devtools.local.servers import LOOPBACK, free_ports
from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.bench.orders import create_topic
from tests.fleet import Fleet, produce
from tests.integration.tls_kit import tls_zookeeper
from tests.processes import process_commands
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

PASSWORD = "open-sesame"
DIGEST_PASSWORD = "close-sesame"
SECRET_KEY = "s3-secret-key"
RECORDS = 2000


@pytest.fixture
def login(tmp_path: Path) -> Iterator[tuple[KafkaServer, str]]:
    """A broker with a plain listener for the test, and the address of its listener with a login for workers."""
    secured_port = free_ports(1)[0]
    login_module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{login_module} required user_sink="{PASSWORD}";',
    }
    listener = Listener("SASL", secured_port, f"{LOOPBACK}:{secured_port}", "SASL_PLAINTEXT")
    with KafkaServer(tmp_path / "kafka", settings=settings, listeners=[listener]) as server:
        yield server, listener.advertised


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[ZooKeeperServer, dict[str, str]]]:
    """A ZooKeeper that requires certificates, and the settings of a worker with a certificate and a digest login."""
    with tls_zookeeper(tmp_path / "tls") as (server, by_certificate):
        login = {"zookeeper.digest.username": "sink", "zookeeper.digest.password": DIGEST_PASSWORD}
        yield server, {**by_certificate, **login, "zookeeper.acl": "creator"}


def test_a_worker_logs_in_everywhere_keeps_its_znodes_to_itself_and_shows_no_secret(
    tmp_path: Path, login: tuple[KafkaServer, str], guarded: tuple[ZooKeeperServer, dict[str, str]]
) -> None:
    (kafka, secured_address), (zookeeper, worker_settings) = login, guarded
    create_topic(kafka.address, "orders", 2)
    produce(kafka.address, "orders", RECORDS, 2)
    # The worker must not use another Spark on the machine.
    fleet = Fleet(
        tmp_path / "fleet", zookeeper.address, kafka.address, "orders", environment={"SPARK_HOME": "/nowhere"}
    )
    worker = fleet.start(
        "w1",
        **worker_settings,
        **{
            "kafka.bootstrap.servers": secured_address,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "sink",
            "kafka.sasl.password": PASSWORD,
            "spark.hadoop.fs.s3a.secret.key": SECRET_KEY,
        },
    )
    nobody_else_reads(zookeeper, fleet)
    fleet.client.add_auth("digest", f"sink:{DIGEST_PASSWORD}")
    fleet.wait_landed({0: RECORDS // 2, 1: RECORDS // 2})
    visible_text = "\n".join(process_commands(worker.pid).values())
    log = (fleet.directory / "w1.log").read_text()
    visible_text += log + (fleet.directory / "w1-spark.log").read_text()
    fleet.assert_exactly_once(RECORDS)
    assert cli.main(["status", "--config", str(fleet.directory / "w1.yaml")]) == 0
    fleet.close()
    assert "java" in visible_text
    for secret in (PASSWORD, DIGEST_PASSWORD, SECRET_KEY):
        assert secret not in visible_text
    assert all(json.loads(line)["event"] for line in log.splitlines())


def nobody_else_reads(zookeeper: ZooKeeperServer, fleet: Fleet) -> None:
    stranger = KazooClient(zookeeper.address)
    stranger.start()
    eventually("the tree is there", lambda: stranger.exists(f"{fleet.root}/keeper"), 120, fleet.logs)
    with pytest.raises(NoAuthError):
        stranger.get(f"{fleet.root}/keeper")
    stranger.stop()
    stranger.close()


@pytest.mark.thorough
def test_a_worker_that_logs_in_to_zookeeper_by_tls_serves_its_table(
    tmp_path: Path, kafka: KafkaServer, topic: Callable[..., str], guarded: tuple[ZooKeeperServer, dict[str, str]]
) -> None:
    zookeeper, worker_settings = guarded
    name = topic(partitions=2)
    often = {"services.clustering": True, "services.interval.commits": 1, "hoodie.clustering.async.max.commits": 1}
    often |= {"hoodie.clean.commits.retained": 1, "hoodie.metadata.enable": False}
    fleet = Fleet(tmp_path / "fleet", zookeeper.address, kafka.address, name, often)
    fleet.client.add_auth("digest", f"sink:{DIGEST_PASSWORD}")
    fleet.start("w1", **worker_settings)
    timeline, landed = fleet.table / ".hoodie" / "timeline", 0
    while not list(timeline.glob("*_*.clean")):
        assert landed < 40 * 20, f"nothing was cleaned\n{fleet.logs()}"
        produce(kafka.address, name, 20, 2, first=landed)
        landed += 20
        fleet.wait_landed({0: landed // 2, 1: landed // 2})
    services = TableServiceLock(fleet.client, fleet.root, "")
    assert not services.last().failed
    fleet.assert_exactly_once(landed)
    fleet.close()
