"""A sink continues where another writer ended, in a table that Hudi's own writer filled.

The tests write another writer's offsets with the classes of Hudi that it uses, where the bundle has them, through the
option by which a Spark job puts its own entries into a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from kazoo.client import KazooClient
from pyspark.sql import DataFrame, SparkSession

from coordination.errors import TableError
from coordination.state.model import TopicPartition
from sink import cli
from sink.audit.report import FindingKind
from sink.config import Settings
from sink.hudi.lock import TableLocks
from sink.hudi.table import Table
from sink.operations.adoption import (
    CONNECT,
    STREAMER_V1,
    STREAMER_V2,
    CommitOffsets,
    Tool,
    choose,
    offsets_of,
    read_foreign_offsets,
)
from sink.write.engines.engine import ArrowEngine
from sink.write.rows.row_spec import table_schema
from tests.fleet import SCHEMA, Fleet, produce
from tests.integration.conftest import PARTITIONS, MakeFleet
from tests.integration.sinktable import make_settings
from tests.integration.table_kit import METADATA, connected
from tests.integration.test_partitioning import Landing

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group(__file__)]

RECORDS = 3000
REACHED = {0: 700, 1: 400, 2: 1000}
"""Offsets up to which the other writer has read each partition: the last one to its end."""
ENDS = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS + 100)
PROVENANCE = "_kafka_topic string, _kafka_partition int, _kafka_offset bigint, _kafka_timestamp timestamp"

Sink = Callable[..., tuple[int, str]]


@pytest.fixture
def sink(capsys: pytest.CaptureFixture[str]) -> Sink:
    def run(*arguments: object) -> tuple[int, str]:
        code = cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


def hudi_class(spark: SparkSession, name: str) -> Any:
    """Returns a class of Hudi's bundle."""
    java_object = spark.sparkContext._jvm
    for part in f"org.apache.hudi.common.{name}".split("."):
        java_object = getattr(java_object, part)
    return java_object


def read_so_far(spark: SparkSession, fleet: Fleet) -> DataFrame:
    """Returns the records before `REACHED`, as another reader reads them."""
    values: list[tuple[str]] = []
    consumer = Consumer({"bootstrap.servers": fleet.kafka, "group.id": "another", "enable.auto.commit": False})
    with closing(consumer):
        for partition, end in REACHED.items():
            consumer.assign([KafkaPartition(fleet.topic, partition, 0)])
            wanted = len(values) + end
            while len(values) < wanted:
                values += [(message.value().decode(),) for message in consumer.consume(wanted - len(values), 1.0)]
    rows = spark.createDataFrame(values, "value string")
    return rows.selectExpr(f"from_json(value, '{SCHEMA}') as v").select("v.*")


def write_as_another(
    frame: DataFrame,
    table: Path | str,
    extra: Mapping[str, str],
    operation: str,
    record_key: str = "id",
    **options: object,
) -> None:
    """Commits by Hudi's datasource, with `extra` in the commit's metadata."""
    write_options = {
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.recordkey.field": record_key,
        "hoodie.datasource.write.partitionpath.field": "",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
        "hoodie.datasource.write.operation": operation,
        "hoodie.metadata.enable": "false",
        "hoodie.datasource.write.commitmeta.key.prefix": next(iter(extra), "none").rpartition(".")[0],
        **extra,
        **{name.replace("__", "."): value for name, value in options.items()},
    }
    frame.coalesce(1).write.format("hudi").options(**write_options).mode("append").save(str(table))


def rows(spark: SparkSession, fleet: Fleet) -> DataFrame:
    return spark.read.format("hudi").load(str(fleet.table))


