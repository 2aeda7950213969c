"""Fleets for fault tests, and tables with a driver in the test's Spark session."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from sink.hudi.lock import TableLocks
from tests.fleet import Fleet, produce
from tests.integration import errors_kit
from tests.integration.sinktable import make_settings
from tests.integration.table_kit import METADATA as METADATA
from tests.integration.table_kit import Driver, connected, table_settings
from tests.integration.upsert_kit import Upserts
from tests.registry_kit import RegistryServer

PARTITIONS = 3
RECORDS = 9000

MakeFleet = Callable[..., Fleet]
MakeDriver = Callable[..., Driver]
MakeSink = Callable[..., errors_kit.Sink]
Open = Callable[..., Upserts]


@pytest.fixture
def make_fleet(tmp_path: Path, chroot: str, kafka, topic) -> Iterator[MakeFleet]:
    """Makes a fleet over a topic that already holds `records` records, spread evenly."""
    fleets: list[Fleet] = []

    def make(records: int = RECORDS, zookeeper: str = "", name: str = "", **settings: object) -> Fleet:
        if not name:
            name = topic(partitions=PARTITIONS)
            produce(kafka.address, name, records, PARTITIONS)
        directory = tmp_path / f"fleet{len(fleets)}"
        fleet_settings = {"hoodie.metadata.enable": False, **settings}
        fleets.append(Fleet(directory, zookeeper or chroot, kafka.address, name, fleet_settings))
        return fleets[-1]

    yield make
    for started in fleets:
        started.close()


@pytest.fixture
def zookeeper_client(zookeeper) -> Iterator[KazooClient]:
    with connected(zookeeper.address) as client:
        yield client


@pytest.fixture
def make_driver(spark: SparkSession, zookeeper_client: KazooClient, zookeeper, tmp_path: Path) -> MakeDriver:
    """Makes a driver of a table in `tmp_path`. A second one is like another worker's, but in the same JVM."""

    def make(**more: str) -> Driver:
        driver = Driver(spark, table_settings(tmp_path / "table", zookeeper.address, **more), zookeeper_client)
        driver.table.ensure()
        return driver

    return make


@pytest.fixture
def make_sink(
    spark: SparkSession, kafka, zookeeper, zookeeper_client: KazooClient, topic, tmp_path: Path
) -> Iterator[MakeSink]:
    """Makes a topic with the given records in each partition, and a sink that tolerates the bad ones."""
    sinks: list[errors_kit.Sink] = []

    def make(*partitions: Sequence[errors_kit.Record], ddl: str = errors_kit.DDL, **more: str) -> errors_kit.Sink:
        name = topic(len(partitions))
        for partition, records in enumerate(partitions):
            errors_kit.produce(kafka.address, name, records, partition)
        sink_settings = {
            "zookeeper__connect": zookeeper.address,
            "sink__name": name,
            "log__dir": str(tmp_path),
            "target__table__name": name,
            "errors__tolerance": "all",
            "hoodie__metadata__enable": "false",
            **more,
        }
        settings = make_settings(tmp_path, kafka.address, name, ddl, **sink_settings)
        sinks.append(errors_kit.Sink(spark, settings, zookeeper_client, name))
        return sinks[-1]

    yield make
    for open_sink in sinks:
        open_sink.table.stop_heartbeats()


@pytest.fixture(scope="session")
def registry_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real schema registry, for tests of the group `registry`, each with topics of its own."""
    if running_url := os.environ.get("TEST_REGISTRY"):
        yield running_url
    else:
        with RegistryServer(tmp_path_factory.mktemp("registry")) as server:
            yield server.url


@pytest.fixture
def open_upserts(spark, kafka, zookeeper, topic, tmp_path: Path) -> Iterator[Open]:
    """Opens one table, each time with other settings of its sink."""
    name = topic()
    with connected(zookeeper.address) as client:
        opened: list[Upserts] = []

        def make(ddl: str = "id BIGINT, at BIGINT, number INT", **more: str) -> Upserts:
            opened.append(Upserts(spark, client, tmp_path / "sink", kafka.address, name, ddl=ddl, **more))
            opened[-1].locks = TableLocks(client, opened[-1].settings.table.lock)  # type: ignore[attr-defined]
            return opened[-1].go_on_as(opened[-2]) if opened[:-1] else opened[-1]

        yield make
        for upserts in opened:
            upserts.table.stop_heartbeats()
