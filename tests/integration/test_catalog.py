"""Tables are found by their names: Hudi's sync registers them in a real Hive metastore, and a metastore that is away
delays no commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from coordination.errors import ConfigError, Unavailable
from coordination.zookeeper.records import CatalogRecord, CatalogState
from tests.fleet import Fleet, produce
from tests.integration.catalog_kit import Reader
from tests.integration.conftest import PARTITIONS, MakeFleet
from tests.integration.landing_kit import Landing
from tests.integration.sinktable import make_settings
from tests.integration.sinktable import produce as produce_values
from tests.integration.table_kit import connected
from tests.metastore import MetastoreServer
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

DDL = "id bigint, kind string, whole int, at timestamp"
WIDER = "id bigint, kind string, whole bigint, at timestamp, more string"
KINDS = ("buy", "view", None)

MakeLanding = Callable[..., Landing]


def event(number: int) -> dict[str, Any]:
    """Makes an event; three in a row share a day."""
    at = f"2026-01-{1 + number // 3:02d}T12:00:00Z"
    return {"id": number, "kind": KINDS[number % 3], "whole": number, "at": at, "more": "new"}


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetastoreServer]:
    with MetastoreServer(tmp_path_factory.mktemp("metastore")) as server:
        yield server


@pytest.fixture
def make_landing(
    spark: SparkSession, kafka, zookeeper, topic, metastore: MetastoreServer, tmp_path: Path
) -> Iterator[MakeLanding]:
    """Makes a table in the catalogue, each under a name of its own, over one topic of 12 records."""
    topic_name = topic()
    produce_values(kafka.address, topic_name, [json.dumps(event(number)) for number in range(12)])
    with connected(zookeeper.address) as client:

        def make(name: str, ddl: str = DDL, **more: str) -> Landing:
            (tmp_path / name).mkdir(exist_ok=True)
            sink_settings = {
                "zookeeper__connect": zookeeper.address,
                "target__table__name": name,
                "catalog__metastore__uris": metastore.uri,
                "hoodie__metadata__enable": "false",
                **more,
            }
            landing = Landing(
                spark, make_settings(tmp_path / name, kafka.address, topic_name, ddl, **sink_settings), client
            )
            landing.topic = topic_name  # type: ignore[attr-defined]
            return landing

        yield make


def land(landing: Landing, number: int, start: int, end: int) -> None:
    landing.land(number, landing.topic, start, end)  # type: ignore[attr-defined]


class Metastore:
    """A client of the metastore, in the JVM of the test's Spark session."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        hive = spark._jvm.org.apache.hadoop.hive
        conf = hive.conf.HiveConf()
        conf.set("hive.metastore.uris", uri)
        self._api = hive.metastore.api
        self._client = hive.metastore.HiveMetaStoreClient(conf)

    def columns(self, table: str) -> dict[str, str]:
        hive_table = self._client.getTable("default", table)
        fields = [*hive_table.getSd().getCols(), *hive_table.getPartitionKeys()]
        return {str(field.getName()): str(field.getType()) for field in fields}

    def partitions(self, table: str, columns: int) -> dict[tuple[str, ...], str]:
        """Returns the partitions' directories, by their values."""
        hive_partitions = self._client.listPartitions("default", table, -1) if columns else []
        return {
            tuple(map(str, partition.getValues())): str(partition.getSd().getLocation())
            for partition in hive_partitions
        }

    def create(self, table: str, location: str, kind: str, input_format: str) -> None:
        """Creates a table of another owner, of one column; `kind` is EXTERNAL_TABLE or MANAGED_TABLE."""
        api = self._api
        storage = api.StorageDescriptor()
        storage.setLocation(location)
        storage.setCols([api.FieldSchema("theirs", "bigint", "")])
        storage.setInputFormat(input_format)
        storage.setOutputFormat("org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat")
        serde = api.SerDeInfo()
        serde.setSerializationLib("org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe")
        storage.setSerdeInfo(serde)
        hive_table = api.Table()
        hive_table.setDbName("default")
        hive_table.setTableName(table)
        hive_table.setTableType(kind)
        hive_table.setParameters({"EXTERNAL": "TRUE"} if kind == "EXTERNAL_TABLE" else {})
        hive_table.setPartitionKeys([])
        hive_table.setSd(storage)
        self._client.createTable(hive_table)

    def location(self, table: str) -> str:
        return str(self._client.getTable("default", table).getSd().getLocation())

    def drop(self, table: str) -> None:
        self._client.dropTable("default", table, False, True)

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def client(spark: SparkSession, metastore: MetastoreServer) -> Iterator[Metastore]:
    hive_client = Metastore(spark, metastore.uri)
    yield hive_client
    hive_client.close()


