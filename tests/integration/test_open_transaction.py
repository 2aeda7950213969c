"""A change that another writer makes while a transaction is open stays, whatever comes after it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from sink.hudi.options import commit_options
from sink.hudi.table import TableOutcome
from tests.integration.rewrites_kit import At, other_services
from tests.integration.sinktable import tasks_of
from tests.integration.table_kit import by_name, other_writer_options
from tests.integration.upsert_kit import INDEXES, NO_METADATA, ON_READ, Upserts, assert_rows, change, send

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

DDL = "id bigint, at bigint, number int"
EAGER = {"hoodie__compact__inline__max__delta__commits": "1", "hoodie__clustering__async__max__commits": "1"}
MakeUpserts = Callable[..., Upserts]


@pytest.fixture
def make_upserts(
    spark: SparkSession, kafka, zookeeper_client: KazooClient, topic, tmp_path: Path
) -> Iterator[MakeUpserts]:
    def make(**more: str) -> Upserts:
        made.append(Upserts(spark, zookeeper_client, tmp_path / "table", kafka.address, topic(1), ddl=DDL, **more))
        return made[-1]

    made: list[Upserts] = []
    yield make
    for upserts in made:
        upserts.table.stop_heartbeats()


def write_as_another(upserts: Upserts, key: int, at: int) -> None:
    """Upserts a row by Spark's own writer for Hudi, which takes the table's lock."""
    options = {**commit_options(upserts.settings.table), **other_writer_options(upserts.settings)}
    options |= {"hoodie.datasource.write.operation": "upsert"}
    row = upserts.spark.createDataFrame([(key, at, at, False)], f"{DDL}, _hoodie_is_deleted boolean")
    row.coalesce(1).write.format("hudi").options(**options).mode("append").save()


def land_beside(upserts: Upserts, client: KazooClient, start: int, end: int) -> None:
    """Lands a transaction of another worker while one is open."""
    table, engine = upserts.another(client)
    instant = table.begin(upserts.number + 2, 1)
    written = engine.write(instant, tasks_of(upserts.topic, (0, start, end)), upserts.columns().columns)
    assert upserts.complete(instant, written, table) is TableOutcome.COMPLETED
    table.stop_heartbeats()


@pytest.mark.parametrize(
    "beside",
    [
        "a transaction",
        pytest.param("another writer", marks=pytest.mark.thorough),
        pytest.param("services", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize(
    "more",
    [
        pytest.param(INDEXES["record"], id="record index"),
        pytest.param({**INDEXES["bucket"], **NO_METADATA}, id="buckets, no metadata table", marks=pytest.mark.thorough),
    ],
)
def test_what_another_writer_changes_beside_an_open_transaction_stays(
    make_upserts: MakeUpserts, kafka, zookeeper_client: KazooClient, more: dict[str, str], beside: str
) -> None:
    upserts = make_upserts(**{"hoodie__metadata__enable": "true", **ON_READ, **EAGER, **more})
    send(kafka.address, upserts.topic, [change(key, 1) for key in (1, 2, 3, 4)])
    upserts.land((0, 0, 4))
    send(kafka.address, upserts.topic, [change(11, 2), change(21, 2)])
    opened = upserts.begin()
    stats = [json.loads(stat) for stat in upserts.write(opened, (0, 4, 5)).stats]
    if more == INDEXES["record"]:
        # Hudi adds the new key to the base file of the others.
        assert [stat["prevCommit"] for stat in stats if stat["path"].endswith(".parquet")] != ["null"]
    write_as_another(upserts, 1, 5)
    rows = {1: {"at": 5, "number": 5}, **{key: {"at": 1, "number": 1} for key in (2, 3, 4)}}
    if beside == "another writer":
        write_as_another(upserts, 21, 2)
    elif beside == "a transaction":
        land_beside(upserts, zookeeper_client, 5, 6)
    else:
        assert not by_name(upserts.table.services())["compaction"].reason
    if beside != "services":
        rows[21] = {"at": 2, "number": 2}
    upserts.table.roll_back(opened)
    assert_rows(upserts, rows)
    upserts.table.services()
    assert_rows(upserts, rows)


@pytest.mark.parametrize("index", ["record", pytest.param("bucket", marks=pytest.mark.thorough)])
def test_a_key_that_comes_back_while_a_compaction_is_pending_has_one_row(
    make_upserts: MakeUpserts, kafka, zookeeper_client: KazooClient, index: str
) -> None:
    upserts = make_upserts(**{"hoodie__metadata__enable": "true", **ON_READ, **EAGER, **INDEXES[index]})
    gone = change(1, 2, _hoodie_is_deleted=True)
    send(kafka.address, upserts.topic, [change(1, 1), change(2, 1), gone, change(1, 3), change(1, 4)])
    upserts.land((0, 0, 2))
    upserts.land((0, 2, 3))
    back = At("Compaction.scheduled", lambda: upserts.land((0, 3, 4)))
    assert by_name(other_services(upserts, zookeeper_client, back).run())["compaction"].instant
    assert back.reached
    assert_rows(upserts, {1: {"at": 3, "number": 3}, 2: {"at": 1, "number": 1}})
    upserts.land((0, 4, 5))
    assert_rows(upserts, {1: {"at": 4, "number": 4}, 2: {"at": 1, "number": 1}})
