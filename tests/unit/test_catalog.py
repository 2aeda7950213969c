"""Settings of a catalogue reach Hudi's sync, and the sink syncs when a sync is due."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from coordination.errors import ConfigError
from coordination.state import codec
from coordination.zookeeper.records import CatalogState, build_state, decode
from sink.config.groups.catalog import HIVE_SYNC
from sink.hudi.catalog import entry_names, sync_options
from sink.operations.observed_sink import observed_sink
from sink.operations.status import CatalogStatus, catalog_status
from sink.runtime.sinks.catalog_sync import LAST_RETRY_SECONDS, seconds_to_next
from tests.unit.settings_kit import minimal_settings

URI = {"catalog__metastore__uris": "thrift://metastore:9083"}
BY_TIME = {"schema__ddl": "id bigint, kind string, at timestamp", "partition__time__field": "at"}
SLASHES = {**BY_TIME, "partition__time__format": "yyyy/MM/dd"}
SYNC = "hoodie.datasource.hive_sync"


def test_without_a_metastore_or_a_class_there_is_no_catalogue(tmp_path: Path) -> None:
    assert not minimal_settings(tmp_path).catalogued
    assert minimal_settings(tmp_path, **URI).catalogued
    assert minimal_settings(tmp_path, catalog__class="org.apache.hudi.sync.datahub.DataHubSyncTool").catalogued


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"catalog__metastore__uris": "metastore:9083"}, "not an address like thrift://metastore-1:9083"),
        ({"catalog__metastore__uris": "thrift://metastore"}, "is not a list of host:port"),
        ({**URI, "catalog__class": "HiveSyncTool"}, "is not the full name of a Java class"),
        ({"catalog__class": HIVE_SYNC}, "a metastore of its own on each worker: set catalog.metastore.uris"),
        ({**URI, "catalog__database": "a-b"}, "is not a name for a catalogue"),
        ({"catalog__database": "lake"}, "set catalog.metastore.uris too, or catalog.class"),
        ({**URI, "target__table__name": "my-orders"}, "set catalog.table, of letters, digits and underscores"),
        ({**URI, **SLASHES, "partition__hive__style": "false"}, "Use a format without slashes"),
        ({**URI, **SLASHES, "partition__field__name": "kind"}, "Use a format without slashes"),
        ({"hoodie__datasource__hive_sync__enable": "true"}, "catalog.metastore.uris or catalog.class"),
        ({**URI, "hoodie__datasource__hive_sync__partition_fields": "x"}, "partition.field.name"),
        ({**URI, "hoodie__datasource__hive_sync__ignore_exceptions": "true"}, "is shown, and tried again"),
    ],
)
def test_what_a_catalogue_could_not_be_given_is_refused_with_the_remedy(
    tmp_path: Path, more: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        minimal_settings(tmp_path, **more)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("more", "extractor", "fields"),
    [
        ({}, "NonPartitionedExtractor", ""),
        ({"partition__field__name": "kind"}, "HiveStylePartitionValueExtractor", "kind"),
        ({"partition__field__name": "kind", "partition__hive__style": "false"}, "MultiPartKeysValueExtractor", "kind"),
        ({"partition__field__name": "kind,id"}, "MultiPartKeysValueExtractor", "kind,id"),
        ({**BY_TIME, "partition__field__name": "kind"}, "MultiPartKeysValueExtractor", "kind,day"),
        (SLASHES, "HiveStylePartitionValueExtractor", "partition_time"),
    ],
)
def test_the_extractor_is_the_one_that_fits_how_partitions_are_named(
    tmp_path: Path, more: dict[str, str], extractor: str, fields: str
) -> None:
    options = sync_options(
        minimal_settings(tmp_path, **URI, **more).table.catalog, minimal_settings(tmp_path, **URI, **more).table
    )
    assert options[f"{SYNC}.partition_extractor_class"] == f"org.apache.hudi.hive.{extractor}"
    assert options[f"{SYNC}.partition_fields"] == fields


def test_an_extractor_of_ones_own_is_taken_for_paths_that_none_of_hudis_fits(tmp_path: Path) -> None:
    extractor = "org.example.Days"
    settings = minimal_settings(
        tmp_path, **URI, **SLASHES, partition__hive__style="false", catalog__partition__extractor=extractor
    )
    assert sync_options(settings.table.catalog, settings.table)[f"{SYNC}.partition_extractor_class"] == extractor


def test_hudis_sync_is_told_the_names_and_whatever_else_the_user_gives_it(tmp_path: Path) -> None:
    options = sync_options(
        minimal_settings(
            tmp_path,
            hoodie__datasource__hive_sync__metastore__uris="thrift://m1:9083, thrift://m2:9083",
            hoodie__datasource__hive_sync__database="lake",
            catalog__table="Orders",
            hoodie__datasource__hive_sync__support_timestamp="false",
            hoodie__meta__sync__datahub__emitter__server="http://datahub:8080",
        ).table.catalog,
        minimal_settings(
            tmp_path,
            hoodie__datasource__hive_sync__metastore__uris="thrift://m1:9083, thrift://m2:9083",
            hoodie__datasource__hive_sync__database="lake",
            catalog__table="Orders",
            hoodie__datasource__hive_sync__support_timestamp="false",
            hoodie__meta__sync__datahub__emitter__server="http://datahub:8080",
        ).table,
    )
    assert options[f"{SYNC}.metastore.uris"] == "thrift://m1:9083,thrift://m2:9083"
    assert (options[f"{SYNC}.database"], options[f"{SYNC}.table"]) == ("lake", "Orders")
    assert options[f"{SYNC}.mode"] == "hms"
    assert options[f"{SYNC}.support_timestamp"] == "false"
    assert options["hoodie.meta.sync.datahub.emitter.server"] == "http://datahub:8080"
    assert options["hoodie.table.name"] == "orders"


def test_columns_that_are_times_are_times_in_the_catalogue(tmp_path: Path) -> None:
    assert (
        sync_options(minimal_settings(tmp_path, **URI).table.catalog, minimal_settings(tmp_path, **URI).table)[
            f"{SYNC}.support_timestamp"
        ]
        == "true"
    )


@pytest.mark.parametrize(
    ("more", "is_merge_on_read", "names"),
    [
        ({}, False, ["orders"]),
        ({}, True, ["orders_ro", "orders_rt", "orders"]),
        ({"hoodie__datasource__hive_sync__skip_ro_suffix": "true"}, True, ["orders_rt", "orders"]),
        ({"hoodie__datasource__hive_sync__table__strategy": "ro"}, True, ["orders"]),
    ],
)
def test_the_entries_that_are_looked_at_are_those_that_hudis_sync_writes(
    tmp_path: Path, more: dict[str, str], is_merge_on_read: bool, names: list[str]
) -> None:
    options = sync_options(
        minimal_settings(tmp_path, **URI, **more).table.catalog, minimal_settings(tmp_path, **URI, **more).table
    )
    assert entry_names(options, is_merge_on_read) == names


STATE = CatalogState("orders in m", "w1", 100.0, 7, "20260101000000000")


def test_a_catalogue_is_looked_after_when_there_are_new_commits_and_not_more_often_than_asked() -> None:
    assert seconds_to_next(STATE, 7, 60) is None
    assert seconds_to_next(STATE, 8, 60) == 60
    assert seconds_to_next(CatalogState("orders in m"), 0, 60) is None
    # ZooKeeper was emptied, and the table had fewer transactions than the record says.
    assert seconds_to_next(STATE, 3, 60) == 60


def test_what_failed_is_tried_again_ever_later_also_without_a_commit() -> None:
    state, waits = STATE, []
    for _ in range(12):
        state = state.after_failure("w1", 200.0, "refused")
        waits.append(seconds_to_next(state, 7, 60))
    assert waits[:4] == [5, 10, 20, 40]
    assert waits[-1] == LAST_RETRY_SECONDS
    assert seconds_to_next(state.after_success("w2", 300.0, 7, "1"), 7, 60) is None


def test_a_failure_leaves_how_far_the_catalogue_is_and_a_success_leaves_no_failure() -> None:
    failed = STATE.after_failure("w2", 200.0, "refused").after_failure("w2", 205.0, "reset")
    assert (failed.instant, failed.committed, failed.synced) == (STATE.instant, 7, 100.0)
    assert (failed.failures, failed.failed, failed.reason, failed.worker) == (2, 205.0, "reset", "w2")
    assert failed.after_success("w1", 300.0, 9, "2") == CatalogState("orders in m", "w1", 300.0, 9, "2")


@pytest.mark.parametrize("data", [b"", b"{broken", codec.to_bytes({"catalog": "x"})])
def test_a_record_that_is_not_understood_is_none(data: bytes) -> None:
    assert decode(data, "catalog", build_state) is None
    assert decode(codec.to_bytes(asdict(STATE)), "catalog", build_state) == STATE


def test_the_status_tells_how_far_behind_a_catalogue_is_and_forgets_another_one(tmp_path: Path) -> None:
    settings = minimal_settings(tmp_path, **URI)
    name = settings.catalog_name
    assert name == "default.orders in thrift://metastore:9083"
    state = CatalogState(name, "w1", 100.0, 7, "20260101000000000").after_failure("w2", 200.0, "refused")
    assert catalog_status(observed_sink(settings).catalog, state, 9) == CatalogStatus(
        name, "w2", 100.0, 7, "20260101000000000", 2, 1, 200.0, "refused"
    )
    elsewhere = catalog_status(minimal_settings(tmp_path, **URI, catalog__database="lake").catalog_name, state, 9)
    assert elsewhere is not None
    assert (elsewhere.instant, elsewhere.behind, elsewhere.failures) == ("", 9, 0)
    assert catalog_status(observed_sink(minimal_settings(tmp_path)).catalog, state, 9) is None


def test_hudis_own_class_finds_a_metastore_that_spark_knows(tmp_path: Path) -> None:
    spark_settings = {"spark__hadoop__hive__metastore__uris": "thrift://metastore:9083"}
    assert minimal_settings(tmp_path, **spark_settings, catalog__class=HIVE_SYNC).catalogued
    assert not minimal_settings(tmp_path, **spark_settings).catalogued
    assert minimal_settings(tmp_path, **URI).catalog_class == HIVE_SYNC
