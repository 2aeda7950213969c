"""The sink refuses, or waits for, what the docs forbid other writers to do with the table."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from coordination.errors import TableError, Unavailable
from coordination.state.model import Checkpoint, PartitionCheckpoint, Slice, SliceResult
from sink.hudi.options import IN_PROCESS_LOCK
from sink.hudi.shared_lock import LockIdentity
from sink.hudi.table import TableOutcome
from tests.integration.conftest import MakeDriver
from tests.integration.table_kit import Driver, allow, checkpoint

pytestmark = pytest.mark.integration

RETENTION = {
    "hoodie__keep__min__commits": "3",
    "hoodie__keep__max__commits": "4",
    "hoodie__clean__commits__retained": "1",
}


def reading(sink: str, number: int, start: int, end: int, topic_id: str = "topic-id") -> Checkpoint:
    """Returns the checkpoint of a transaction that lands offsets `[start, end)` of the topic `t`."""
    slice_ = Slice("t", 0, start, end, topic_id, 0)
    return replace(
        checkpoint(number),
        sink=sink,
        topics={"t": topic_id},
        ends={slice_.source: PartitionCheckpoint(end, 0)},
        results=(SliceResult(slice_, end - start, 0, 0),),
    )


def land(driver: Driver, committed: Checkpoint) -> TableOutcome:
    [result] = committed.results
    instant = driver.table.begin(committed.number, 1)
    stats = driver.write(instant, result.slice.start, result.slice.size)
    outcome = driver.table.complete(instant, stats, committed, allow)
    if outcome is not TableOutcome.COMPLETED:
        driver.table.roll_back(instant)
    return outcome


def test_offsets_that_a_sink_has_landed_are_landed_by_no_second_one(make_driver: MakeDriver) -> None:
    first, second = make_driver(), make_driver(sink__name="second")
    assert land(first, reading("orders", 1, 0, 10)) is TableOutcome.COMPLETED
    assert land(second, reading("second", 1, 5, 15)) is TableOutcome.LANDED_BY_ANOTHER
    with pytest.raises(TableError, match="sink orders has landed t-0 up to offset 10 into this table, and sink second"):
        second.table.begin(2, 1)
    # A sink that goes on behind the other one repeats nothing, nor does one that reads another topic of that name.
    moved, other_topic = make_driver(sink__name="moved"), make_driver(sink__name="other")
    assert land(moved, reading("moved", 1, 10, 20)) is TableOutcome.COMPLETED
    assert land(other_topic, reading("other", 1, 0, 10, "another-id")) is TableOutcome.COMPLETED
    assert land(first, reading("orders", 2, 10, 20)) is TableOutcome.LANDED_BY_ANOTHER
    assert first.count() == 30


@pytest.mark.thorough
def test_offsets_that_a_sink_landed_long_ago_are_landed_by_no_new_one(make_driver: MakeDriver) -> None:
    first = make_driver(**RETENTION)
    assert land(first, reading("orders", 1, 0, 10)) is TableOutcome.COMPLETED
    for number in range(8):
        first.land_as_another(1000 + 10 * number)
    first.table.services()
    active = {entry.requested for entry in first.table._timeline.snapshot().instants}
    newest = make_driver(sink__name="second", **RETENTION).table
    assert first.table.view().commits_since >= len(active) - 1
    newest.view()
    assert "sink orders has landed t-0" in newest._timeline.others.conflict(reading("second", 1, 5, 15))


def test_a_sink_whose_lock_is_another_ensembles_is_refused_and_an_emptied_ensemble_gets_its_identity_back(
    make_driver: MakeDriver, zookeeper_client: KazooClient
) -> None:
    first, second, third = (make_driver(sink__name=name) for name in ("orders", "second", "third"))
    here, emptied, elsewhere = (LockIdentity(zookeeper_client, f"/{uuid4().hex}/orders") for _ in range(3))
    first.table.share_lock(here)
    first.land(1)
    second.table.share_lock(here)
    with pytest.raises(TableError, match="on another ZooKeeper ensemble or chroot"):
        third.table.share_lock(emptied)
    first.table.share_lock(emptied)
    assert emptied.read() == here.read()
    third.table.share_lock(emptied)
    elsewhere.keep("another")
    with pytest.raises(TableError, match="This ensemble's is another: the sinks of the table would not wait"):
        first.table.share_lock(elsewhere)


def test_a_table_whose_properties_another_writer_has_changed_gets_no_commit(driver: Driver) -> None:
    instant = driver.table.begin(1, 1)
    stats = driver.write(instant, 0)
    set_property(driver, "hoodie.table.recordkey.fields", "id")
    driver.land_as_another(100)
    with pytest.raises(TableError, match=r"changed by another writer: the table's record key: id\. The settings ask"):
        driver.table.complete(instant, stats, checkpoint(1), allow)
    assert driver.table._timeline.state(instant).name == "PENDING"


@pytest.mark.thorough
def test_a_sink_waits_until_an_index_is_dropped_that_its_commits_cannot_update(make_driver: MakeDriver) -> None:
    driver = make_driver(hoodie__metadata__enable="true")
    driver.land(1)
    driver.spark.sql(f"CREATE TABLE indexed USING hudi LOCATION '{driver.settings.base_path}'")
    driver.spark.conf.set("hoodie.write.lock.provider", IN_PROCESS_LOCK)
    try:
        driver.spark.sql("CREATE INDEX by_kind ON indexed USING column_stats (kind) OPTIONS (expr='upper')")
        with pytest.raises(Unavailable, match=r"the table's index: expr_index_by_kind\. .* goes on when it is gone"):
            driver.table.view()
        driver.spark.sql("DROP INDEX by_kind ON indexed")
    finally:
        driver.spark.sql("DROP TABLE indexed")
        driver.spark.conf.unset("hoodie.write.lock.provider")
    driver.land(2)
    assert driver.count() == driver.count(metadata=False) == 20


@pytest.fixture
def driver(make_driver: MakeDriver) -> Driver:
    return make_driver()


def set_property(driver: Driver, name: str, value: str) -> None:
    """Changes the table's properties, as Hudi's command line does."""
    hudi = driver._rows
    properties = hudi.jvm.java.util.Properties()
    properties.setProperty(name, value)
    hudi.java.common.table.HoodieTableConfig.update(hudi.storage(), hudi.path(".hoodie"), properties)
