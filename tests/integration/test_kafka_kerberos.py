"""Workers on a broker that asks for Kerberos tickets, with the wheel that `packaging/kafka-kerberos` builds."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sink.devtools.local.kafka import KafkaServer, Listener
from sink.devtools.local.servers import free_ports
from tests.bench.orders import create_topic
from tests.fleet import Fleet, produce
from tests.integration.commands_kit import command, every_command_works
from tests.integration.conftest import PARTITIONS
from tests.storage.kdc import REALM, KeyDistributionCentre, missing_program
from tests.storage.kerberos_wheel import built_wheel, installed_has_kerberos, unpacked
from tests.waiting import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.thorough,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        missing_program() is not None,
        reason=f"no {missing_program()} here: apt-get install krb5-kdc krb5-admin-server krb5-user",
    ),
    pytest.mark.skipif(
        built_wheel() is None and not installed_has_kerberos(),
        reason="no librdkafka with Kerberos here: packaging/kafka-kerberos",
    ),
]
RECORDS = 3000
BRIEF_SECONDS = 20


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyDistributionCentre]:
    with KeyDistributionCentre(tmp_path_factory.mktemp("kdc")) as realm, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", str(realm.client_file))
        # Java looks into /etc/krb5.conf, else only where it is told.
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={realm.client_file}")
        if (wheel := built_wheel()) is not None:
            patch.setenv("PYTHONPATH", str(unpacked(wheel, tmp_path_factory.mktemp("wheel"))), prepend=os.pathsep)
        yield realm


@pytest.fixture(scope="module")
def broker(realm: KeyDistributionCentre, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaServer, str]]:
    """A broker with a plain listener for the test, and the address of the one that asks for tickets, every few seconds
    anew on each connection."""
    port = free_ports(1)[0]
    keytab = realm.keytab("kafka/localhost")
    module = "com.sun.security.auth.module.Krb5LoginModule"
    options = f'useKeyTab=true storeKey=true keyTab="{keytab}" principal="kafka/localhost@{REALM}"'
    settings = {
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.kerberos.gssapi.sasl.jaas.config": f"{module} required {options};",
        "listener.name.kerberos.sasl.kerberos.service.name": "kafka",
        "listener.name.kerberos.connections.max.reauth.ms": str(BRIEF_SECONDS * 1000 // 4),
    }
    listener = Listener("KERBEROS", port, f"localhost:{port}", "SASL_PLAINTEXT")
    with KafkaServer(tmp_path_factory.mktemp("kafka"), settings=settings, listeners=[listener]) as server:
        yield server, listener.advertised


@pytest.fixture
def fleet(
    realm: KeyDistributionCentre,
    broker: tuple[KafkaServer, str],
    chroot: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Fleet]:
    """A fleet of a user without ticket or keytab, whose topic is empty."""
    monkeypatch.setenv("KRB5CCNAME", str(tmp_path / "no-ticket"))
    server, address = broker
    name = f"orders-{tmp_path.name}"
    create_topic(server.address, name, PARTITIONS)
    settings = {
        "hoodie.metadata.enable": False,
        "kafka.bootstrap.servers": address,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "GSSAPI",
        "target.base.path": str(tmp_path / "orders"),
    }
    fleet = Fleet(tmp_path / "fleet", chroot, server.address, name, settings)
    yield fleet
    fleet.close()


def land(fleet: Fleet, first: int = 0) -> None:
    produce(fleet.kafka, fleet.topic, RECORDS, PARTITIONS, first)
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), (first + RECORDS) // PARTITIONS))
    fleet.assert_exactly_once(first + RECORDS)


def test_a_keytab_of_the_settings_opens_kafka_to_a_fleet_and_to_every_command(
    fleet: Fleet, realm: KeyDistributionCentre
) -> None:
    login = {
        "kafka.sasl.kerberos.keytab": str(realm.keytab("lake")),
        "kafka.sasl.kerberos.principal": f"lake@{REALM}",
    }
    fleet.settings = {**fleet.settings, **login, "errors.tolerance": "all"}
    every_command_works(fleet)


def test_tickets_that_expire_are_replaced_by_the_keytab(fleet: Fleet, realm: KeyDistributionCentre) -> None:
    keytab = realm.keytab("brief", life=f"{BRIEF_SECONDS} seconds")
    module = "com.sun.security.auth.module.Krb5LoginModule"
    fleet.start(
        "w1",
        **{
            "kafka.sasl.jaas.config": f'{module} required useKeyTab=true keyTab="{keytab}" principal="brief@{REALM}";',
            "kafka.sasl.kerberos.min.time.before.relogin": BRIEF_SECONDS * 1000 // 2,
        },
    )
    land(fleet)
    expiry = time.monotonic() + 2 * BRIEF_SECONDS
    eventually("tickets expire", lambda: time.monotonic() > expiry, 3 * BRIEF_SECONDS)
    land(fleet, first=RECORDS)


def test_a_ticket_of_the_user_is_enough_and_without_one_validate_says_what_kerberos_says(
    fleet: Fleet, realm: KeyDistributionCentre, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.configure("w1")
    result = command(fleet, "validate", fails=True)
    assert "No Kerberos credentials available" in " ".join((result.stdout + result.stderr).split())
    monkeypatch.setenv("KRB5CCNAME", str(realm.ticket("user", realm.keytab("user"))))
    fleet.start("w1")
    land(fleet)
