"""A sink that takes a table over changes the rows that are there, or says why its index would not find them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from coordination.errors import TableError
from sink.audit.audit import audit
from sink.config import Settings
from sink.hudi.existing_rows import rows_conflict
from sink.operations.validation import validate
from tests.integration.landing_kit import Landing
from tests.integration.sinktable import make_settings
from tests.integration.table_kit import SINK, connected
from tests.integration.upsert_kit import (
    BUCKETS,
    DDL,
    NO_METADATA,
    ON_READ,
    RECORD_INDEX,
    Change,
    Upserts,
    send,
)
from tests.one_sink import load

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

BLOOM = NO_METADATA
BUCKETED = {**BUCKETS, **NO_METADATA}
MORE_BUCKETS = {**BUCKETED, "hoodie__bucket__index__num__buckets": "4"}
KEYS = 20


@pytest.fixture
def client(zookeeper) -> Iterator[KazooClient]:
    with connected(zookeeper.address) as client:
        yield client


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (BUCKETED, BLOOM),
        pytest.param({**ON_READ, **BUCKETED}, {**ON_READ, **BUCKETED}, marks=pytest.mark.thorough),
        pytest.param({**ON_READ, **BUCKETS}, {**ON_READ, **RECORD_INDEX}, marks=pytest.mark.thorough),
    ],
    ids=["buckets, bloom", "merge on read, the same buckets", "merge on read, buckets, record index"],
)
def test_rows_of_another_writer_are_changed(
    spark, kafka, client, topic, tmp_path: Path, first: Mapping[str, str], second: Mapping[str, str]
) -> None:
    with written(spark, kafka, client, topic, tmp_path, first) as others:
        upserts = Upserts(spark, client, tmp_path, kafka.address, others.topic, **second).go_on_as(others)
        upserts.land((0, KEYS, 2 * KEYS))
        upserts.table.stop_heartbeats()
        assert [(change["id"], change["at"]) for change in upserts.rows()] == [(key, 2) for key in range(KEYS)]


def problems_of(directory: Path) -> list[str]:
    """Returns what `sink validate` finds wrong. Checkpoints that tests make by hand are of no real cluster."""
    results = validate(load(directory / "sink.properties", {}))
    return [result.sentence for result in results if result.wrong and result.part != "Kafka"]


@pytest.mark.parametrize(
    ("first", "second", "location"),
    [
        (BUCKETED, MORE_BUCKETS, r"key '\d+' in 0000000\d-\S+, and by the settings it belongs into bucket \d: index"),
        pytest.param(
            BLOOM,
            BUCKETED,
            r"file groups that are not buckets \([0-9a-f-]+\): index.type=bucket would not find",
            marks=pytest.mark.thorough,
        ),
    ],
    ids=["3 buckets, 4 buckets", "bloom, buckets"],
)
def test_rows_that_the_index_would_not_find_are_told_before_a_key_gets_a_second_one(
    spark, kafka, client, topic, tmp_path: Path, first: Mapping[str, str], second: Mapping[str, str], location: str
) -> None:
    with written(spark, kafka, client, topic, tmp_path, first) as others:
        with pytest.raises(TableError, match=f"the table has {location}") as told_by_worker:
            Upserts(spark, client, tmp_path, kafka.address, others.topic, **second)
        assert problems_of(tmp_path) == [str(told_by_worker.value)]


@pytest.mark.parametrize("options", [BLOOM, pytest.param(RECORD_INDEX, marks=pytest.mark.thorough)])
def test_rows_that_a_sink_has_appended_are_not_upserted(
    spark, kafka, client, topic, tmp_path: Path, options: Mapping[str, str]
) -> None:
    name = topic(1)
    send(kafka.address, name, [change(key, 1) for key in (1, 1)])
    kept = {"record__key__fields": "id", "provenance__columns": "false", **NO_METADATA}
    zookeeper = {"zookeeper__connect": ",".join(f"{host}:{port}" for host, port in client.hosts)}
    Landing(spark, make_settings(tmp_path, kafka.address, name, DDL, **zookeeper, **kept), client).land(1, name, 0, 2)
    told = r"the table has rows that sink \S+ has appended: a key may have several there"
    with pytest.raises(TableError, match=told) as told_by_worker:
        Upserts(spark, client, tmp_path, kafka.address, name, **options)
    assert problems_of(tmp_path) == [str(told_by_worker.value)]


MERGES_ON_READ = {"hoodie.datasource.write.table.type": "MERGE_ON_READ"}
FOUR_BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "4"}
DIVIDING = {
    **FOUR_BUCKETS,
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.min.num.buckets": "4",
    "hoodie.bucket.index.max.num.buckets": "8",
}
MONDAY = [(key, "mon") for key in range(40)]


def test_buckets_of_sparks_own_writer_are_compared_in_each_table_partition_and_without_rows(
    spark, tmp_path: Path
) -> None:
    of_another_number = by_settings(tmp_path, "bucket", 8)
    java_hudi = spark._jvm.org.apache.hudi
    bucket = java_hudi.index.bucket.BucketIdentifier.getBucketId
    # The newest partition has one key, which both numbers put into the same bucket.
    [key, *_] = [key for key, _ in MONDAY if bucket(str(key), "id", 4) == bucket(str(key), "id", 8)]
    spark_writes(spark, tmp_path, MONDAY, **FOUR_BUCKETS)
    spark_writes(spark, tmp_path, [(key, "tue")], **FOUR_BUCKETS)
    assert rows_conflict(by_settings(tmp_path, "bucket", 4).table, nullcontext(java_hudi)) is None
    conflict = rows_conflict(of_another_number.table, nullcontext(java_hudi))
    assert "by the settings it belongs into bucket" in str(conflict)
    conflict = rows_conflict(by_settings(tmp_path, "bucket", 2).table, nullcontext(java_hudi))
    assert "whose number no bucket of the settings has" in str(conflict)
    spark_writes(spark, tmp_path, [*MONDAY, (key, "tue")], "delete", **FOUR_BUCKETS)
    conflict = rows_conflict(of_another_number.table, nullcontext(java_hudi))
    assert "no base file with keys that could be compared" in str(conflict)


@pytest.mark.thorough
def test_files_without_a_bloom_filter_are_for_the_record_index_alone(spark, tmp_path: Path) -> None:
    java_hudi = spark._jvm.org.apache.hudi
    spark_writes(spark, tmp_path, MONDAY)
    assert rows_conflict(by_settings(tmp_path, "bloom", 4).table, nullcontext(java_hudi)) is None
    spark_writes(spark, tmp_path, [(100, "tue")], **{"hoodie.parquet.bloom.filter.enabled": "false"})
    conflict = rows_conflict(by_settings(tmp_path, "bloom", 4).table, nullcontext(java_hudi))
    assert "files without a bloom filter (tue/" in str(conflict)
    assert rows_conflict(by_settings(tmp_path, "record", 4).table, nullcontext(java_hudi)) is None


@pytest.mark.thorough
def test_buckets_that_divide_are_for_the_record_index_alone(spark, tmp_path: Path) -> None:
    spark_writes(spark, tmp_path, MONDAY, **MERGES_ON_READ, **DIVIDING)
    conflicts = {
        index: rows_conflict(by_settings(tmp_path, index, 4).table, nullcontext(spark._jvm.org.apache.hudi))
        for index in ("bucket", "record")
    }
    assert conflicts["record"] is None
    assert "buckets that divide" in str(conflicts["bucket"])


@pytest.mark.thorough
def test_rows_in_log_files_alone_are_found_by_the_record_index_and_read_by_the_audit(
    spark, kafka, client, topic, tmp_path: Path
) -> None:
    ddl = "id bigint, at bigint, kind string"
    rows = spark.createDataFrame([(key, 1, "a") for key in range(KEYS)], ddl)
    save(rows, tmp_path, "upsert", **MERGES_ON_READ, **{"hoodie.index.type": "INMEMORY"})
    assert not list((tmp_path / "table").glob("*.parquet"))
    settings = {**ON_READ, **RECORD_INDEX}
    upserts = Upserts(spark, client, tmp_path, kafka.address, topic(1), ddl=ddl, **settings)
    send(kafka.address, upserts.topic, [change(key, 2) for key in range(KEYS // 2)])
    upserts.land((0, 0, KEYS // 2))
    report = audit(upserts.settings.base_path, SINK, global_keys=True)
    upserts.table.stop_heartbeats()
    assert (report.held, report.rows) == (True, KEYS), report.to_json()


def by_settings(directory: Path, index: str, buckets: int) -> Settings:
    options = {"write__operation": "upsert", "record__key__fields": "id", "index__type": index}
    if index == "bucket":
        options["hoodie__bucket__index__num__buckets"] = str(buckets)
    return make_settings(directory, "127.0.0.1:9092", "t", DDL, **options)


def spark_writes(
    spark, directory: Path, rows: Sequence[tuple[int, str]], operation: str = "upsert", **options: str
) -> None:
    """Writes keys and their table partitions like a job of Spark's."""
    save(spark.createDataFrame(rows, "id long, day string"), directory, operation, "day", **options)


