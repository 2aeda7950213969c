"""`sink validate` and a worker refuse alike settings that neither a table nor an engine can serve."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import types as T

from coordination.errors import ConfigError, SinkError
from sink.clients.spark.session import _DEFAULTS, _REQUIRED
from sink.config import Settings
from sink.hudi.creation import columns_conflict, create_missing, index_conflict, schema_conflicts
from sink.hudi.options import commit_options, preflight_errors, service_options
from sink.hudi.placement import BUCKETS, LOCK, notes, placements
from sink.schema.table_schema import TableSchema, parse_ddl
from sink.write.engines.engine import ENGINES
from tests.one_sink import load

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
UNUSABLE: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1, master="local[1]"))
"""Stands for a session, a client or a lock that may be asked only for its number of cores."""


@pytest.fixture
def settings_with(tmp_path: Path):
    def load_settings(**changes: str) -> tuple[Settings, TableSchema]:
        path = tmp_path / "sink.yaml"
        values = MINIMAL | {key.replace("__", "."): value for key, value in changes.items()}
        path.write_text(json.dumps(values))
        settings = load(path, {})
        return settings, parse_ddl(settings.schema_text, settings.provenance)

    return load_settings


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
def test_an_engine_refuses_what_is_refused_before_there_is_one(settings_with, engine: str, changes: dict[str, str]):
    settings, schema = settings_with(**changes, write__engine=engine)
    refusals = [str(error) for error in preflight_errors(settings.table, schema)]
    assert (_refusal(ENGINES[engine](UNUSABLE, settings.table, settings.records, schema).check) or "") in (
        refusals or [""]
    )


def _refusal(check: Callable[[], None]) -> str | None:
    try:
        check()
    except SinkError as error:
        return str(error)
    return None


def test_a_worker_refuses_them_before_it_looks_for_the_table(settings_with):
    settings, schema = settings_with(partition__field__name="tags")
    with pytest.raises(SinkError, match=r"partition\.field\.name: column 'tags' has type array<string>"):
        create_missing(UNUSABLE, settings.table, schema, UNUSABLE)


def test_all_that_is_wrong_is_named_at_once(settings_with):
    settings, schema = settings_with(partition__field__name="tags,colour", record__key__fields="price")
    assert [str(error).partition(":")[0] for error in preflight_errors(settings.table, schema)] == [
        "record.key.fields",
        "partition.field.name",
        "partition.field.name",
    ]


@pytest.mark.parametrize(
    ("differing", "expected"),
    [
        ({"hoodie.table.version": "8"}, "the table's version: 8. The settings ask for 9"),
        ({"hoodie.table.version": "10"}, "the table's version: 10. The settings ask for 9"),
        ({"hoodie.populate.meta.fields": "false"}, "the table's meta columns: false. The settings ask for true"),
        ({"hoodie.table.recordkey.fields": "id"}, "the table's record key: id. The settings ask for _kafka_topic"),
        ({"sink.bucket.index.num.buckets": "8"}, "the table's buckets: 8. The settings ask for none (index.type"),
    ],
)
def test_a_table_that_differs_is_refused_with_both_sides_named(settings_with, differing: dict[str, str], expected: str):
    settings, _ = settings_with()
    assert list(schema_conflicts(settings.table, PROPERTIES)) == []
    (sentence,) = schema_conflicts(settings.table, PROPERTIES | differing)
    assert sentence.startswith(expected)


def test_the_column_that_a_time_makes_is_no_partition_field_of_its_own(settings_with):
    settings, schema = settings_with(partition__time__field="_kafka_timestamp", partition__time__column="made")
    assert list(preflight_errors(settings.table, schema)) == []
    settings, schema = settings_with(
        partition__time__field="_kafka_timestamp", partition__time__column="made", partition__field__name="made"
    )
    assert any(
        "the table is partitioned by it already" in str(error) for error in preflight_errors(settings.table, schema)
    )


@pytest.mark.parametrize(
    "archiving",
    [
        {"hoodie__keep__min__commits": "40"},
        {"hoodie__keep__max__commits": "20"},
        {"hoodie__keep__min__commits": "5", "hoodie__keep__max__commits": "5"},
    ],
)
def test_archiving_that_hudi_refuses_is_refused_before_it_stops_commits(settings_with, archiving: dict[str, str]):
    with pytest.raises(ConfigError, match=r"hoodie\.keep\.min\.commits=.* have to be numbers"):
        settings_with(**archiving)
    settings_with(hoodie__keep__min__commits="40", hoodie__keep__max__commits="50")


UPSERTS = {"write__operation": "upsert", "record__key__fields": "id", "ordering__field__name": "price"}


def test_what_decides_where_a_row_is_put_stays_or_a_key_would_get_a_second_row(settings_with):
    time = {"partition__time__field": "_kafka_timestamp", "partition__time__column": "day"}
    first, _ = settings_with(**UPSERTS, **time)
    noted = {name: placement.value for name, placement in placements(first.table).items()}
    properties = PROPERTIES | {
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.partition.fields": "day",
        "hoodie.table.keygenerator.type": "SIMPLE",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.table.ordering.fields": "price",
    }
    assert list(schema_conflicts(first.table, properties | noted)) == []
    for change in ({"partition__time__zone": "Asia/Tokyo"}, {"partition__time__format": "monthly"}):
        settings, _ = settings_with(**UPSERTS, **time, **change)
        assert list(schema_conflicts(settings.table, properties)) == []
        (sentence,) = schema_conflicts(settings.table, properties | noted)
        assert sentence.startswith("the table's partitions by time: _kafka_timestamp, daily, UTC. The settings ask")
    settings, _ = settings_with(**UPSERTS, **time, time__unit="ms")
    assert list(schema_conflicts(settings.table, properties | noted)) == [], "numbers in a TIMESTAMP move no row"
    buckets = {"index__type": "bucket", "hoodie__bucket__index__num__buckets": "4"}
    hashed, _ = settings_with(**UPSERTS, **buckets, hoodie__bucket__index__hash__field="kind")
    noted = {name: placement.value for name, placement in placements(hashed.table).items()}
    settings, _ = settings_with(**UPSERTS, **buckets)
    conflicts = list(schema_conflicts(settings.table, PROPERTIES | noted))
    assert any(sentence.startswith("the table's bucket hash field: kind. The settings ask") for sentence in conflicts)


@pytest.mark.parametrize(
    ("differing", "expected"),
    [
        ({"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"}, "the table's merge mode: COMMIT_TIME_ORDERING. The"),
        ({"hoodie.record.merge.mode": "CUSTOM"}, "the table's merge mode: CUSTOM. The settings ask for EVENT_TIME"),
        ({"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}, "the table's partial updates: IGNORE_DEFAULTS. The"),
    ],
)
def test_a_table_that_merges_otherwise_is_not_upserted(settings_with, differing: dict[str, str], expected: str):
    settings, _ = settings_with(**UPSERTS)
    usual = PROPERTIES | {
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.ordering.fields": "price",
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    }
    assert list(schema_conflicts(settings.table, usual)) == []
    (sentence,) = schema_conflicts(settings.table, usual | differing)
    assert sentence.startswith(expected)


@pytest.mark.parametrize("operation", ["append", "insert"])
def test_a_table_that_a_sink_upserts_gets_no_second_row_of_a_key(settings_with, operation: str):
    settings, _ = settings_with(write__operation=operation)
    assert list(schema_conflicts(settings.table, PROPERTIES)) == []
    (sentence,) = schema_conflicts(settings.table, PROPERTIES | {BUCKETS: ""})
    assert f"write.operation={operation} keys would get a second row" in sentence


def test_a_table_has_one_lock_for_all_its_sinks(settings_with):
    elsewhere, _ = settings_with(hoodie__write__lock__zookeeper__lock_key="elsewhere")
    noted = {LOCK: notes(elsewhere.table)[LOCK].value}
    assert list(schema_conflicts(elsewhere.table, PROPERTIES | noted)) == []
    settings, _ = settings_with()
    (sentence,) = schema_conflicts(settings.table, PROPERTIES | noted)
    assert sentence.startswith("the table's lock: /hudi/elsewhere. The settings ask for /hudi/orders")


INDEXED = "hoodie.table.metadata.partitions"


@pytest.mark.parametrize("index_names", ["", "files,record_index,secondary_index_kind,column_stats,bloom_filters"])
def test_indexes_that_its_commits_keep_are_no_reason_to_refuse_a_table(index_names: str):
    by_partition = json.dumps({"indexDefinitions": {"record_index": {"indexOptions": {"isPartitioned": "false"}}}})
    assert index_conflict({INDEXED: index_names}, by_partition) is None
    assert index_conflict({INDEXED: index_names}, "") is None


def test_indexes_that_hudi_fails_to_update_for_it_are_named():
    by_partition = json.dumps({"indexDefinitions": {"record_index": {"indexOptions": {"isPartitioned": "true"}}}})
    conflict = index_conflict({INDEXED: "files,record_index"}, by_partition)
    assert conflict is not None
    assert conflict.startswith("the table's index: record_index, by partition. ")
    assert index_conflict({INDEXED: "files"}, by_partition) is None
    conflict = index_conflict({INDEXED: "files,expr_index_hour"}, "")
    assert conflict is not None
    assert conflict.startswith("the table's index: expr_index_hour. ")


def test_encoding_of_partition_names_belongs_to_the_table(settings_with):
    settings, _ = settings_with(partition__field__name="day")
    partitioned = PROPERTIES | {
        "hoodie.table.partition.fields": "day:SIMPLE",
        "hoodie.datasource.write.hive_style_partitioning": "true",
    }
    assert list(schema_conflicts(settings.table, partitioned)) == []
    (sentence,) = schema_conflicts(
        settings.table, partitioned | {"hoodie.datasource.write.partitionpath.urlencode": "true"}
    )
    assert sentence.startswith("the table's encoded partitions: true. The settings ask for false")


def test_columns_that_differ_are_all_named(settings_with):
    settings, schema = settings_with()
    assert columns_conflict(schema.avro("orders"), schema, settings.table) is None
    fewer_columns = parse_ddl("id bigint")
    assert columns_conflict(fewer_columns.avro("orders"), schema, settings.table) is None, "columns may be added"
    more_columns = parse_ddl("id bigint, more int")
    assert "more int is in the table, not in" in (
        columns_conflict(more_columns.avro("orders"), schema, settings.table) or ""
    )
    narrow_column = parse_ddl("id int")
    assert columns_conflict(narrow_column.avro("orders"), schema, settings.table) is None, "columns may widen"
    on_read, _ = settings_with(target__table__type="merge_on_read", write__operation="insert")
    conflict = columns_conflict(narrow_column.avro("orders"), schema, on_read.table) or ""
    assert "id is INT in the table, BIGINT in the records (in a merge-on-read table no type can change" in conflict
    other_type = parse_ddl("id string, more int")
    conflict = columns_conflict(other_type.avro("orders"), schema, settings.table) or ""
    assert "id is STRING in the table, BIGINT in the records" in conflict
    lines = [line.split() for line in conflict.splitlines()]
    assert ["!", "more", "INT", "-"] in lines
    assert ["!", "day", "-", "DATE"] in lines


@pytest.mark.parametrize(
    ("written", "arrow", "hudi"),
    [("UNCOMPRESSED", "none", "uncompressed"), ("Zstd", "zstd", "zstd"), ("gzip", "gzip", "gzip")],
)
def test_a_codec_is_named_as_each_writer_names_it(settings_with, written: str, arrow: str, hudi: str):
    settings, _ = settings_with(hoodie__parquet__compression__codec=written)
    assert settings.table.arrow_codec == arrow
    assert commit_options(settings.table)["hoodie.parquet.compression.codec"] == hudi


def test_every_name_that_the_sink_sets_is_told_from_a_slip_of_the_pen(settings_with):
    from sink.config.spelling import KNOWN

    settings, _ = settings_with()
    sink_names = {*_DEFAULTS, *_REQUIRED, *commit_options(settings.table), *service_options(settings.table)} - {"path"}
    # The user chooses a catalog's name and the settings below it.
    assert {name for name in sink_names - KNOWN if not name.startswith("spark.sql.catalog.")} == set()


def test_a_commit_that_was_decided_is_made_even_if_it_has_no_files(settings_with):
    settings, _ = settings_with(hoodie__allow__empty__commit="false")
    assert commit_options(settings.table)["hoodie.allow.empty.commit"] == "true"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hoodie.table.cdc.enabled", "TRUE"),
        ("hoodie.table.multiple.base.file.formats.enable", "true"),
        ("hoodie.table.log.file.format", "HFILE"),
        ("hoodie.table.format", "iceberg"),
        ("hoodie.datasource.write.drop.partition.columns", "true"),
        ("hoodie.datasource.write.slash.separated.date.partitioning", "true"),
        ("hoodie.partition.metafile.use.base.format", "true"),
        ("hoodie.allow.operation.metadata.field", "true"),
        ("hoodie.timeline.layout.version", "1"),
        ("hoodie.timeline.path", "elsewhere"),
        ("hoodie.timeline.history.path", "elsewhere"),
        ("hoodie.table.index.defs.path", "elsewhere"),
        ("hoodie.bootstrap.base.path", "/old"),
    ],
)
def test_a_property_with_which_the_sinks_files_would_be_misread_makes_a_table_unusable(
    settings_with, name: str, value: str
):
    settings, _ = settings_with()
    (sentence,) = schema_conflicts(settings.table, PROPERTIES | {name: value})
    assert value in sentence
    assert sentence.endswith("(no setting: name another table)")


def test_a_table_that_deletes_by_a_column_of_its_own_is_only_appended_to(settings_with):
    deleting = {"hoodie.record.merge.property.hoodie.payload.delete.field": "op"}
    appending, _ = settings_with()
    assert list(schema_conflicts(appending.table, PROPERTIES | deleting)) == []
    inserting, _ = settings_with(write__operation="insert")
    (sentence,) = schema_conflicts(inserting.table, PROPERTIES | deleting)
    assert "hoodie.payload.delete.field: op. Rows of the sink would be deleted or merged by it" in sentence


def test_a_table_with_the_operation_of_each_record_is_not_taken_over(settings_with):
    settings, schema = settings_with()
    columns = json.loads(schema.avro("orders"))
    columns["fields"].append({"name": "_hoodie_operation", "type": ["null", "string"], "default": None})
    conflict = columns_conflict(json.dumps(columns), schema, settings.table)
    assert "a column of Hudi's that the sink does not fill: _hoodie_operation" in (conflict or "")


@pytest.mark.parametrize(
    ("before", "unfilled"),
    [
        ({"provenance": True}, "_kafka_topic, _kafka_partition, _kafka_offset, _kafka_timestamp"),
        ({"key": T.StringType()}, "_kafka_key"),
        ({"headers": True}, "_kafka_headers"),
    ],
)
@pytest.mark.parametrize("subject", [None, "orders-value"])
def test_columns_of_the_record_are_not_turned_off(
    before: Mapping[str, Any], unfilled: str, subject: str | None, settings_with
) -> None:
    """Also where a registry gives the columns: rows without offsets could not be compared any more."""
    settings, _ = settings_with(provenance__columns="false")
    table = replace(settings.table, columns=replace(settings.table.columns, subject=subject))
    schema = parse_ddl(settings.schema_text, provenance=False)
    assert columns_conflict(schema.avro("orders"), schema, table) is None
    conflict = columns_conflict(replace(schema, **before).avro("orders"), schema, table)
    assert f"these settings would leave {unfilled} null in new rows" in (conflict or "")


@pytest.mark.parametrize(
    ("master", "authenticate", "refused"),
    [
        ("local", "false", True),
        ("local[*]", "no", True),
        ("local[2,4]", "false", True),
        ("local[2]", "true", False),
        ("spark://h:7077", "false", False),
        ("yarn", "false", False),
    ],
)
def test_a_local_master_always_demands_a_secret(settings_with, master: str, authenticate: str, refused: bool) -> None:
    more = {"spark__master": master, "spark__authenticate": authenticate}
    if refused:
        with pytest.raises(ConfigError, match=r"spark\.authenticate: with spark\.master=.* always demand a secret"):
            settings_with(**more)
    else:
        settings_with(**more)
