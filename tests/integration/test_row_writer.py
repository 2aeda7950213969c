"""The row engine writes, with Hudi's own writer, the rows, keys, counts and digests of the Arrow engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from coordination.errors import BadRecord, ConfigError
from coordination.state.model import WriteTask
from sink.config import Settings
from sink.hudi.lock import TableLocks
from sink.hudi.table import Table, TableOutcome
from sink.schema.table_schema import TableSchema, parse_ddl
from sink.write.engines.engine import ArrowEngine, RowEngine
from tests.integration.sinktable import make_settings, produce, tasks_of
from tests.integration.table_kit import allow, checkpoint, connected

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

DDL = (
    "id bigint, kind string, price decimal(10,2), day date, at timestamp, ok boolean, ratio double,"
    " tags array<string>, attributes map<string,int>, place struct<city: string, zip: int>"
)


def event(number: int) -> bytes:
    record = {
        "id": number,
        "kind": ("buy", "view", None)[number % 3],
        "price": f"{number}.25",
        "day": "2024-02-29",
        "at": "2024-02-29T12:00:00.123456Z",
        "ok": number % 2 == 0,
        "ratio": number / 8,
        "tags": ["a", None] if number % 2 else None,
        "attributes": {"n": number},
        "place": {"city": "Zürich", "zip": number},
    }
    return json.dumps(record).encode()


class Landing:
    """A table of its own, with both engines."""

    def __init__(self, spark: SparkSession, settings: Settings, client: KazooClient, ddl: str) -> None:
        self.spark = spark
        self.settings = settings
        self.schema: TableSchema = parse_ddl(ddl, settings.provenance)
        self.table = Table(spark, settings.table, self.schema, TableLocks(client, settings.table.lock))
        self.table.ensure()
        self.rows = RowEngine(spark, settings.table, settings.records, self.schema)
        self.arrow = ArrowEngine(spark, settings.table, settings.records, self.schema)

    def complete(self, instant: str, stats: tuple[str, ...], number: int = 1) -> None:
        outcome = self.table.complete(instant, stats, checkpoint(number), allow)
        assert outcome is TableOutcome.COMPLETED

    def read(self, *columns: str) -> list[tuple[object, ...]]:
        frame = self.spark.read.format("hudi").load(self.settings.base_path)
        selected = (
            frame.select(*columns)
            if columns
            else frame.drop(*(column for column in frame.columns if column.startswith("_hoodie")))
        )
        return sorted((tuple(row) for row in selected.collect()), key=repr)


MakeLanding = Callable[..., Landing]


@pytest.fixture
def make_landing(spark: SparkSession, kafka, zookeeper, topic, tmp_path: Path) -> Iterator[MakeLanding]:
    with connected(zookeeper.address) as client:

        def make(directory: str = "one", ddl: str = DDL, **more: str) -> Landing:
            (tmp_path / directory).mkdir()
            more = {"zookeeper__connect": zookeeper.address, "hoodie__metadata__enable": "false", **more}
            return Landing(
                spark, make_settings(tmp_path / directory, kafka.address, topic_name, ddl, **more), client, ddl
            )

        topic_name = topic(partitions=2)
        make.topic = topic_name  # type: ignore[attr-defined]
        yield make


@pytest.fixture
def tasks(make_landing, kafka) -> list[WriteTask]:
    for partition in (0, 1):
        produce(kafka.address, make_landing.topic, [event(number) for number in range(30)], partition)
    return tasks_of(make_landing.topic, (0, 0, 10), (0, 10, 30), (1, 0, 30))


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, marks=pytest.mark.thorough),
        {"partition__field__name": "kind"},
        {"record__key__fields": "id"},
    ],
)
def test_rows_keys_counts_and_digests_are_those_of_the_arrow_engine(make_landing, tasks, more: dict[str, str]) -> None:
    row_landing, arrow_landing = make_landing("rows", **more), make_landing("arrow", **more)
    row_instant, arrow_instant = row_landing.table.begin(1, 1), arrow_landing.table.begin(1, 1)
    written, expected = row_landing.rows.write(row_instant, tasks), arrow_landing.arrow.write(arrow_instant, tasks)
    assert written.results == expected.results
    assert [result.records for result in written.results] == [10, 20, 30]
    row_landing.complete(row_instant, written.stats)
    arrow_landing.complete(arrow_instant, expected.stats)
    assert len(row_landing.read()) == 60
    assert row_landing.read() == arrow_landing.read()
    key_columns = ("_hoodie_record_key", "_hoodie_partition_path", "_kafka_partition", "_kafka_offset")
    assert row_landing.read(*key_columns) == arrow_landing.read(*key_columns)


URL_ENCODE = "hoodie__datasource__write__partitionpath__urlencode"
PLAIN = ("a b", "Zürich", "100%", "a+b&c", "it's", "-1")
UNENCODED = (*PLAIN, "q?#[]^{", "back\\slash", '"', "<>|;,~", "*")
AWKWARD = (*PLAIN, "_", "k:v,w", "x=y", "%3A", "q?#[]^{", "back\\slash", '"', "12:00", "line\nfeed", "del\x7f", "nul\0")


@pytest.mark.parametrize(
    ("kinds", "more"),
    [
        (UNENCODED, {"partition__field__name": "kind"}),
        pytest.param(
            UNENCODED,
            {"partition__field__name": "kind", "partition__hive__style": "false"},
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            UNENCODED,
            {"partition__field__name": "kind,day", "hoodie__metadata__enable": "true"},
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            AWKWARD,
            {"partition__field__name": "kind", URL_ENCODE: "true", "hoodie__metadata__enable": "true"},
            marks=pytest.mark.thorough,
        ),
        (AWKWARD, {"partition__field__name": "day,kind", URL_ENCODE: "true"}),
        (AWKWARD, {"record__key__fields": "id,kind,day"}),
        pytest.param(
            AWKWARD, {"record__key__fields": "id", "partition__field__name": "day"}, marks=pytest.mark.thorough
        ),
    ],
)
def test_keys_and_partition_paths_are_those_of_hudis_key_generators(
    make_landing, kafka, kinds: tuple[str, ...], more: dict[str, str]
) -> None:
    ddl = "id bigint, kind string, day date"
    row_landing, arrow_landing = make_landing("rows", ddl, **more), make_landing("arrow", ddl, **more)
    days = ("2024-02-29", "9999-12-31")
    records = [{"id": number, "kind": kind, "day": days[number % 2]} for number, kind in enumerate(kinds)]
    if "record__key__fields" not in more:
        records.append({"id": 99, "kind": None, "day": None})
    produce(kafka.address, make_landing.topic, [json.dumps(record).encode() for record in records], 0)
    tasks = tasks_of(make_landing.topic, (0, 0, len(records)))
    row_instant, arrow_instant = row_landing.table.begin(1, 1), arrow_landing.table.begin(1, 1)
    row_landing.complete(row_instant, row_landing.rows.write(row_instant, tasks).stats)
    arrow_landing.complete(arrow_instant, arrow_landing.arrow.write(arrow_instant, tasks).stats)
    generated_columns = ("_hoodie_record_key", "_hoodie_partition_path", "_kafka_offset")
    assert len(row_landing.read("id")) == len(records)
    assert row_landing.read(*generated_columns) == arrow_landing.read(*generated_columns)


def test_an_attempt_repeated_gives_the_same_results_and_other_file_ids(make_landing, tasks) -> None:
    landing = make_landing()
    first = landing.table.begin(1, 1)
    rolled_back = landing.rows.write(first, tasks)
    landing.table.roll_back(first)
    second = landing.table.begin(2, 1)
    written = landing.rows.write(second, tasks)
    assert written.results == rolled_back.results
    file_ids = {json.loads(stat)["fileId"] for stat in written.stats}
    assert not file_ids & {json.loads(stat)["fileId"] for stat in rolled_back.stats}
    landing.complete(second, written.stats, 2)
    assert len(landing.read()) == 60


def test_a_bad_record_is_named_and_nothing_of_it_is_visible(make_landing, tasks, kafka) -> None:
    produce(kafka.address, make_landing.topic, [b"{not json"], 1)
    landing = make_landing()
    instant = landing.table.begin(1, 1)
    with pytest.raises(BadRecord) as bad:
        landing.rows.write(instant, [*tasks, *tasks_of(make_landing.topic, (1, 30, 31))])
    assert (bad.value.topic, bad.value.partition, bad.value.offset) == (make_landing.topic, 1, 30)
    landing.table.roll_back(instant)
    assert landing.read("_kafka_offset") == []


@pytest.mark.parametrize("engine", ["rows", "arrow"])
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("12:00", {"partition__field__name": "kind"}),
        ("k:v", {"partition__field__name": "kind", "partition__hive__style": "false"}),
        ("12:00", {"partition__field__name": "day,kind"}),
        ("line\nfeed", {"partition__field__name": "kind"}),
        ("%3A", {"partition__field__name": "kind"}),
        ("x=y", {"partition__field__name": "kind", "partition__hive__style": "false"}),
        ("a/b", {"partition__field__name": "kind,day", "partition__hive__style": "false"}),
    ],
)
def test_a_directory_that_hudi_or_a_reader_cannot_take_is_a_bad_record(
    make_landing, kafka, engine: str, kind: str, more: dict[str, str]
) -> None:
    records = [{"id": number, "kind": value, "day": "2024-02-29"} for number, value in enumerate(["a", "b", kind, "c"])]
    produce(kafka.address, make_landing.topic, [json.dumps(record).encode() for record in records], 1)
    landing = make_landing(ddl="id bigint, kind string, day date", **more)
    instant = landing.table.begin(1, 1)
    with pytest.raises(BadRecord, match=r"partitionpath\.urlencode=true") as bad:
        getattr(landing, engine).write(instant, tasks_of(make_landing.topic, (1, 0, 4)))
    assert (bad.value.topic, bad.value.partition, bad.value.offset) == (make_landing.topic, 1, 2)
    landing.table.roll_back(instant)
    assert landing.read("_kafka_offset") == []


def test_a_record_without_a_key_is_a_bad_record(make_landing, tasks, kafka) -> None:
    produce(kafka.address, make_landing.topic, [b'{"kind": "buy"}'], 0)
    landing = make_landing(record__key__fields="id")
    instant = landing.table.begin(1, 1)
    with pytest.raises(BadRecord, match="record key column 'id' is null") as bad:
        landing.rows.write(instant, tasks_of(make_landing.topic, (0, 20, 31)))
    assert bad.value.offset == 30


def test_keys_need_columns_to_be_made_of(make_landing) -> None:
    with pytest.raises(ConfigError, match=r"record\.key\.fields"):
        make_landing(provenance__columns="false", write__engine="hudi").rows.check()


def test_settings_that_hudi_refuses_are_refused_before_a_table_is_made(make_landing, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Hudi refuses its settings \(hoodie\.\*\): .*NONSENSE"):
        make_landing("refused", hoodie__metrics__reporter__type="NONSENSE")
    assert not (tmp_path / "refused" / ".hoodie").exists()


def test_a_table_without_meta_columns(make_landing, tasks) -> None:
    landing = make_landing(hoodie__populate__meta__fields="false")
    instant = landing.table.begin(1, 1)
    landing.complete(instant, landing.rows.write(instant, tasks).stats)
    assert len(landing.read()) == 60
