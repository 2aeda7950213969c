"""The sink takes over a table of Spark SQL, and other writers change it between the sink's commits."""

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
from sink.operations.reset_writer import live_workers
from tests.fleet import Fleet
from tests.fleet import produce as produce_events
from tests.integration.commands_kit import command
from tests.integration.conftest import METADATA, PARTITIONS, MakeFleet
from tests.integration.sinktable import make_settings, produce
from tests.integration.table_kit import checkpoint, connected
from tests.integration.test_adoption import ExistingTableLanding
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

COUNT = 30
DDL = "id bigint, kind string, amount double, region string"
ORIGIN = "_kafka_topic string, _kafka_partition int, _kafka_offset bigint, _kafka_timestamp timestamp"


@dataclass(frozen=True)
class TableSpec:
    """Keys, partition columns and properties with which Spark SQL makes the table."""

    keys: str = "id"
    columns: str = ""
    properties: str = ""


NO_STATISTICS = "'hoodie.metadata.index.column.stats.enable'='false'"
INDEXED = f"'hoodie.metadata.record.index.enable'='true', {NO_STATISTICS}"


class Shared(ExistingTableLanding):
    """A table that Spark SQL has made with five rows, and a sink that has not read it yet."""

    def __init__(self, spark: SparkSession, settings: Any, client: KazooClient, spec: TableSpec, topic: str) -> None:
        super().__init__(spark, settings, client)
        self.spec, self.topic, self.sql = spec, topic, settings.table_name
        self._set_writer_options()
        properties = ", ".join(filter(None, (f"type='cow', primaryKey='{spec.keys}'", spec.properties)))
        partitioned_by = f"PARTITIONED BY ({spec.columns})" if spec.columns else ""
        # Spark puts partition columns last.
        partition_columns = spec.columns.split(",")
        columns = ", ".join(
            sorted(f"{DDL}, {ORIGIN}".split(", "), key=lambda column: column.split()[0] in partition_columns)
        )
        self.run(
            f"CREATE TABLE {self.sql} ({columns}) USING hudi TBLPROPERTIES ({properties}) {partitioned_by}"
            f" LOCATION '{settings.base_path}'"
        )
        self.insert(1000, 5)

    def _set_writer_options(self) -> None:
        """Sets a lock that suffices in one process and takes no time. `test_table` covers the table's lock."""
        options = {
            "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
            "hoodie.write.lock.provider": IN_PROCESS_LOCK,
            "hoodie.clean.failed.writes.policy": "LAZY",
            "hoodie.time.generator.max_expected_clock_skew_ms": "1",
            "hoodie.index.type": "RECORD_INDEX" if "record.index" in self.spec.properties else "SIMPLE",
        }
        for name, value in options.items():
            self.spark.conf.set(name, value)

    def run(self, statement: str) -> None:
        self.spark.sql(statement).collect()

    def insert(self, first: int, count: int) -> None:
        values = {"id": f"{first} + id", "kind": "'theirs'", "amount": "0.5d", "region": "'r' || id % 2"}
        own_columns = ", ".join(f"{value} AS {name}" for name, value in values.items())
        null_columns = ", ".join(f"cast(null as {kind}) AS {name}" for name, kind in map(str.split, ORIGIN.split(", ")))
        frame = self.spark.range(0, count, 1, 1).selectExpr(*f"{own_columns}, {null_columns}".split(", "))
        frame.select(self.spark.table(self.sql).drop(*META).columns).createOrReplaceTempView("new_rows")
        self.run(f"INSERT INTO {self.sql} SELECT * FROM new_rows")

    def row_counts(self, where: str = "true") -> list[int]:
        """Returns Spark's row counts with the metadata table and its indexes, and without."""
        return [self.read(metadata).where(where).count() for metadata in (True, False)]

    def by_rust(self) -> pa.Table:
        batches = HudiTableBuilder.from_base_uri(Path(self.settings.base_path).as_uri()).build().read()
        return pa.Table.from_batches(batches)

    def indexes(self) -> set[str]:
        text = Path(self.settings.base_path, ".hoodie", "hoodie.properties").read_text()
        [partitions] = re.findall(r"^hoodie\.table\.metadata\.partitions=(.*)$", text, re.MULTILINE)
        return set(partitions.split(","))

    def indexed_keys(self) -> int:
        """Returns the number of keys in the record index."""
        metadata = self.spark.read.format("hudi").load(f"{self.settings.base_path}/.hoodie/metadata")
        return metadata.where("type = 5").count()


