"""The row engine's contract: the rows, keys, counts and digests of the Arrow engine, written by Hudi's own
writer.
"""

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
from sink.hudi import Table, TableOutcome
from sink.hudi.lock import TableLocks
from sink.schema import TableSchema, parse_ddl
from sink.write.arrow_engine import ArrowEngine
from sink.write.row_engine import RowEngine
from tests.integration.sinktable import make_settings, produce, slices_of, tasks_for, tasks_of
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

    def __init__(self, spark: SparkSession, given: Settings, client: KazooClient, ddl: str) -> None:
        self.spark = spark
        self.settings = given
        self.schema: TableSchema = parse_ddl(ddl, given.provenance)
        self.table = Table(spark, given, self.schema, TableLocks(client, given))
        self.table.ensure()
        self.rows = RowEngine(spark, given, self.schema)
        self.arrow = ArrowEngine(spark, given, self.schema)

    def complete(self, instant: str, stats: tuple[str, ...], number: int = 1) -> None:
        outcome = self.table.complete(instant, stats, checkpoint(number), allow)
        assert outcome is TableOutcome.COMPLETED

    def read(self, *columns: str) -> list[tuple[object, ...]]:
        frame = self.spark.read.format("hudi").load(self.settings.base_path)
        found = (
            frame.select(*columns) if columns else frame.drop(*(c for c in frame.columns if c.startswith("_hoodie")))
        )
        return sorted((tuple(row) for row in found.collect()), key=repr)


MakeLanding = Callable[..., Landing]


@pytest.fixture
def landing(spark: SparkSession, kafka, zookeeper, topic, tmp_path: Path) -> Iterator[MakeLanding]:
    with connected(zookeeper.address) as client:

        def make(place: str = "one", ddl: str = DDL, **more: str) -> Landing:
            (tmp_path / place).mkdir()
            more = {"zookeeper__connect": zookeeper.address, "hoodie__metadata__enable": "false", **more}
            return Landing(spark, make_settings(tmp_path / place, kafka.address, topic_name, ddl, **more), client, ddl)

        topic_name = topic(partitions=2)
        make.topic = topic_name  # type: ignore[attr-defined]
        yield make


@pytest.fixture
def tasks(landing, kafka) -> list[WriteTask]:
    for partition in (0, 1):
        produce(kafka.address, landing.topic, [event(number) for number in range(30)], partition)
    return tasks_of(landing.topic, (0, 0, 10), (0, 10, 30), (1, 0, 30))


@pytest.mark.parametrize("more", [{}, {"partition__field__name": "kind"}, {"record__key__fields": "id"}])
def test_rows_keys_counts_and_digests_are_those_of_the_arrow_engine(landing, tasks, more: dict[str, str]) -> None:
    one, two = landing("rows", **more), landing("arrow", **more)
    by_rows, by_arrow = one.table.begin(1, 1), two.table.begin(1, 1)
    written, expected = one.rows.write(by_rows, tasks), two.arrow.write(by_arrow, tasks)
    assert written.results == expected.results
    assert [result.records for result in written.results] == [10, 20, 30]
    one.complete(by_rows, written.stats)
    two.complete(by_arrow, expected.stats)
    assert len(one.read()) == 60
    assert one.read() == two.read()
    keys = ("_hoodie_record_key", "_hoodie_partition_path", "_kafka_partition", "_kafka_offset")
    assert one.read(*keys) == two.read(*keys)


URL_ENCODE = "hoodie__datasource__write__partitionpath__urlencode"
PLAIN = ("a b", "Zürich", "100%", "a+b&c", "it's", "_", "-1")
UNENCODED = (*PLAIN, "q?#[]^{", "back\\slash", '"', "<>|;,~", "*")
AWKWARD = (*PLAIN, "k:v,w", "x=y", "%3A", "q?#[]^{", "back\\slash", '"', "12:00", "line\nfeed", "del\x7f", "nul\0")


@pytest.mark.parametrize(
    ("kinds", "more"),
    [
        (UNENCODED, {"partition__field__name": "kind"}),
        (UNENCODED, {"partition__field__name": "kind", "partition__hive__style": "false"}),
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
        (AWKWARD, {"record__key__fields": "id,kind"}),
        (AWKWARD, {"record__key__fields": "id", "partition__field__name": "day"}),
    ],
)
def test_keys_and_partition_paths_are_those_of_hudis_key_generators(
    landing, kafka, kinds: tuple[str, ...], more: dict[str, str]
) -> None:
    ddl = "id bigint, kind string, day date"
    one, two = landing("rows", ddl, **more), landing("arrow", ddl, **more)
    records = [{"id": number, "kind": kind, "day": "2024-02-29"} for number, kind in enumerate(kinds)]
    if "record__key__fields" not in more:
        records += [{"id": 98, "kind": "", "day": "2024-02-29"}, {"id": 99, "kind": None, "day": None}]
    produce(kafka.address, landing.topic, [json.dumps(record).encode() for record in records], 0)
    tasks = tasks_of(landing.topic, (0, 0, len(records)))
    by_rows, by_arrow = one.table.begin(1, 1), two.table.begin(1, 1)
    one.complete(by_rows, one.rows.write(by_rows, tasks).stats)
    two.complete(by_arrow, two.arrow.write(by_arrow, tasks).stats)
    made = ("_hoodie_record_key", "_hoodie_partition_path", "_kafka_offset")
    assert len(one.read()) == len(records)
    assert one.read(*made) == two.read(*made)


