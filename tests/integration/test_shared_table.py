"""A table that Spark SQL made is taken over, and others go on changing it between the sink's commits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hudi import HudiTableBuilder
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from coordination.errors import TableError
from sink.hudi.options import IN_PROCESS_LOCK
from tests.fleet import Fleet
from tests.fleet import produce as produce_events
from tests.integration.conftest import METADATA, PARTITIONS, MakeFleet
from tests.integration.sinktable import make_settings, produce
from tests.integration.table_kit import checkpoint, connected
from tests.integration.test_adoption import Taken

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

COUNT = 30
DDL = "id bigint, kind string, amount double, region string"
ORIGIN = "_kafka_topic string, _kafka_partition int, _kafka_offset bigint, _kafka_timestamp timestamp"


@dataclass(frozen=True)
class Shape:
    """How somebody made the table."""

    keys: str = "id"
    columns: str = ""
    properties: str = ""


NO_STATISTICS = "'hoodie.metadata.index.column.stats.enable'='false'"
INDEXED = f"'hoodie.metadata.record.index.enable'='true', {NO_STATISTICS}"


class Shared(Taken):
    """A table made by Spark SQL with five rows of its maker's, and a sink that has not looked at it yet."""

    def __init__(self, spark: SparkSession, given: Any, client: KazooClient, shape: Shape, topic: str) -> None:
        super().__init__(spark, given, client)
        self.shape, self.topic, self.sql = shape, topic, given.table_name
        self._queue()
        properties = ", ".join(filter(None, (f"type='cow', primaryKey='{shape.keys}'", shape.properties)))
        parted = f"PARTITIONED BY ({shape.columns})" if shape.columns else ""
        # As Spark has it: columns that partition a table stand last.
        last = shape.columns.split(",")
        columns = ", ".join(sorted(f"{DDL}, {ORIGIN}".split(", "), key=lambda column: column.split()[0] in last))
        self.run(
            f"CREATE TABLE {self.sql} ({columns}) USING hudi TBLPROPERTIES ({properties}) {parted}"
            f" LOCATION '{given.base_path}'"
        )
        self.insert(1000, 5)

    def _queue(self) -> None:
        """In one process this lock will do, and takes no time. Others take the table's: see `test_table`."""
        options = {
            "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
            "hoodie.write.lock.provider": IN_PROCESS_LOCK,
            "hoodie.clean.failed.writes.policy": "LAZY",
            "hoodie.time.generator.max_expected_clock_skew_ms": "1",
            "hoodie.index.type": "RECORD_INDEX" if "record.index" in self.shape.properties else "SIMPLE",
        }
        for name, value in options.items():
            self.spark.conf.set(name, value)

    def run(self, statement: str) -> None:
        self.spark.sql(statement).collect()

    def insert(self, first: int, count: int) -> None:
        values = {"id": f"{first} + id", "kind": "'theirs'", "amount": "0.5d", "region": "'r' || id % 2"}
        named = ", ".join(f"{value} AS {name}" for name, value in values.items())
        empty = ", ".join(f"cast(null as {kind}) AS {name}" for name, kind in map(str.split, ORIGIN.split(", ")))
        frame = self.spark.range(0, count, 1, 1).selectExpr(*f"{named}, {empty}".split(", "))
        frame.select(self.spark.table(self.sql).drop(*META).columns).createOrReplaceTempView("given")
        self.run(f"INSERT INTO {self.sql} SELECT * FROM given")

    def found(self, where: str = "true") -> list[int]:
        """Rows as Spark sees them with the metadata table and its indexes, and without."""
        return [self.read(metadata).where(where).count() for metadata in (True, False)]

    def by_rust(self) -> pa.Table:
        batches = HudiTableBuilder.from_base_uri(Path(self.settings.base_path).as_uri()).build().read()
        return pa.Table.from_batches(batches)

    def indexes(self) -> set[str]:
        text = Path(self.settings.base_path, ".hoodie", "hoodie.properties").read_text()
        [named] = re.findall(r"^hoodie\.table\.metadata\.partitions=(.*)$", text, re.MULTILINE)
        return set(named.split(","))

    def indexed(self) -> int:
        """Keys in the record index."""
        metadata = self.spark.read.format("hudi").load(f"{self.settings.base_path}/.hoodie/metadata")
        return metadata.where("type = 5").count()