def land_the_rest(fleet: Fleet) -> None:
    """Starts a worker, which lands the records that are there and those that come then."""
    fleet.start("w1")
    fleet.wait_landed(dict.fromkeys(ENDS, RECORDS // PARTITIONS))
    produce(fleet.kafka, fleet.topic, 300, PARTITIONS, first=RECORDS)
    fleet.wait_landed(ENDS)


def config_of(fleet: Fleet) -> Path:
    """Writes the fleet's settings into a file, before there is a worker."""
    config = fleet.directory / "adopt.yaml"
    config.write_text(yaml.safe_dump({**fleet._defaults(), **fleet.settings}))
    return config


class ExistingTableLanding(Landing):
    """A sink at a table that exists already, which the sink has not read yet."""

    def __init__(self, spark: SparkSession, settings: Settings, client: KazooClient) -> None:
        self.spark, self.settings = spark, settings
        self.schema = table_schema(settings.table, settings.records)
        self.table = Table(spark, settings.table, self.schema, TableLocks(client, settings.table.lock))
        self.engine = ArrowEngine(spark, settings.table, settings.records, self.schema)


MakeLanding = Callable[[str, str, Mapping[str, str]], ExistingTableLanding]


@pytest.fixture
def make_landing(spark: SparkSession, kafka: Any, zookeeper: Any, topic: Any, tmp_path: Path) -> Iterator[MakeLanding]:
    """Makes a table of one row with Hudi's writer, and a sink for it: by record keys, partition column and options."""
    with connected(zookeeper.address) as client:

        def make(keys: str, column: str, options: Mapping[str, str]) -> ExistingTableLanding:
            row = spark.sql("SELECT 100L AS id, 'buy' AS kind, 0.5d AS amount, 1700000000000L AS ms")
            write_as_another(row, tmp_path / "table", {}, "insert", record_key=keys, **options)
            more = {"zookeeper__connect": zookeeper.address, "provenance__columns": "false"}
            more |= {"record__key__fields": keys, "hoodie__metadata__enable": "false"}
            if column:
                more |= {"partition__field__name": column, "partition__hive__style": "false"}
            settings = make_settings(tmp_path, kafka.address, topic(), f"{SCHEMA}, ms BIGINT", **more)
            return ExistingTableLanding(spark, settings, client)

        yield make


def test_a_sink_begins_exactly_where_hudi_streamer_ended_and_lands_all_that_follows_once(
    spark: SparkSession, make_fleet: MakeFleet, sink: Sink
) -> None:
    fleet = make_fleet(records=RECORDS, **{"record.key.fields": "id"})
    text = f"{fleet.topic}," + ",".join(f"{partition}:{end}" for partition, end in REACHED.items())
    written = hudi_class(spark, "table.checkpoint.StreamerCheckpointV2")(text).getCheckpointCommitMetadata(None, None)
    write_as_another(read_so_far(spark, fleet), fleet.table, dict(written), "upsert")
    # A commit of its own adds the columns of origin; it has no offsets.
    spark.sql(f"CREATE TABLE streamed USING hudi LOCATION '{fleet.table}'")
    spark.sql(f"ALTER TABLE streamed ADD COLUMNS ({PROVENANCE})")
    config = config_of(fleet)
    code, out = sink("validate", "--config", config)
    assert code == 0, out
    assert "of Hudi Streamer: found offsets, and sink orders has not begun" in out

    code, out = sink("adopt", "--config", config)
    assert code == 0, out
    assert f"has offsets of Hudi Streamer ({STREAMER_V2[0]})" in out
    assert "Nothing was changed" in out
    assert [line.split()[1:] for line in out.splitlines() if line.startswith(fleet.topic)] == [
        ["700", "0", "1,000", "300"],
        ["400", "0", "1,000", "600"],
        ["1,000", "0", "1,000", "0"],
    ]
    assert not [source for source, state in fleet.view().states.items() if state.end]
    code, out = sink("adopt", "--config", config, "--yes")
    assert code == 0, out
    states = fleet.view().states
    assert {source.partition: state.end for source, state in states.items()} == REACHED
    assert "The log has the record before each position" in " ".join(out.split())
    anchors = {source.partition: state.anchor for source, state in states.items()}
    assert {number: anchor.offset + 1 for number, anchor in anchors.items() if anchor is not None} == REACHED
    code, out = sink("validate", "--config", config)
    assert code == 0, out
    assert "has not begun" not in out

    land_the_rest(fleet)
    landed = rows(spark, fleet).where("_kafka_offset is not null")
    landed_offsets = landed.selectExpr("_kafka_partition", "_kafka_offset").collect()
    assert sorted(map(tuple, landed_offsets)) == [(p, offset) for p in REACHED for offset in range(REACHED[p], ENDS[p])]
    assert sorted(row.id for row in rows(spark, fleet).select("id").collect()) == list(range(RECORDS + 300))
    report = fleet.audit()
    assert report.held, report.to_json()
    assert {finding.kind for finding in report.findings} == {FindingKind.OTHERS, FindingKind.BEFORE}

    fleet.workers["w1"].kill()
    fleet.wait("nobody is a member", lambda view: not view.members)
    code, out = sink("adopt", "--config", config, "--yes")
    assert code == 2
    assert "has committed to this table already" in out


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("more", "options", "delete"),
    [
        ({"delete.key.format": "string"}, {}, None),
        (
            {"ordering.field.name": "id", "target.table.type": "merge_on_read", "index.type": "record", **METADATA},
            {"hoodie__table__ordering__fields": "id", "hoodie__datasource__write__table__type": "MERGE_ON_READ"},
            b'{"id": 3, "kind": "buy", "amount": 0.0, "_hoodie_is_deleted": true}',
        ),
    ],
    ids=["copy on write, by the log", "merge on read, ordered by a column"],
)
def test_rows_that_hudi_streamer_upserted_are_changed_from_where_it_ended(
    spark: SparkSession,
    make_fleet: MakeFleet,
    sink: Sink,
    more: Mapping[str, object],
    options: Mapping[str, object],
    delete: bytes | None,
) -> None:
    upsert = {"write.operation": "upsert", "record.key.fields": "id", "provenance.columns": False}
    fleet = make_fleet(records=RECORDS, **upsert, **more)
    text = f"{fleet.topic}," + ",".join(f"{partition}:{end}" for partition, end in REACHED.items())
    written = hudi_class(spark, "table.checkpoint.StreamerCheckpointV2")(text).getCheckpointCommitMetadata(None, None)
    write_as_another(read_so_far(spark, fleet), fleet.table, dict(written), "upsert", **options)
    code, out = sink("adopt", "--config", config_of(fleet), "--yes")
    assert code == 0, out
    changes = {0: b'{"id": 0, "kind": "changed", "amount": 0.0}', 3: delete}
    producer = Producer({"bootstrap.servers": fleet.kafka})
    for key, value in changes.items():
        producer.produce(fleet.topic, value, str(key), partition=0)
    assert producer.flush(60) == 0
    fleet.start("w1")
    fleet.wait_landed({**dict.fromkeys(ENDS, RECORDS // PARTITIONS), 0: RECORDS // PARTITIONS + len(changes)})
    kinds = {row.id: row.kind for row in rows(spark, fleet).select("id", "kind").collect()}
    assert kinds.pop(0) == "changed"
    assert sorted(kinds) == [id for id in range(1, RECORDS) if id != 3]
    assert rows(spark, fleet).count() == RECORDS - 1
    assert fleet.audit().held


@pytest.mark.thorough
def test_offsets_of_hudi_kafka_connect_are_adopted_out_of_hudis_archive(
    spark: SparkSession, make_fleet: MakeFleet, sink: Sink
) -> None:
    fleet = make_fleet(records=RECORDS, **{"record.key.fields": "id", "provenance.columns": False})
    extra = {CONNECT: ",".join(f"{partition}={end}" for partition, end in REACHED.items())}
    write_as_another(read_so_far(spark, fleet), fleet.table, extra, "bulk_insert")
    [commit] = (fleet.table / ".hoodie" / "timeline").glob("*.commit")
    few_commits = {
        "hoodie__clean__commits__retained": 1,
        "hoodie__keep__min__commits": 2,
        "hoodie__keep__max__commits": 3,
    }
    one_row = read_so_far(spark, fleet).where("id = 0")
    for _ in range(5):
        write_as_another(one_row, fleet.table, {}, "upsert", **few_commits)
    assert not commit.exists()
    config = config_of(fleet)

    code, out = sink("adopt", "--config", config, "--yes")
    assert code == 0, out
    assert f"has offsets of hudi-kafka-connect ({CONNECT})" in out
    land_the_rest(fleet)
    assert sorted(row.id for row in rows(spark, fleet).select("id").collect()) == list(range(RECORDS + 300))
    assert fleet.audit().held


@pytest.mark.thorough
def test_a_merge_on_read_table_of_hudi_kafka_connect_gets_inserts(
    spark: SparkSession, make_fleet: MakeFleet, sink: Sink
) -> None:
    settings = {"write.operation": "insert", "target.table.type": "merge_on_read", "provenance.columns": False}
    fleet = make_fleet(records=RECORDS, **settings, **METADATA, **{"record.key.fields": "id"})
    extra = {CONNECT: ",".join(f"{partition}={end}" for partition, end in REACHED.items())}
    on_read = {"hoodie__datasource__write__table__type": "MERGE_ON_READ"}
    write_as_another(read_so_far(spark, fleet), fleet.table, extra, "bulk_insert", **on_read)
    code, out = sink("adopt", "--config", config_of(fleet), "--yes")
    assert code == 0, out
    land_the_rest(fleet)
    assert sorted(row.id for row in rows(spark, fleet).select("id").collect()) == list(range(RECORDS + 300))
    assert fleet.audit().held


def test_hudi_itself_understands_these_offsets_as_we_do(spark: SparkSession, tmp_path: Path) -> None:
    text = "orders,0:120,11:80"
    checkpoint_utils = hudi_class(spark, "util.CheckpointUtils")
    checkpoint_format = getattr(hudi_class(spark, "util"), "CheckpointUtils$CheckpointFormat").valueOf("SPARK_KAFKA")
    offsets = offsets_of(CommitOffsets(Tool.STREAMER, "", "", text), ["orders"])
    assert {source.partition: offset for source, offset in offsets.items()} == dict(
        checkpoint_utils.parseCheckpoint(checkpoint_format, text)
    )
    assert set(offsets) == {TopicPartition("orders", 0), TopicPartition("orders", 11)}
    for version, keys in (("V2", STREAMER_V2), ("V1", STREAMER_V1)):
        checkpoint = hudi_class(spark, f"table.checkpoint.StreamerCheckpoint{version}")
        assert getattr(checkpoint, f"STREAMER_CHECKPOINT_KEY_{version}") == keys[0]
        assert getattr(checkpoint, f"STREAMER_CHECKPOINT_RESET_KEY_{version}") == keys[1]
        table = tmp_path / version
        written = dict(checkpoint(text).getCheckpointCommitMetadata(None, None))
        write_as_another(spark.range(3), table, written, "insert")
        foreign_offsets = choose(str(table), read_foreign_offsets(str(table)))
        assert (foreign_offsets.tool, foreign_offsets.key, foreign_offsets.text) == (Tool.STREAMER, keys[0], text)


GENERATORS = "org.apache.hudi.keygen"
BY_KIND = {"hoodie.datasource.write.partitionpath.field": "kind"}
BOTH = {"hoodie.datasource.write.partitionpath.field": "kind,ms"}
BY_TIME = {
    "hoodie.datasource.write.partitionpath.field": "ms",
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd",
}


def generator(name: str) -> dict[str, str]:
    return {"hoodie.datasource.write.keygenerator.class": f"{GENERATORS}.{name}KeyGenerator"}


TAKEN_OVER = {
    "one key, no partitions": ("id", "", generator("Nonpartitioned")),
    "two keys, no partitions": ("id,kind", "", generator("Nonpartitioned")),
    "one key, one column": ("id", "kind", BY_KIND | generator("Simple")),
    "two keys, one column": ("id,kind", "kind", BY_KIND | generator("Complex")),
    "one key, two columns": ("id", "kind,ms", BOTH | generator("Complex")),
    "custom": ("id", "kind", {"hoodie.datasource.write.partitionpath.field": "kind:SIMPLE"} | generator("Custom")),
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(name, marks=() if name in ("two keys, one column", "custom") else pytest.mark.thorough)
        for name in TAKEN_OVER
    ],
)
def test_who_made_a_table_finds_the_sinks_rows_by_their_keys(make_landing: MakeLanding, kafka: Any, case: str) -> None:
    keys, columns, options = TAKEN_OVER[case]
    landing = make_landing(keys, columns, options)
    produce(kafka.address, landing.settings.topics[0], 10, 1)
    landing.table.ensure()
    landing.land(1, landing.settings.topics[0], 0, 10)
    assert landing.read().count() == 11
    changed = landing.read().where("id = 3").selectExpr("id", "kind", "99.0d as amount", "ms")
    write_as_another(changed, Path(landing.settings.base_path), {}, "upsert", record_key=keys, **options)
    assert [row.amount for row in landing.read().where("id = 3").collect()] == [99.0]
    assert landing.read().count() == 11


@pytest.mark.parametrize(
    ("column", "options", "mismatch"),
    [
        ("kind", BY_KIND | generator("Complex"), "key generator: COMPLEX"),
        ("ms", BY_TIME | generator("TimestampBased"), "key generator: TIMESTAMP"),
        (
            "ms",
            BY_TIME | {"hoodie.datasource.write.partitionpath.field": "ms:TIMESTAMP"} | generator("Custom"),
            "key generator: CUSTOM",
        ),
        ("", {"hoodie.table.base.file.format": "ORC"}, "files: ORC"),
    ],
)
def test_a_table_whose_keys_paths_or_files_are_others_is_refused(
    make_landing: MakeLanding, column: str, options: Mapping[str, str], mismatch: str
) -> None:
    landing = make_landing("id", column, options)
    with pytest.raises(TableError, match=f"the table's {mismatch}"):
        landing.table.ensure()


def test_nothing_is_adopted_while_a_worker_runs_or_from_a_table_without_offsets(
    spark: SparkSession, make_fleet: MakeFleet, sink: Sink
) -> None:
    fleet = make_fleet(records=30, **{"provenance.columns": False, "record.key.fields": "id"})
    rows_of_others = spark.range(30).selectExpr("id", "'x' as kind", "0.5d as amount")
    write_as_another(rows_of_others, fleet.table, {}, "insert")
    config = config_of(fleet)
    for arguments, error_text in (
        ((), "There is nothing to adopt"),
        (("--topic", "other"), "There is nothing to adopt"),
    ):
        code, out = sink("adopt", "--config", config, "--yes", *arguments)
        assert (code, len(out.splitlines())) == (2, 1)
        assert error_text in out
    write_as_another(rows_of_others, fleet.table, {CONNECT: "0=7"}, "upsert")
    fleet.start("w1")
    fleet.wait("a member", lambda view: bool(view.members))
    fleet.wait_for_log("w1", "table.not_adopted")
    code, out = sink("adopt", "--config", config, "--yes")
    assert code == 2
    assert "workers are alive (w1)" in out