META = [f"_hoodie_{name}" for name in ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")]
MakeShared = Callable[[TableSpec], Shared]


@pytest.fixture
def make_shared(spark: SparkSession, kafka: Any, zookeeper: Any, topic: Any, tmp_path: Path) -> Iterator[MakeShared]:
    with connected(zookeeper.address) as client:

        def make(spec: TableSpec) -> Shared:
            name = topic()
            events = [
                {"id": number, "kind": f"k{number % 3}", "amount": number / 4, "region": f"r{number % 2}"}
                for number in range(3 * COUNT)
            ]
            produce(kafka.address, name, [json.dumps(event).encode() for event in events])
            more = {"zookeeper__connect": zookeeper.address, "record__key__fields": spec.keys}
            if spec.columns:
                more["partition__field__name"] = spec.columns
            settings = make_settings(tmp_path, kafka.address, name, DDL, target__table__name=f"shared_{name}", **more)
            return Shared(spark, settings, client, spec, name)

        yield make


@pytest.mark.thorough
def test_a_table_of_spark_sql_with_a_record_index_is_shared_with_everything_that_spark_sql_does(
    make_shared: MakeShared,
) -> None:
    shared = make_shared(TableSpec(columns="region", properties=INDEXED))
    shared.table.ensure()
    indexes_before = shared.indexes()
    shared.land(1, shared.topic, 0, COUNT)
    assert shared.row_counts() == [5 + COUNT] * 2
    # Each statement finds the sink's rows by their keys, and the rows from before.
    shared.run(f"UPDATE {shared.sql} SET amount = 99 WHERE id IN (3, 4, 1001)")
    assert shared.row_counts("amount = 99") == [3, 3]
    shared.run(f"DELETE FROM {shared.sql} WHERE id IN (5, 1002)")
    shared.insert(2000, 2)
    assert shared.row_counts() == [5 + COUNT] * 2
    source = "SELECT id, 77.0d AS amount, 'r' || id % 2 AS region FROM VALUES (7L), (8L) AS n(id)"
    condition = "t.id = s.id AND t.region = s.region"
    shared.run(
        f"MERGE INTO {shared.sql} t USING ({source}) s ON {condition} WHEN MATCHED THEN UPDATE SET t.amount = s.amount"
    )
    assert shared.row_counts("amount = 77") == [2, 2]
    shared.land(2, shared.topic, COUNT, 2 * COUNT)
    shared.run(f"CALL run_clustering(table => '{shared.sql}')")
    shared.land(3, shared.topic, 2 * COUNT, 3 * COUNT)
    shared.run(f"CALL run_clean(table => '{shared.sql}', retain_commits => 1)")
    shared.table.services()
    assert shared.row_counts() == [5 + 3 * COUNT] * 2
    assert shared.row_counts("id = 3 AND amount = 99") == shared.row_counts(f"id = {3 * COUNT - 1}") == [1, 1]
    rows = shared.by_rust()
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        [counts] = connection.sql("SELECT count(*), count(DISTINCT id) FROM rows").fetchall()
    assert counts == (5 + 3 * COUNT,) * 2
    assert shared.indexes() == indexes_before == {"files", "record_index"}
    assert shared.indexed_keys() == 5 + 3 * COUNT
    assert shared.table.view().checkpoint == checkpoint(3)


@pytest.mark.thorough
def test_a_table_of_spark_sql_with_several_keys_and_partition_columns_is_taken_over(make_shared: MakeShared) -> None:
    shared = make_shared(TableSpec("id,kind", "kind,region", NO_STATISTICS))
    shared.table.ensure()
    shared.land(1, shared.topic, 0, COUNT)
    shared.run(f"UPDATE {shared.sql} SET amount = 99 WHERE id IN (3, 4, 1001)")
    shared.run(f"DELETE FROM {shared.sql} WHERE id IN (5, 1002)")
    shared.land(2, shared.topic, COUNT, 2 * COUNT)
    assert shared.row_counts() == [3 + 2 * COUNT] * 2
    assert shared.row_counts("amount = 99") == [3, 3]


def beside(first: Fleet, second: Fleet) -> Fleet:
    """Returns the second fleet as another sink of the first one's table."""
    base_path = first.settings.get("target.base.path", str(first.table))
    overrides = {"sink.name": "second", "target.base.path": base_path, "target.table.name": first.name}
    second.settings = {**first.settings, **overrides}
    second.name, second.table, second.root = "second", first.table, "/sink/second"
    second.reconnect()
    return second


def both_land_though_a_coordinator_is_killed(first: Fleet, second: Fleet) -> None:
    """Lands 1,200 records of each. The second loses its coordinator right after PREPARED; `a1` and `b2` live on."""
    first.start("a1")
    second.start("b1", "Write:PREPARED.after=kill")
    second.wait_fired("Write:PREPARED.after")
    second.start("b2")
    ends = dict.fromkeys(range(PARTITIONS), 400)
    first.wait_landed(ends)
    second.wait_landed(ends)
    first.assert_exactly_once(2400)
    second.assert_exactly_once(2400)


def test_two_sinks_of_one_table_lose_a_coordinator_and_then_the_table_is_restored(
    spark: SparkSession, make_fleet: MakeFleet
) -> None:
    first = make_fleet(records=1200, **METADATA)
    second = beside(first, make_fleet(records=1200))
    both_land_though_a_coordinator_is_killed(first, second)
    first.workers["a1"].kill()
    # By completion time: Hudi restores by it, and fails if an older instant was completed later.
    completed = [path.name.split("_") for path in (first.table / ".hoodie" / "timeline").glob("*_*.commit")]
    savepoint = max(completed, key=lambda name: name[1])[0]
    produce_events(second.kafka, second.topic, 300, PARTITIONS, first=1200)
    second.wait_landed(dict.fromkeys(range(PARTITIONS), 500))
    second.workers["b2"].kill()

    # The restore removes the second sink's commits since, one or two: the second halts, the first goes on.
    spark.sql(f"CREATE TABLE twice USING hudi LOCATION '{first.table}'")
    spark.sql(f"CALL create_savepoint(table => 'twice', commit_time => '{savepoint}')").collect()
    spark.sql(f"CALL rollback_to_savepoint(table => 'twice', instant_time => '{savepoint}')").collect()
    spark.sql("DROP TABLE twice")
    second.start("b3")
    halt = second.wait("a halt", lambda view: view.halt is not None).halt
    assert halt is not None
    assert "restored" in halt.reason
    produce_events(first.kafka, first.topic, 300, PARTITIONS, first=1200)
    first.start("a2")
    first.wait_landed(dict.fromkeys(range(PARTITIONS), 500))
    first.assert_exactly_once(2700)

    second.workers["b3"].kill()
    eventually("its session has ended", lambda: not live_workers(second.client, second.root))
    command(second, "reset", "--to", "checkpoint", "--yes")
    second.start("b4")
    second.wait_landed(dict.fromkeys(range(PARTITIONS), 500))
    second.assert_exactly_once(3000)


@pytest.mark.thorough
def test_a_second_sink_of_a_topic_halts_and_its_records_are_in_the_table_once(make_fleet: MakeFleet) -> None:
    first = make_fleet(records=300)
    second = beside(first, make_fleet(name=first.topic))
    first.start("a1")
    first.wait_landed(dict.fromkeys(range(PARTITIONS), 100))
    second.start("b1")
    halt = second.wait("a halt", lambda view: view.halt is not None).halt
    assert halt is not None
    assert f"sink {first.name} has landed {first.topic}-" in halt.reason
    first.assert_exactly_once(300)
    second.workers["b1"].kill()
    produce_events(first.kafka, first.topic, 300, PARTITIONS, first=300)
    first.wait_landed(dict.fromkeys(range(PARTITIONS), 200))
    first.assert_exactly_once(600)


def test_a_table_with_an_index_that_a_fleet_cannot_update_is_refused(make_shared: MakeShared) -> None:
    spec = TableSpec(columns="region", properties="'hoodie.metadata.record.level.index.enable'='true'")
    shared = make_shared(spec)
    with pytest.raises(TableError, match=r"the table's index: record_index, by partition\."):
        shared.table.ensure()
