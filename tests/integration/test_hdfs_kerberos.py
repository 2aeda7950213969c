"""Fleets and commands on an HDFS cluster that asks for Kerberos tickets."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.fleet import produce
from tests.integration.commands_kit import command, every_command_works
from tests.integration.conftest import METADATA, PARTITIONS, RECORDS, MakeFleet
from tests.storage.hdfs_cluster import SERVICE, HdfsCluster, a_cluster
from tests.storage.kdc import REALM, KeyDistributionCentre, missing_program
from tests.waiting import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.thorough,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        missing_program() is not None,
        reason=f"no {missing_program()} here: apt-get install krb5-kdc krb5-admin-server krb5-user",
    ),
]
USER = f"lake@{REALM}"
BRIEF_SECONDS = 20
MORE = 3000


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyDistributionCentre]:
    with KeyDistributionCentre(tmp_path_factory.mktemp("kdc")) as realm:
        yield realm


@pytest.fixture(scope="module")
def secured(realm: KeyDistributionCentre, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    with a_cluster(tmp_path_factory.mktemp("hdfs"), realm) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def keytab(realm: KeyDistributionCentre) -> Path:
    return realm.keytab("lake")


@pytest.fixture
def settings(
    realm: KeyDistributionCentre, secured: HdfsCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Mapping[str, object]:
    """Settings of a user without ticket or keytab."""
    monkeypatch.setenv("KRB5_CONFIG", str(realm.client_file))
    monkeypatch.setenv("KRB5CCNAME", str(tmp_path / "no-ticket"))
    return {
        **secured.settings,
        # Java looks into /etc/krb5.conf, else only where it is told.
        "spark.driver.extraJavaOptions": f"-Djava.security.krb5.conf={realm.client_file}",
        "target.base.path": f"hdfs://{SERVICE}/{uuid.uuid4().hex}/orders",
    }


def test_a_keytab_of_the_settings_opens_the_table_to_a_fleet_and_to_every_command(
    make_fleet: MakeFleet, topic, settings: Mapping[str, object], keytab: Path
) -> None:
    login = {"spark.kerberos.principal": USER, "spark.kerberos.keytab": str(keytab)}
    fleet = make_fleet(
        name=topic(partitions=PARTITIONS), **METADATA, **settings, **login, **{"errors.tolerance": "all"}
    )
    every_command_works(fleet)


def test_a_ticket_and_hadoops_own_files_are_enough_though_the_coordinator_is_killed(
    make_fleet: MakeFleet,
    settings: Mapping[str, object],
    secured: HdfsCluster,
    realm: KeyDistributionCentre,
    keytab: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("KRB5CCNAME", str(realm.ticket("lake", keytab)))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(secured.conf_dir(tmp_path / "hadoop")))
    fleet = make_fleet(**METADATA, **{name: settings[name] for name in settings if name not in secured.settings})
    fleet.lose_coordinator()
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS))
    fleet.assert_exactly_once(RECORDS)


def test_tickets_that_expire_are_replaced_by_the_keytab(
    make_fleet: MakeFleet, settings: Mapping[str, object], secured: HdfsCluster, realm: KeyDistributionCentre
) -> None:
    keytab = realm.keytab("brief", life=f"{BRIEF_SECONDS} seconds")
    login = {"spark.kerberos.principal": f"brief@{REALM}", "spark.kerberos.keytab": str(keytab)}
    fleet = make_fleet(**METADATA, **settings, **login)
    fleet.start("w1")
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS))
    # Tickets of its start have expired then, and a namenode that it has not asked yet wants one.
    expiry = time.monotonic() + BRIEF_SECONDS
    eventually("tickets expire", lambda: time.monotonic() > expiry, 2 * BRIEF_SECONDS)
    secured.activate(1)
    produce(fleet.kafka, fleet.topic, MORE, PARTITIONS, first=RECORDS)
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), (RECORDS + MORE) // PARTITIONS))
    fleet.assert_exactly_once(RECORDS + MORE)
    secured.activate(0)


def test_a_realm_that_is_away_is_waited_for_and_told_once(
    make_fleet: MakeFleet, settings: Mapping[str, object], realm: KeyDistributionCentre, keytab: Path
) -> None:
    login = {"spark.kerberos.principal": USER, "spark.kerberos.keytab": str(keytab)}
    fleet = make_fleet(**METADATA, **settings, **login)
    realm.stop()
    try:
        impatient = fleet.start("w1")
        told = '"waiting_for": "the Kerberos realm"'
        fleet.wait_for_log("w1", told)
        impatient.terminate()
        assert impatient.wait(120) == 0
        fleet.start("w2")
        fleet.wait_for_log("w2", told)
    finally:
        realm.start()
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS))
    assert fleet.log("w2").count(told) == 1


NO_TICKET = "lake asks for Kerberos, and there is no good ticket. Run kinit, or set spark.kerberos.principal"
NO_KERBEROS = "if it asks for Kerberos, set spark.hadoop.hadoop.security.authentication=kerberos"


@pytest.mark.parametrize(("knows", "sentence"), [(True, NO_TICKET), (False, NO_KERBEROS)], ids=["ticket", "setting"])
def test_what_is_missing_is_told(
    make_fleet: MakeFleet, settings: Mapping[str, object], knows: bool, sentence: str
) -> None:
    fleet = make_fleet(30, **{name: value for name, value in settings.items() if knows or "security" not in name})
    fleet.configure("w1")
    assert sentence in one_line(command(fleet, "validate", fails=True))
    fleet.start("w1")
    eventually("a worker says it", lambda: sentence in fleet.log("w1"), 120, fleet.logs)


@pytest.mark.parametrize(
    ("principal", "more"),
    [("nobody", {}), ("lake", {"spark.driver.extraJavaOptions": "-Djava.security.krb5.conf=/no/such/file"})],
    ids=["keytab without the key", "realm that Java does not know"],
)
def test_a_login_that_cannot_succeed_ends_a_worker_with_status_2(
    make_fleet: MakeFleet, settings: Mapping[str, object], keytab: Path, principal: str, more: Mapping[str, str]
) -> None:
    login = {"spark.kerberos.principal": f"{principal}@{REALM}", "spark.kerberos.keytab": str(keytab)}
    fleet = make_fleet(30, **{**settings, **more}, **login)
    fleet.configure("w1")
    sentence = NO_TICKET if principal == "nobody" else f"Kerberos: {principal}@{REALM} cannot log in: "
    assert sentence in one_line(command(fleet, "validate", fails=True))
    worker = fleet.start("w1")
    assert worker.wait(120) == 2
    assert f"Kerberos: {principal}@{REALM} cannot log in: " in fleet.log("w1")


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    return " ".join((result.stdout + result.stderr).split())
