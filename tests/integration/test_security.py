"""Servers that ask for a login: every client of a worker logs in, and no password can be seen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from sink import cli
from sink.devtools.local.kafka import KafkaServer, Listener
from sink.devtools.local.servers import LOOPBACK, free_ports
from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.bench.orders import create_topic
from tests.fleet import Fleet, produce
from tests.processes import family
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

PASSWORD = "open-sesame"
DIGEST_PASSWORD = "close-sesame"
SECRET_KEY = "s3-secret-key"
RECORDS = 2000


@pytest.fixture
def login(tmp_path: Path) -> Iterator[tuple[KafkaServer, str]]:
    """A broker with a plain listener for the test, and one with a login for workers, whose address is the second."""
    secured = free_ports(1)[0]
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{plain} required user_sink="{PASSWORD}";',
    }
    listener = Listener("SASL", secured, f"{LOOPBACK}:{secured}", "SASL_PLAINTEXT")
    with KafkaServer(tmp_path / "kafka", settings=settings, listeners=[listener]) as server:
        yield server, listener.advertised


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[ZooKeeperServer, dict[str, object]]]:
    """A ZooKeeper that asks for certificates, and the settings of a worker that has one, and a name of its own."""
    authority, secured = trustme.CA(), free_ports(1)[0]
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    server, worker = (authority.issue_cert("localhost") for _ in range(2))
    own = tmp_path / "server.pem"
    own.write_bytes(_pkcs8(server) + server.cert_chain_pems[0].bytes())
    (tmp_path / "worker.key").write_bytes(_pkcs8(worker))
    worker.cert_chain_pems[0].write_to_path(tmp_path / "worker.pem")
    settings = {
        "secureClientPort": secured,
        "secureClientPortAddress": LOOPBACK,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": own,
        "ssl.trustStore.location": ca,
        "ssl.clientAuth": "need",
    }
    access = {
        "zookeeper.connect": f"localhost:{secured}",
        "zookeeper.ssl.ca.location": str(ca),
        "zookeeper.ssl.certificate.location": str(tmp_path / "worker.pem"),
        "zookeeper.ssl.key.location": str(tmp_path / "worker.key"),
        "zookeeper.digest.username": "sink",
        "zookeeper.digest.password": DIGEST_PASSWORD,
        "zookeeper.acl": "creator",
    }
    with ZooKeeperServer(tmp_path / "zookeeper", settings=settings) as server_:
        yield server_, access


def _pkcs8(certificate: trustme.LeafCert) -> bytes:
    """The private key in the one form that ZooKeeper reads."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def test_a_worker_logs_in_everywhere_keeps_its_znodes_to_itself_and_shows_no_secret(
    tmp_path: Path, login: tuple[KafkaServer, str], guarded: tuple[ZooKeeperServer, dict[str, object]]
) -> None:
    (kafka, secured), (zookeeper, access) = login, guarded
    create_topic(kafka.address, "orders", 2)
    produce(kafka.address, "orders", RECORDS, 2)
    # Another Spark on the machine is not meant.
    it = Fleet(tmp_path / "fleet", zookeeper.address, kafka.address, "orders", environment={"SPARK_HOME": "/nowhere"})
    worker = it.start(
        "w1",
        **access,
        **{
            "kafka.bootstrap.servers": secured,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "sink",
            "kafka.sasl.password": PASSWORD,
            "spark.hadoop.fs.s3a.secret.key": SECRET_KEY,
        },
    )
    nobody_else_reads(zookeeper, it)
    it.client.add_auth("digest", f"sink:{DIGEST_PASSWORD}")
    it.wait_landed({0: RECORDS // 2, 1: RECORDS // 2})
    said = "\n".join(family(worker.pid).values())
    log = (it.directory / "w1.log").read_text()
    said += log + (it.directory / "w1-spark.log").read_text()
    it.assert_exactly_once(RECORDS)
    assert cli.main(["status", "--config", str(it.directory / "w1.yaml")]) == 0
    it.close()
    assert "java" in said
    for secret in (PASSWORD, DIGEST_PASSWORD, SECRET_KEY):
        assert secret not in said
    assert all(json.loads(line)["event"] for line in log.splitlines())


def nobody_else_reads(zookeeper: ZooKeeperServer, it: Fleet) -> None:
    stranger = KazooClient(zookeeper.address)
    stranger.start()
    eventually("the tree is there", lambda: stranger.exists(f"{it.root}/keeper"), 120, it.logs)
    with pytest.raises(NoAuthError):
        stranger.get(f"{it.root}/keeper")
    stranger.stop()
    stranger.close()