def thoroughly(*case: Any) -> Any:
    return pytest.param(*case, marks=pytest.mark.thorough)


@pytest.mark.parametrize(
    ("name", "columns", "more"),
    [
        ("slashes", ("partition_time",), {"partition__time__field": "at", "partition__time__format": "yyyy/MM/dd"}),
        thoroughly("plain", (), {}),
        thoroughly("styled", ("kind",), {"partition__field__name": "kind"}),
        thoroughly("bare", ("kind",), {"partition__field__name": "kind", "partition__hive__style": "false"}),
        thoroughly("two", ("kind", "day"), {"partition__field__name": "kind", "partition__time__field": "at"}),
        thoroughly(
            "bare_two",
            ("kind", "day"),
            {"partition__field__name": "kind", "partition__time__field": "at", "partition__hive__style": "false"},
        ),
        thoroughly("indexed", ("kind",), {"partition__field__name": "kind", "hoodie__metadata__enable": "true"}),
    ],
)
def test_each_partition_has_the_values_of_its_rows_however_directories_are_named(
    name: str, columns: tuple[str, ...], more: dict[str, str], make_landing: MakeLanding, client: Metastore
) -> None:
    landing = make_landing(name, **more)
    land(landing, 1, 0, 6)
    first = landing.table.register()
    land(landing, 2, 6, 12)
    assert landing.table.register() > first
    path = "_hoodie_partition_path"
    rows = landing.read().select(path, *columns).distinct().collect()
    base = f"file:{landing.settings.base_path}"
    written = {
        tuple("__HIVE_DEFAULT_PARTITION__" if row[column] is None else str(row[column]) for column in columns): (
            f"{base}/{row[path]}"
        )
        for row in rows
    }
    assert client.partitions(name, len(columns)) == (written if columns else {})
    assert client.columns(name).items() >= {
        "id": "bigint", "kind": "string", "whole": "int", "at": "timestamp", **dict.fromkeys(columns, "string")
    }.items()  # fmt: skip


def test_a_table_is_read_by_its_name_and_of_the_partitions_only_those_that_are_asked_for(
    make_landing: MakeLanding, metastore: MetastoreServer, tmp_path: Path
) -> None:
    more = {"partition__field__name": "kind", "partition__time__field": "at"}
    with closing(Reader(metastore.uri, tmp_path / "reader")) as reader:
        landing = make_landing("orders", **more)
        land(landing, 1, 0, 6)
        landing.table.register()
        assert reader.rows("select sum(id), count(distinct day), max(at) from orders") == [
            [15, 2, "2026-01-02 12:00:00"]
        ]
        # Changed columns, and one more partition.
        wider = make_landing("orders", WIDER, **more)
        land(wider, 2, 6, 9)
        wider.table.register()
        reader.rows("refresh table orders")
        query = "select id, whole, more from orders where kind = 'buy' order by id"
        assert reader.rows(query) == [[0, 0, None], [3, 3, None], [6, 6, "new"]]
        assert ["whole", "bigint"] in [row[:2] for row in reader.rows("describe orders")]
        # Files in other partitions are not even opened.
        for file in Path(landing.settings.base_path).glob("kind=view/**/*.parquet"):
            file.write_bytes(b"broken")
        reader.rows("refresh table orders")
        assert reader.rows(query) == [[0, 0, None], [3, 3, None], [6, 6, "new"]]
        assert reader.rows("select id from orders where kind = 'buy' and day = '2026-01-02'") == [[3]]
        with pytest.raises(RuntimeError, match="parquet"):
            reader.rows("select sum(whole) from orders")


def test_a_struct_that_gets_a_field_stops_no_partition_and_is_named(
    make_landing: MakeLanding, client: Metastore
) -> None:
    partitioned = {"partition__field__name": "kind"}
    landing = make_landing("nested", "id bigint, kind string, place struct<city: string>", **partitioned)
    land(landing, 1, 0, 1)
    landing.table.register()
    wider = make_landing(
        "nested", "id bigint, kind string, place struct<city: string, lat: double>, more string", **partitioned
    )
    land(wider, 2, 1, 3)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"new types of the columns place:.*Partitions are registered"):
            wider.table.register()
        assert {kind for (kind,) in client.partitions("nested", 1)} == {"buy", "view", "__HIVE_DEFAULT_PARTITION__"}
    assert client.columns("nested")["place"] == "struct<city:string>"
    client.drop("nested")
    wider.table.register()
    assert client.columns("nested")["place"] == "struct<city:string,lat:double>"
    assert len(client.partitions("nested", 1)) == 3


