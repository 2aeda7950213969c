"""A rewrite moves no row out of the reach of another writer that deletes the row's table partition meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from kazoo.client import KazooClient

from sink.hudi.client import HudiClient
from sink.hudi.instants import REPLACE
from sink.hudi.table import TableOutcome
from tests.integration.conftest import MakeDriver, Open
from tests.integration.rewrites_kit import At, other_services, service_client
from tests.integration.table_kit import CLUSTERING, by_name
from tests.integration.upsert_kit import INDEXES, ON_READ, assert_rows, change, send

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


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
    other_client = service_client(driver)
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
    other_client = service_client(driver)
    begin = At("Clustering.written", lambda: other_client.client.startCommit(REPLACE))
    services = other_services(driver, zookeeper_client, begin)
    assert "another writer replaces file groups of the table" in by_name(services.run())["clustering"].reason
    assert begin.reached
    assert not other_client.pending_clusterings(), "the plan stays, and keeps other writers from the file groups"
    assert driver.count() == driver.count(metadata=False) == 20
    other_client.close()


def test_a_clustering_whose_plan_somebody_drops_before_it_is_carried_out_says_so(
    make_driver: MakeDriver, zookeeper_client: KazooClient
) -> None:
    driver = make_driver(**CLUSTERING)
    for number in (1, 2):
        driver.land(number)
    other_client = service_client(driver)

    def drop() -> None:
        for instant in set(other_client.pending_clusterings().values()):
            other_client.roll_back_clustering(instant)

    services = other_services(driver, zookeeper_client, At("Clustering.scheduled", drop))
    assert "another worker has completed or dropped the plan" in by_name(services.run())["clustering"].reason
    assert driver.count() == driver.count(metadata=False) == 20
    other_client.close()


@pytest.mark.parametrize("kind", [ON_READ, pytest.param({}, marks=pytest.mark.thorough)], ids=["on read", "on write"])
def test_rows_that_may_move_to_another_table_partition_are_looked_for_beside_no_clustering(
    open_upserts: Open, kafka, kind: dict[str, str]
) -> None:
    """Hudi finds a row's file group by the record index first. Of one that was replaced since it reads no row."""
    more = {**kind, **INDEXES["record"], **CLUSTERING, "partition__field__name": "number"}
    upserts = open_upserts(**more, hoodie__clustering__plan__strategy__single__group__clustering__enabled="true")
    send(kafka.address, upserts.topic, [change(key, 1, number=1) for key in (1, 2)])
    upserts.land((0, 0, 2))
    send(kafka.address, upserts.topic, [change(1, 2, number=1), change(3, 3, number=1), change(2, 4, number=2)])
    instant = upserts.begin()
    written = upserts.write(instant, (0, 2, 5))
    alone = [stat for stat in written.stats if json.loads(stat)["prevCommit"] == "null"]
    assert alone, "the transaction adds no file group"
    assert by_name(upserts.table.services())["clustering"].instant
    # As if the clustering had been completed between Hudi's two looks: the transaction changes no file group of it.
    assert upserts.complete(instant, replace(written, stats=alone)) is TableOutcome.CONFLICT
    upserts.table.roll_back(instant)
    upserts.land((0, 2, 5))

    other_instant = upserts.hudi.begin({})
    clustering = by_name(upserts.table.services())["clustering"]
    assert "another writer changes rows of the table" in clustering.reason
    assert clustering.since
    upserts.hudi.heartbeats.stop(other_instant)
    assert by_name(upserts.table.services())["clustering"].instant, "a dead writer blocks it"
    assert_rows(upserts, {1: {"at": 2, "number": 1}, 2: {"at": 4, "number": 2}, 3: {"at": 3, "number": 1}})
