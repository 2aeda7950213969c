"""Fleets for fault tests, and tables with a driver in the session of the test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from tests.fleet import Fleet, produce
from tests.integration import errors_kit
from tests.integration.sinktable import make_settings
from tests.integration.table_kit import Driver, connected, settings
from tests.registry_kit import RegistryServer

PARTITIONS = 3
RECORDS = 9000

METADATA = {"hoodie.metadata.enable": True}
"""The default, which takes a third of the work of a young table: fleets whose tests say nothing of it go without."""

MakeFleet = Callable[..., Fleet]
MakeDriver = Callable[..., Driver]
MakeSink = Callable[..., errors_kit.Sink]


@pytest.fixture
def fleet(tmp_path: Path, chroot: str, kafka, topic) -> Iterator[MakeFleet]:
    """Makes a fleet over a topic that already holds `records` records, spread evenly."""
    made: list[Fleet] = []

    def make(records: int = RECORDS, zookeeper: str = "", name: str = "", **settings: object) -> Fleet:
        if not name:
            name = topic(partitions=PARTITIONS)
            produce(kafka.address, name, records, PARTITIONS)
        directory = tmp_path / f"fleet{len(made)}"
        given = {"hoodie.metadata.enable": False, **settings}
        made.append(Fleet(directory, zookeeper or chroot, kafka.address, name, given))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def zookeeper_client(zookeeper) -> Iterator[KazooClient]:
    with connected(zookeeper.address) as client:
        yield client


@pytest.fixture
def make_driver(spark: SparkSession, zookeeper_client: KazooClient, zookeeper, tmp_path: Path) -> MakeDriver:
    """A driver of a table in `tmp_path`; a second one is as another worker's, but for the JVM."""

    def make(**more: str) -> Driver:
        driver = Driver(spark, settings(tmp_path / "table", zookeeper.address, **more), zookeeper_client)
        driver.table.ensure()
        return driver

    return make


@pytest.fixture
def sink(
    spark: SparkSession, kafka, zookeeper, zookeeper_client: KazooClient, topic, tmp_path: Path
) -> Iterator[MakeSink]:
    """Makes a topic with these records in each of its partitions, and a sink that tolerates what is bad in it."""
    made: list[errors_kit.Sink] = []

    def make(*partitions: Sequence[errors_kit.Record], ddl: str = errors_kit.DDL, **more: str) -> errors_kit.Sink:
        name = topic(len(partitions))
        for partition, records in enumerate(partitions):
            errors_kit.produce(kafka.address, name, records, partition)
        given = {
            "zookeeper__connect": zookeeper.address,
            "sink__name": name,
            "log__dir": str(tmp_path),
            "target__table__name": name,
            "errors__tolerance": "all",
            "hoodie__metadata__enable": "false",
            **more,
        }
        settings = make_settings(tmp_path, kafka.address, name, ddl, **given)
        made.append(errors_kit.Sink(spark, settings, zookeeper_client, name))
        return made[-1]

    yield make
    for each in made:
        each.table.stop_heartbeats()


@pytest.fixture(scope="session")
def registry_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real schema registry, for tests of the group `registry`, each with topics of its own."""
    if given := os.environ.get("SINK_TEST_REGISTRY"):
        yield given
    else:
        with RegistryServer(tmp_path_factory.mktemp("registry")) as server:
            yield server.url
