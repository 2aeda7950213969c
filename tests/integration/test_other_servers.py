"""A fleet on the newest ZooKeeper and the oldest Kafka that the docs name lands every record exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import topics
from tests.fleet import Fleet, produce
from tests.integration.conftest import PARTITIONS, RECORDS
from tests.storage.other_servers import ZOOKEEPER, NewestZooKeeper, OldestKafka

pytestmark = [pytest.mark.integration, pytest.mark.thorough, pytest.mark.timeout(600)]


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[NewestZooKeeper]:
    with NewestZooKeeper(tmp_path / "zookeeper") as server:
        yield server


def test_a_killed_coordinator_costs_nothing(zookeeper: NewestZooKeeper, tmp_path: Path) -> None:
    with OldestKafka(tmp_path / "kafka", zookeeper.address) as kafka, topics(kafka.address) as topic:
        name = topic(partitions=PARTITIONS)
        produce(kafka.address, name, RECORDS, PARTITIONS)
        fleet = Fleet(tmp_path / "fleet", zookeeper.address, kafka.address, name)
        try:
            fleet.lose_coordinator()
            fleet.wait_landed(dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS))
            fleet.assert_exactly_once(RECORDS)
            assert version_of(fleet) == ZOOKEEPER
        finally:
            fleet.close()


def version_of(fleet: Fleet) -> str:
    """Returns the version that the server tells."""
    return str(fleet.client.command(b"srvr")).partition("version: ")[2].partition("-")[0]
