"""Settings of upserts are understood, or refused before any server is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordination.errors import ConfigError
from sink.hudi.options import commit_options, preflight_errors
from sink.operations.validation import _schema as described
from sink.runtime.sinks.coordinator_config import coordinator_config
from sink.write.rows.row_spec import table_schema
from tests.unit.change_kit import settings_of

EVENTS_OF_SUBJECT = {
    "schema__ddl": "",
    "schema__subject": "s",
    "schema__registry__url": "http://r",
    "value__envelope": "debezium",
}
ON_READ = {"target__table__type": "merge_on_read"}
INSERTS = {"write__operation": "insert", "provenance__columns": "true"}
BUCKETS = {"index__type": "bucket", "hoodie__bucket__index__num__buckets": "4"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"transactions__in__flight": "2"}, "transactions.in.flight=1"),
        ({"write__operation": "append", "target__table__type": "merge_on_read"}, "not for append"),
        ({"write__operation": "insert", "ordering__field__name": "at"}, "is for write.operation=upsert"),
        ({"debezium__ordering": "lsn"}, "debezium.ordering is for value.envelope=debezium"),
        ({"debezium__before": "row"}, "debezium.before is for value.envelope=debezium"),
        ({**EVENTS_OF_SUBJECT, "value__format": "json", "schema__registry__url": None}, "schema.subject is for values"),
        ({**EVENTS_OF_SUBJECT, "value__format": "protobuf-confluent"}, "value.envelope=debezium is JSON, or Avro"),
        ({"delete__key__format": "avro-confluent"}, "schema.registry.url"),
        (
            {"index__type": "record", "hoodie__metadata__global__record__level__index__enable": "no"},
            "index.enable=false is not for index.type=record",
        ),
        ({**BUCKETS, "services__clustering": "true"}, "services.clustering=true is not for index.type=bucket"),
        (
            {"services__audit__interval": "6h", "provenance__columns": "false"},
            "services.audit.interval compares rows with the records at their offsets: set provenance.columns=true",
        ),
        ({"hoodie__index__type": "SIMPLE"}, "index.type decides how a key's row is found"),
        ({"hoodie__datasource__write__precombine__field": "at"}, "ordering.field.name decides which of two rows"),
        ({"write__operation": "insert", "index__type": "record"}, "index.type is for write.operation=upsert"),
        ({"write__operation": "append", "delete__field": "gone"}, "delete.field is for write.operation=upsert"),
        ({"value__envelope": "debezium", "delete__field": "gone"}, "not for Debezium's events"),
        ({"value__format": "string", "schema__ddl": "value string", "delete__field": "gone"}, "for values with fields"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_at_once(
    tmp_path: Path, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        settings_of(tmp_path, **options)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"record__key__fields": "_kafka_partition,_kafka_offset", "provenance__columns": "true"}, "record.key.fields"),
        ({"record__key__fields": ""}, "set record.key.fields"),
        ({"hoodie__populate__meta__fields": "false"}, "hoodie.populate.meta.fields=true"),
        ({"ordering__field__name": "nowhere"}, "no column 'nowhere'"),
        *(
            ({"schema__ddl": f"id bigint, at {kind}", "ordering__field__name": "at"}, way)
            for kind, way in (
                ("date", "Declare it as TIMESTAMP, or as STRING"),
                ("decimal(10,2)", "Declare it as BIGINT"),
                ("double", "Use a column of type integer, long, string, timestamp"),
            )
        ),
        ({"schema__ddl": "id timestamp"}, "Declare it as BIGINT if records have numbers, or as STRING"),
        *(
            ({"schema__ddl": "id bigint, m struct<k: string>", setting: "m.k"}, "key.format=string and `_kafka_key`")
            for setting in ("record__key__fields", "partition__field__name")
        ),
        ({"delete__field": "at"}, "Use a column of type boolean, string"),
        *(
            ({"value__envelope": "debezium", **partition}, "Set debezium.before=row if every delete has the whole row")
            for partition in (
                {"partition__field__name": "name"},
                {"partition__time__field": "at", "time__unit": "ms"},
                {"partition__field__name": "id,name", **BUCKETS},
            )
        ),
        ({"schema__ddl": "id bigint, t timestamp", "partition__field__name": "t"}, "Name it in partition.time.field"),
        ({"index__type": "bucket"}, "hoodie.bucket.index.num.buckets"),
        ({**BUCKETS, "hoodie__bucket__index__num__buckets": "0"}, "is not a whole number from 1 to 10000"),
        ({"index__type": "record", "hoodie__metadata__enable": "false"}, "hoodie.metadata.enable=true"),
        (ON_READ, "a key may be in a log file alone, so that it would get a second row: set index.type=record"),
        ({**ON_READ, **INSERTS, "hoodie__metadata__enable": "false"}, "while a transaction is open. Remove it."),
        ({"ordering__field__name": "at", "delete__key__format": "string"}, "has no ordering value"),
        ({"delete__key__format": "string", "partition__field__name": "name"}, "in which partition"),
        ({"delete__key__format": "long", "record__key__fields": "id,name"}, "delete.key.format=long"),
        ({"delete__key__format": "string", "record__key__fields": "id,name"}, "Use json, or one field"),
        ({"schema__ddl": "id bigint, name string, _debezium_lsn bigint"}, "reserved"),
    ],
)
def test_what_an_upsert_table_cannot_be_is_refused_in_a_sentence(
    tmp_path: Path, options: dict[str, str], reason: str
) -> None:
    def sentences() -> list[str]:
        try:
            settings = settings_of(tmp_path, **options)
            return [
                str(error) for error in preflight_errors(settings.table, table_schema(settings.table, settings.records))
            ]
        except ConfigError as error:
            return [str(error)]

    assert any(reason in sentence for sentence in sentences()), sentences()


def test_validation_tells_what_is_wrong_with_a_key_that_is_no_column(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, record__key__fields="nowhere", delete__key__format="string")
    assert any(finding.wrong and "no column 'nowhere'" in finding.sentence for finding in described(settings)[1])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ordering__field__name": "at"},
        {"ordering__field__name": "at", "schema__ddl": "id bigint, at int"},
        {"ordering__field__name": "at", "schema__ddl": "id bigint, at smallint"},
        {"delete__field": "gone"},
        {"value__envelope": "debezium", "partition__field__name": "name", "index__type": "record"},
        {"value__envelope": "debezium", "partition__field__name": "name", "debezium__before": "row"},
        {"value__envelope": "debezium", "partition__field__name": "id"},
        {"delete__field": "name"},
        BUCKETS,
        {**ON_READ, **BUCKETS, "hoodie__metadata__enable": "false"},
        {**ON_READ, "index__type": "record"},
        {"hoodie__metadata__enable": "false"},
        {"services__clustering": "true"},
        {"index__type": "record", "delete__key__format": "json", "partition__field__name": "name"},
        {"delete__key__format": "json", "record__key__fields": "id,name", "partition__field__name": "name"},
        {"value__envelope": "debezium", "debezium__ordering": "lsn", "delete__key__format": "json"},
        {**ON_READ, **INSERTS},
    ],
)
def test_what_goes_together_is_usable_and_written_by_one_worker(tmp_path: Path, options: dict[str, str]) -> None:
    settings = settings_of(tmp_path, **options)
    assert list(preflight_errors(settings.table, table_schema(settings.table, settings.records))) == []
    assert coordinator_config(settings, "w", "lock").single_writer


def test_appending_stays_as_it_was(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, write__operation="append")
    assert not coordinator_config(settings, "w", "lock").single_writer
    options = commit_options(settings.table)
    assert options["hoodie.datasource.write.operation"] == "bulk_insert"
    assert not [name for name in options if "index.type" in name or "merge.mode" in name or "multi.write" in name]
    assert "_hoodie_is_deleted" not in table_schema(settings.table, settings.records).spark.names


def test_ordering_columns_choose_how_hudi_merges(tmp_path: Path) -> None:
    by_log = commit_options(settings_of(tmp_path).table)
    assert by_log["hoodie.write.record.merge.mode"] == "COMMIT_TIME_ORDERING"
    by_lsn = commit_options(settings_of(tmp_path, value__envelope="debezium", debezium__ordering="lsn").table)
    assert by_lsn["hoodie.write.record.merge.mode"] == "EVENT_TIME_ORDERING"
    assert by_lsn["hoodie.table.ordering.fields"] == "_debezium_lsn"
