"""A rewrite moves no row out of the reach of another writer that deletes the row's table partition meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kazoo.client import KazooClient

from sink.hudi.client import HudiClient
from sink.hudi.instants import REPLACE
from sink.hudi.lock import TableLocks
from sink.hudi.options import service_options
from sink.hudi.table_services import HudiTableServices
from tests.integration.conftest import MakeDriver
from tests.integration.rewrites_kit import At
from tests.integration.table_kit import CLUSTERING, Driver, by_name

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def client_of(driver: Driver) -> HudiClient:
    settings = driver.settings
    avro = driver.schema.avro(settings.table_name)
    return HudiClient(driver.spark, settings.table.store, avro, service_options(settings.table))


def begin_deleting(hudi: HudiClient, partition: str) -> Callable[[], None]:
    """Begins to delete a table partition, as Spark SQL does, up to its commit. Returns what commits."""
    instant = str(hudi.client.startDeletePartitionCommit())
    deletion = hudi.client.deletePartitions(hudi.java_list([partition]), instant)
    statuses, groups = deletion.getWriteStatuses(), deletion.getPartitionToReplaceFileIds()

    def commit() -> None:
        assert hudi.client.commit(instant, statuses, hudi.option(), REPLACE, groups, hudi.option())

    return commit


def test_nothing_is_rewritten_while_another_writer_deletes_a_table_partition(make_driver: MakeDriver) -> None:
    driver = make_driver(**CLUSTERING, partition__field__name="kind")
    for number in (1, 2):
        driver.land(number)
    other_client = client_of(driver)
    commit = begin_deleting(other_client, "kind=a")
    clustering = by_name(driver.table.services())["clustering"]
    assert "another writer replaces file groups of the table" in clustering.reason
    assert clustering.since
    commit()
    assert driver.count() == driver.count(metadata=False) == 0, "the rows of the deleted partition come back"
    for number in (3, 4):
        driver.land(number)
    assert by_name(driver.table.services())["clustering"].instant
    assert driver.count() == driver.count(metadata=False) == 20
    other_client.close()


def test_a_clustering_is_dropped_if_another_writer_begins_to_replace_file_groups_before_its_completion(
    make_driver: MakeDriver, zookeeper_client: KazooClient
) -> None:
    driver = make_driver(**CLUSTERING)
    for number in (1, 2):
        driver.land(number)
    other_client = client_of(driver)
    services = HudiTableServices(
        client_of(driver), driver.settings.table, TableLocks(zookeeper_client, driver.settings.table.lock)
    )
    begin = At("Clustering.written", lambda: other_client.client.startCommit(REPLACE))
    services._failpoints = begin  # type: ignore[assignment]
    assert "another writer replaces file groups of the table" in by_name(services.run())["clustering"].reason
    assert begin.reached
    assert not other_client.pending_clusterings(), "the plan stays, and keeps other writers from the file groups"
    assert driver.count() == driver.count(metadata=False) == 20
    other_client.close()