def save(frame, directory: Path, operation: str, partition: str = "", **options: str) -> None:
    fixed = {
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": partition,
        "hoodie.datasource.write.operation": operation,
        "hoodie.metadata.enable": "false",
    }
    frame.write.format("hudi").options(**fixed, **options).mode("append").save(str(directory / "table"))


@contextmanager
def written(spark, kafka, client: KazooClient, topic, directory: Path, options: Mapping[str, str]) -> Iterator[Upserts]:
    """Yields a table that notes, like one of another writer, neither index nor buckets. Its keys came in two commits;
    a later change of each is in the topic.
    """
    upserts = Upserts(spark, client, directory, kafka.address, topic(1), **options)
    send(kafka.address, upserts.topic, [change(key, at) for at in (1, 2) for key in range(KEYS)])
    upserts.land((0, 0, KEYS // 4))
    upserts.land((0, KEYS // 4, KEYS))
    properties = Path(upserts.settings.base_path, ".hoodie", "hoodie.properties")
    lines = properties.read_text().splitlines(keepends=True)
    properties.write_text("".join(line for line in lines if not line.startswith("sink.")))
    properties.with_name(".hoodie.properties.crc").unlink(missing_ok=True)
    yield upserts
    upserts.table.stop_heartbeats()


def change(key: int, at: int) -> Change:
    return str(key).encode(), json.dumps({"id": key, "at": at, "kind": "a"}).encode()