META = [f"_hoodie_{name}" for name in ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")]
MakeShared = Callable[[Shape], Shared]


@pytest.fixture
def shared(spark: SparkSession, kafka: Any, zookeeper: Any, topic: Any, tmp_path: Path) -> Iterator[MakeShared]:
    with connected(zookeeper.address) as client:

        def make(shape: Shape) -> Shared:
            name = topic()
            values = [{"id": n, "kind": f"k{n % 3}", "amount": n / 4, "region": f"r{n % 2}"} for n in range(3 * COUNT)]
            produce(kafka.address, name, [json.dumps(value).encode() for value in values])
            more = {"zookeeper__connect": zookeeper.address, "record__key__fields": shape.keys}
            if shape.columns:
                more["partition__field__name"] = shape.columns
            given = make_settings(tmp_path, kafka.address, name, DDL, target__table__name=f"shared_{name}", **more)
            return Shared(spark, given, client, shape, name)

        yield make


@pytest.mark.thorough
def test_a_table_of_spark_sql_with_a_record_index_is_shared_with_everything_that_spark_sql_does(
    shared: MakeShared,
) -> None:
    it = shared(Shape(columns="region", properties=INDEXED))
    it.table.ensure()
    had = it.indexes()
    it.land(1, it.topic, 0, COUNT)
    assert it.found() == [5 + COUNT] * 2
    # Each finds rows of the sink by their keys, and those that were there before.
    it.run(f"UPDATE {it.sql} SET amount = 99 WHERE id IN (3, 4, 1001)")
    assert it.found("amount = 99") == [3, 3]
    it.run(f"DELETE FROM {it.sql} WHERE id IN (5, 1002)")
    it.insert(2000, 2)
    assert it.found() == [5 + COUNT] * 2
    source = "SELECT id, 77.0d AS amount, 'r' || id % 2 AS region FROM VALUES (7L), (8L) AS n(id)"
    on = "t.id = s.id AND t.region = s.region"
    it.run(f"MERGE INTO {it.sql} t USING ({source}) s ON {on} WHEN MATCHED THEN UPDATE SET t.amount = s.amount")
    assert it.found("amount = 77") == [2, 2]
    it.land(2, it.topic, COUNT, 2 * COUNT)
    it.run(f"CALL run_clustering(table => '{it.sql}')")
    it.land(3, it.topic, 2 * COUNT, 3 * COUNT)
    it.run(f"CALL run_clean(table => '{it.sql}', retain_commits => 1)")
    it.table.services()
    assert it.found() == [5 + 3 * COUNT] * 2
    assert it.found("id = 3 AND amount = 99") == it.found(f"id = {3 * COUNT - 1}") == [1, 1]
    rows = it.by_rust()
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        [found] = connection.sql("SELECT count(*), count(DISTINCT id) FROM rows").fetchall()
    assert found == (5 + 3 * COUNT,) * 2
    assert it.indexes() == had == {"files", "record_index"}
    assert it.indexed() == 5 + 3 * COUNT
    assert it.table.view().checkpoint == checkpoint(3)


@pytest.mark.thorough
def test_a_table_of_spark_sql_with_several_keys_and_partition_columns_is_taken_over(shared: MakeShared) -> None:
    it = shared(Shape("id,kind", "kind,region", NO_STATISTICS))
    it.table.ensure()
    it.land(1, it.topic, 0, COUNT)
    it.run(f"UPDATE {it.sql} SET amount = 99 WHERE id IN (3, 4, 1001)")
    it.run(f"DELETE FROM {it.sql} WHERE id IN (5, 1002)")
    it.land(2, it.topic, COUNT, 2 * COUNT)
    assert it.found() == [3 + 2 * COUNT] * 2
    assert it.found("amount = 99") == [3, 3]


def beside(first: Fleet, second: Fleet) -> Fleet:
    """The second, as another sink of the first one's table."""
    base = first.settings.get("target.base.path", str(first.table))
    names = {"sink.name": "second", "target.base.path": base, "target.table.name": first.name}
    second.settings = {**first.settings, **names}
    second.name, second.table, second.root = "second", first.table, "/sink/second"
    second.reconnect()
    return second


def both_land_though_a_coordinator_is_killed(first: Fleet, second: Fleet) -> None:
    """1,200 records of each; one loses its coordinator right after PREPARED. Workers `a1` and `b2` live on."""
    first.start("a1")
    second.start("b1", "Write:PREPARED.after=kill")
    second.wait_fired("Write:PREPARED.after")
    second.start("b2")
    both = dict.fromkeys(range(PARTITIONS), 400)
    first.wait_landed(both)
    second.wait_landed(both)
    first.assert_exactly_once(2400)
    second.assert_exactly_once(2400)


def test_two_sinks_of_one_table_lose_a_coordinator_and_then_the_table_is_restored(
    spark: SparkSession, fleet: MakeFleet
) -> None:
    first = fleet(records=1200, **METADATA)
    second = beside(first, fleet(records=1200))
    both_land_though_a_coordinator_is_killed(first, second)
    first.workers["a1"].kill()
    # By completion: Hudi restores by it, and fails where an instant is older and was completed later.
    completed = [path.name.split("_") for path in (first.table / ".hoodie" / "timeline").glob("*_*.commit")]
    kept = max(completed, key=lambda name: name[1])[0]
    produce_events(second.kafka, second.topic, 300, PARTITIONS, first=1200)
    second.wait_landed(dict.fromkeys(range(PARTITIONS), 500))
    second.workers["b2"].kill()

    # What the second sink committed since, in one transaction or in two, is taken away: it halts, the first goes on.
    spark.sql(f"CREATE TABLE twice USING hudi LOCATION '{first.table}'")
    spark.sql(f"CALL create_savepoint(table => 'twice', commit_time => '{kept}')").collect()
    spark.sql(f"CALL rollback_to_savepoint(table => 'twice', instant_time => '{kept}')").collect()
    spark.sql("DROP TABLE twice")
    second.start("b3")
    halt = second.wait("a halt", lambda view: view.halt is not None).halt
    assert halt is not None
    assert "restored" in halt.reason
    produce_events(first.kafka, first.topic, 300, PARTITIONS, first=1200)
    first.start("a2")
    first.wait_landed(dict.fromkeys(range(PARTITIONS), 500))
    first.assert_exactly_once(2700)


def test_a_table_with_an_index_that_a_fleet_cannot_update_is_refused(shared: MakeShared) -> None:
    shape = Shape(columns="region", properties="'hoodie.metadata.record.level.index.enable'='true'")
    it = shared(shape)
    with pytest.raises(TableError, match="the table's index: record_index, by partition; "):
        it.table.ensure()
