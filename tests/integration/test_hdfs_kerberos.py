"""Fleets and commands on an HDFS cluster that asks for Kerberos tickets."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.integration.commands_kit import command, every_command_works
from tests.integration.conftest import METADATA, PARTITIONS, RECORDS, MakeFleet
from tests.storage.hdfs_cluster import SERVICE, HdfsCluster, a_cluster
from tests.storage.kdc import REALM, KeyDistributionCentre, missing_program

pytestmark = [
    pytest.mark.integration,
    pytest.mark.thorough,
    pytest.mark.timeout(900),
    pytest.mark.skipif(missing_program() is not None, reason=f"no {missing_program()} here: install krb5-kdc"),
]
USER = f"lake@{REALM}"


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


def test_a_ticket_is_enough_though_the_coordinator_is_killed(
    make_fleet: MakeFleet,
    settings: Mapping[str, object],
    realm: KeyDistributionCentre,
    keytab: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KRB5CCNAME", str(realm.ticket("lake", keytab)))
    fleet = make_fleet(**METADATA, **settings)
    fleet.start("w1", "Complete.after=kill")
    fleet.coordinator()
    fleet.start("w2")
    fleet.wait_fired("Complete.after")
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS))
    fleet.assert_exactly_once(RECORDS)


def test_somebody_without_a_ticket_is_told_so(make_fleet: MakeFleet, settings: Mapping[str, object]) -> None:
    fleet = make_fleet(30, **settings)
    fleet.configure("w1")
    result = command(fleet, "validate", fails=True)
    print(result.stdout, result.stderr)
    assert "kinit" in result.stdout + result.stderr
