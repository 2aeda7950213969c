"""`sink validate` and a worker refuse alike settings that neither a table nor an engine can serve."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coordination.errors import ConfigError, SinkError
from sink.clients.spark import _DEFAULTS, _REQUIRED
from sink.config import Settings, load
from sink.hudi.creation import columns_conflict, create_missing, index_conflict, schema_conflicts
from sink.hudi.options import arrow_codec, commit_options, service_options
from sink.hudi.preflight import preflight_errors
from sink.schema import TableSchema, parse_ddl
from sink.write.engines import ENGINES

MINIMAL = {
    "zookeeper.connect": "zk",
    "kafka.bootstrap.servers": "broker:9092",
    "kafka.topic.names": "orders",
    "target.base.path": "/lake/orders",
    "target.table.name": "orders",
    "schema.ddl": "id BIGINT, tags ARRAY<STRING>, a STRUCT<b: STRING>, day DATE, price DOUBLE",
}
PROPERTIES = {
    "hoodie.table.name": "orders",
    "hoodie.table.type": "COPY_ON_WRITE",
    "hoodie.table.version": "9",
    "hoodie.table.recordkey.fields": "_kafka_topic,_kafka_partition,_kafka_offset",
}
NEVER: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1, master="local[1]"))
"""A session that may not be asked for anything but its cores."""


@pytest.fixture
def loaded(tmp_path: Path):
    def settings(**changes: str) -> tuple[Settings, TableSchema]:
        path = tmp_path / "sink.yaml"
        given = MINIMAL | {key.replace("__", "."): value for key, value in changes.items()}
        path.write_text(json.dumps(given))
        made = load(path, {})
        return made, parse_ddl(made.schema_text, made.provenance)

    return settings


@pytest.mark.parametrize("engine", ["arrow", "hudi"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"partition.field.name": "day"},
        {"partition.field.name": "tags"},
        {"partition.field.name": "colour"},
        {"record.key.fields": "id"},
        {"record.key.fields": "a.b"},
        {"record.key.fields": "price"},
        {"provenance.columns": "false"},
        {"provenance.columns": "false", "record.key.fields": "id"},
        {"target.base.path": "abfss://lake@host/t"},
        {"target.base.path": "file:///lake/t"},
    ],
)
def test_an_engine_refuses_what_is_refused_before_there_is_one(loaded, engine: str, changes: dict[str, str]):
    settings, schema = loaded(**changes, write__engine=engine)
    ours = [str(error) for error in preflight_errors(settings, schema)]
    assert (_refusal(ENGINES[engine](NEVER, settings, schema).check) or "") in (ours or [""])


def _refusal(check: Callable[[], None]) -> str | None:
    try:
        check()
    except SinkError as error:
        return str(error)
    return None


def test_a_worker_refuses_them_before_it_looks_for_the_table(loaded):
    settings, schema = loaded(partition__field__name="tags")
    with pytest.raises(SinkError, match=r"partition\.field\.name: column 'tags' has type array<string>"):
        create_missing(NEVER, settings, schema, NEVER)


def test_all_that_is_wrong_is_named_at_once(loaded):
    settings, schema = loaded(partition__field__name="tags,colour", record__key__fields="price")
    assert [str(error).partition(":")[0] for error in preflight_errors(settings, schema)] == [
        "record.key.fields",
        "partition.field.name",
        "partition.field.name",
    ]


@pytest.mark.parametrize(
    ("has", "said"),
    [
        ({"hoodie.table.version": "8"}, "the table's version: 8; the settings ask for 9"),
        ({"hoodie.table.version": "10"}, "the table's version: 10; the settings ask for 9"),
        ({"hoodie.populate.meta.fields": "false"}, "the table's meta columns: false; the settings ask for true"),
        ({"hoodie.table.recordkey.fields": "id"}, "the table's record key: id; the settings ask for _kafka_topic"),
        ({"sink.bucket.index.num.buckets": "8"}, "the table's buckets: 8; the settings ask for none (index.type"),
    ],
)
def test_a_table_that_differs_is_refused_with_both_sides_named(loaded, has: dict[str, str], said: str):
    settings, _ = loaded()
    assert list(schema_conflicts(settings, PROPERTIES)) == []
    (sentence,) = schema_conflicts(settings, PROPERTIES | has)
    assert sentence.startswith(said)


def test_the_column_that_a_time_makes_is_no_partition_field_of_its_own(loaded):
    settings, schema = loaded(partition__time__field="_kafka_timestamp", partition__time__column="made")
    assert list(preflight_errors(settings, schema)) == []
    settings, schema = loaded(
        partition__time__field="_kafka_timestamp", partition__time__column="made", partition__field__name="made"
    )
    assert any("the table is partitioned by it already" in str(error) for error in preflight_errors(settings, schema))


@pytest.mark.parametrize(
    "kept",
    [
        {"hoodie__keep__min__commits": "40"},
        {"hoodie__keep__max__commits": "20"},
        {"hoodie__keep__min__commits": "x"},
        {"hoodie__keep__min__commits": "5", "hoodie__keep__max__commits": "5"},
    ],
)
def test_archiving_that_hudi_refuses_is_refused_before_it_stops_commits(loaded, kept: dict[str, str]):
    with pytest.raises(ConfigError, match=r"hoodie\.keep\.min\.commits=.* have to be numbers"):
        loaded(**kept)
    loaded(hoodie__keep__min__commits="40", hoodie__keep__max__commits="50")


UPSERTS = {"write__operation": "upsert", "record__key__fields": "id", "ordering__field__name": "price"}


@pytest.mark.parametrize(
    ("has", "said"),
    [
        ({"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"}, "the table's merge mode: COMMIT_TIME_ORDERING; the"),
        ({"hoodie.record.merge.mode": "CUSTOM"}, "the table's merge mode: CUSTOM; the settings ask for EVENT_TIME"),
        ({"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}, "the table's partial updates: IGNORE_DEFAULTS; the"),
    ],
)
def test_a_table_that_merges_otherwise_is_not_upserted(loaded, has: dict[str, str], said: str):
    settings, _ = loaded(**UPSERTS)
    usual = PROPERTIES | {
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.ordering.fields": "price",
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    }
    assert list(schema_conflicts(settings, usual)) == []
    (sentence,) = schema_conflicts(settings, usual | has)
    assert sentence.startswith(said)


INDEXED = "hoodie.table.metadata.partitions"


@pytest.mark.parametrize("others", ["", "files,record_index,secondary_index_kind,column_stats,bloom_filters"])
def test_indexes_that_its_commits_keep_are_no_reason_to_refuse_a_table(others: str):
    by_partition = json.dumps({"indexDefinitions": {"record_index": {"indexOptions": {"isPartitioned": "false"}}}})
    assert index_conflict({INDEXED: others}, by_partition) is None
    assert index_conflict({INDEXED: others}, "") is None


def test_indexes_that_hudi_fails_to_update_for_it_are_named():
    by_partition = json.dumps({"indexDefinitions": {"record_index": {"indexOptions": {"isPartitioned": "true"}}}})
    said = index_conflict({INDEXED: "files,record_index"}, by_partition)
    assert said is not None
    assert said.startswith("the table's index: record_index, by partition; ")
    assert index_conflict({INDEXED: "files"}, by_partition) is None
    said = index_conflict({INDEXED: "files,expr_index_hour"}, "")
    assert said is not None
    assert said.startswith("the table's index: expr_index_hour; ")


def test_encoding_of_partition_names_belongs_to_the_table(loaded):
    settings, _ = loaded(partition__field__name="day")
    partitioned = PROPERTIES | {
        "hoodie.table.partition.fields": "day:SIMPLE",
        "hoodie.datasource.write.hive_style_partitioning": "true",
    }
    assert list(schema_conflicts(settings, partitioned)) == []
    (sentence,) = schema_conflicts(settings, partitioned | {"hoodie.datasource.write.partitionpath.urlencode": "true"})
    assert sentence.startswith("the table's encoded partitions: true; the settings ask for false")


def test_columns_that_differ_are_all_named(loaded):
    settings, schema = loaded()
    assert columns_conflict(schema.avro("orders"), schema, settings) is None
    less = parse_ddl("id bigint")
    assert columns_conflict(less.avro("orders"), schema, settings) is None, "columns may be added"
    more = parse_ddl("id bigint, more int")
    assert "more int is in the table, not in" in (columns_conflict(more.avro("orders"), schema, settings) or "")
    narrow = parse_ddl("id int")
    assert columns_conflict(narrow.avro("orders"), schema, settings) is None, "columns may widen"
    on_read, _ = loaded(target__table__type="merge_on_read", write__operation="insert")
    said = columns_conflict(narrow.avro("orders"), schema, on_read) or ""
    assert "id is INT in the table, BIGINT in the records (in a merge-on-read table no type can change" in said
    other = parse_ddl("id string, more int")
    said = columns_conflict(other.avro("orders"), schema, settings) or ""
    assert "id is STRING in the table, BIGINT in the records" in said
    lines = [line.split() for line in said.splitlines()]
    assert ["!", "more", "INT", "-"] in lines
    assert ["!", "day", "-", "DATE"] in lines


@pytest.mark.parametrize(
    ("written", "arrow", "hudi"),
    [("UNCOMPRESSED", "none", "uncompressed"), ("Zstd", "zstd", "zstd"), ("gzip", "gzip", "gzip")],
)
def test_a_codec_is_named_as_each_writer_names_it(loaded, written: str, arrow: str, hudi: str):
    settings, _ = loaded(hoodie__parquet__compression__codec=written)
    assert arrow_codec(settings) == arrow
    assert commit_options(settings)["hoodie.parquet.compression.codec"] == hudi


def test_hudis_lock_gets_a_port_though_none_is_written(loaded):
    options = service_options(loaded()[0])
    assert options["hoodie.write.lock.zookeeper.port"] == "2181"
    assert options["hoodie.write.lock.zookeeper.url"] == "zk:2181"


def test_every_name_that_the_sink_sets_is_told_from_a_slip_of_the_pen(loaded):
    from sink.config.spelling import KNOWN

    settings, _ = loaded()
    ours = {*_DEFAULTS, *_REQUIRED, *commit_options(settings), *service_options(settings)} - {"path"}
    # What is below a catalog's name, or a catalog's name itself, is the user's to choose.
    assert {name for name in ours - KNOWN if not name.startswith("spark.sql.catalog.")} == set()


def test_a_commit_that_was_decided_is_made_even_if_it_has_no_files(loaded):
    settings, _ = loaded(hoodie__allow__empty__commit="false")
    assert commit_options(settings)["hoodie.allow.empty.commit"] == "true"