@pytest.mark.parametrize("engine", ["rows", "arrow"])
def test_batches_of_large_records_that_spark_reads_are_bounded_by_bytes(landing, kafka, engine: str) -> None:
    one = landing(ddl="id bigint, kind string", kafka__reader="spark")
    large = [json.dumps({"id": number, "kind": "x" * 900_000}).encode() for number in range(40)]
    produce(kafka.address, landing.topic, large, 0)
    slices = slices_of(landing.topic, (0, 0, 40))
    writer = getattr(one, engine)
    one.complete(instant := one.table.begin(1, 1), writer.write(instant, tasks_for(slices)).stats)
    assert len(one.read("_kafka_offset")) == 40
    rows = writer._inputs._sizes.session(slices).conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert int(rows) == 32


def test_an_attempt_repeated_gives_the_same_results_and_other_file_ids(landing, tasks) -> None:
    one = landing()
    first = one.table.begin(1, 1)
    dead = one.rows.write(first, tasks)
    one.table.roll_back(first)
    second = one.table.begin(2, 1)
    written = one.rows.write(second, tasks)
    assert written.results == dead.results
    ids = {json.loads(stat)["fileId"] for stat in written.stats}
    assert not ids & {json.loads(stat)["fileId"] for stat in dead.stats}
    one.complete(second, written.stats, 2)
    assert len(one.read()) == 60


def test_a_bad_record_is_named_and_nothing_of_it_is_visible(landing, tasks, kafka) -> None:
    produce(kafka.address, landing.topic, [b"{not json"], 1)
    one = landing()
    instant = one.table.begin(1, 1)
    with pytest.raises(BadRecord) as bad:
        one.rows.write(instant, [*tasks, *tasks_of(landing.topic, (1, 30, 31))])
    assert (bad.value.topic, bad.value.partition, bad.value.offset) == (landing.topic, 1, 30)
    one.table.roll_back(instant)
    assert one.read("_kafka_offset") == []


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
    ],
)
def test_a_directory_that_hudi_or_a_reader_cannot_take_is_a_bad_record(
    landing, kafka, engine: str, kind: str, more: dict[str, str]
) -> None:
    records = [{"id": number, "kind": each, "day": "2024-02-29"} for number, each in enumerate(["a", "b", kind, "c"])]
    produce(kafka.address, landing.topic, [json.dumps(record).encode() for record in records], 1)
    one = landing(ddl="id bigint, kind string, day date", **more)
    instant = one.table.begin(1, 1)
    with pytest.raises(BadRecord, match=r"partitionpath\.urlencode=true") as bad:
        getattr(one, engine).write(instant, tasks_of(landing.topic, (1, 0, 4)))
    assert (bad.value.topic, bad.value.partition, bad.value.offset) == (landing.topic, 1, 2)
    one.table.roll_back(instant)
    assert one.read("_kafka_offset") == []


def test_a_record_without_a_key_is_a_bad_record(landing, tasks, kafka) -> None:
    produce(kafka.address, landing.topic, [b'{"kind": "buy"}'], 0)
    one = landing(record__key__fields="id")
    instant = one.table.begin(1, 1)
    with pytest.raises(BadRecord, match="record key column 'id' is null") as bad:
        one.rows.write(instant, tasks_of(landing.topic, (0, 20, 31)))
    assert bad.value.offset == 30


def test_keys_need_columns_to_be_made_of(landing) -> None:
    with pytest.raises(ConfigError, match=r"record\.key\.fields"):
        landing(provenance__columns="false").rows.check()


def test_settings_that_hudi_refuses_are_refused_before_a_table_is_made(landing, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Hudi refuses its settings \(hoodie\.\*\): .*NONSENSE"):
        landing("refused", hoodie__clean__policy="NONSENSE")
    assert not (tmp_path / "refused" / ".hoodie").exists()


def test_a_table_without_meta_columns(landing, tasks) -> None:
    one = landing(hoodie__populate__meta__fields="false")
    instant = one.table.begin(1, 1)
    one.complete(instant, one.rows.write(instant, tasks).stats)
    assert len(one.read()) == 60