@pytest.mark.thorough
def test_a_class_that_is_not_there_is_named_as_the_reason(make_landing: MakeLanding) -> None:
    glue = "org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool"
    landing = make_landing("glued", catalog__class=glue)
    land(landing, 1, 0, 3)
    with pytest.raises(Unavailable, match=glue):
        landing.table.register()
    land(landing, 2, 3, 6)
    assert landing.read().count() == 6


def test_a_value_that_hudi_cannot_make_of_its_path_registers_nothing_else_in_its_place(
    make_landing: MakeLanding, client: Metastore, kafka
) -> None:
    landing = make_landing("odd", partition__field__name="kind")
    odd_event = {**event(0), "kind": "a=b"}
    produce_values(kafka.address, landing.topic, [json.dumps(odd_event)])  # type: ignore[attr-defined]
    land(landing, 1, 0, 13)
    with pytest.raises(Unavailable, match="a=b"):
        landing.table.register()
    assert ("a",) not in client.partitions("odd", 1)


HUDI = "org.apache.hudi.hadoop.HoodieParquetInputFormat"
PARQUET = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"


@pytest.mark.parametrize(
    ("kind", "place", "input_format", "reason"),
    [
        # Hudi's sync drops the entry, and the metastore then deletes a managed table's files.
        ("MANAGED_TABLE", "theirs", PARQUET, "leads to file:"),
        ("EXTERNAL_TABLE", "theirs", HUDI, "leads to file:"),
        ("EXTERNAL_TABLE", "", PARQUET, "is not a Hudi table"),
    ],
)
def test_an_entry_of_another_table_is_left_as_it_is_and_both_locations_are_named(
    kind: str, place: str, input_format: str, reason: str, make_landing: MakeLanding, client: Metastore, tmp_path: Path
) -> None:
    name = f"taken_{kind[:3].lower()}_{len(place)}"
    landing = make_landing(name)
    base_path = landing.settings.base_path
    theirs = tmp_path / place / name if place else Path(base_path)
    theirs.mkdir(parents=True, exist_ok=True)
    kept = theirs / "kept.parquet"
    if place:
        kept.write_bytes(b"theirs")
    client.create(name, f"file:{theirs}", kind, input_format)
    land(landing, 1, 0, 6)
    for _ in range(2):
        with pytest.raises(ConfigError, match=f"default.{name} {reason}") as refused:
            landing.table.register()
        assert base_path in str(refused.value)
        assert "catalog.table" in str(refused.value)
    assert client.location(name) == f"file:{theirs}"
    assert client.columns(name) == {"theirs": "bigint"}
    assert kept.exists() == bool(place)
    land(landing, 2, 6, 12)
    assert landing.read().count() == 12
    client.drop(name)
    landing.table.register()
    assert client.location(name) == f"file:{base_path}"


def recorded(fleet: Fleet) -> CatalogState:
    return CatalogRecord(fleet.client, fleet.root).last() or CatalogState("none yet")


@pytest.mark.thorough
def test_a_metastore_that_is_away_delays_no_commit_and_is_brought_up_when_it_is_back(
    make_fleet: MakeFleet, metastore: MetastoreServer
) -> None:
    fleet = make_fleet(
        records=900,
        **{
            "catalog.metastore.uris": metastore.uri,
            "catalog.table": "faraway",
            "catalog.interval.ms": 1000,
            "partition.field.name": "kind",
            "spark.hadoop.hive.metastore.client.socket.timeout": "2s",
        },
    )
    metastore.pause()
    fleet.start("w1")
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), 300))
    eventually("a failure is recorded", lambda: recorded(fleet).failures > 0, 60, fleet.logs)
    assert recorded(fleet).instant == ""
    assert "catalog.failed" in fleet.log("w1")
    produce(fleet.kafka, fleet.topic, 900, PARTITIONS, first=900)
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), 600))
    metastore.resume()
    view = fleet.view()
    eventually("it is up to date", lambda: recorded(fleet).committed >= view.ledger.committed, 120, fleet.logs)
    assert recorded(fleet).failures == 0
    assert recorded(fleet).instant == max(transaction.instant or "" for transaction in view.ledger.history)
    fleet.assert_exactly_once(1800)
