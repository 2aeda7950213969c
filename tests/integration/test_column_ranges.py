"""The column statistics that the Arrow writer carries equal those that Hudi reads from the files' footers, but where
readers that skip files by Hudi's would miss rows."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from table_kit import SINK, allow, checkpoint, table_settings

from coordination.state.model import Slice, WriteTask
from sink.config import Settings
from sink.hudi.base_file_stats import base_file_stats
from sink.hudi.client import HudiClient
from sink.hudi.options import commit_options
from sink.hudi.table import Table, TableOutcome
from sink.layout.column_ranges import KEY
from sink.schema.table_schema import META_COLUMNS, TableSchema, parse_ddl
from sink.storage.files import open_storage
from sink.write.files.base_file import Attempt, BaseFile, InstantGuard
from sink.write.files.parquet_layout import choose_layout
from tests.unlocked import unlocked

pytestmark = pytest.mark.integration

DDL = """id bigint, part string, few int, flag boolean, ratio float, amount double, price decimal(18,4),
    big decimal(38,10), small decimal(5,2), day date, at timestamp, word string, raw binary, nobody string,
    never int, nothing double, inner struct<x: int, y: string>, tags array<string>, counts map<string, bigint>"""
NESTED = "inner.x,inner.y,tags.list.element,counts.key_value.key"
UTC = datetime.timezone.utc
WITH_INDEX = {"hoodie__metadata__enable": "true", "hoodie__metadata__index__column__stats__enable": "true"}

Row = dict[str, Any]


def row(number: int, **more: Any) -> Row:
    return {
        "id": number,
        "part": "p",
        "few": number % 7 - 3,
        "flag": number % 2 == 0,
        "ratio": number / 3,
        "amount": number * -1.5,
        "price": Decimal(number).scaleb(-4) - 1,
        "big": Decimal(-number) * 10**20,
        "small": Decimal("-1.25"),
        "day": datetime.date(1969, 12, 31) + datetime.timedelta(number),
        "at": datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC) + datetime.timedelta(microseconds=number),
        "word": f"word {number:05}",
        "raw": bytes([number % 256, 7]),
        "nobody": None,
        "never": None,
        "nothing": None,
        "inner": {"x": number, "y": "y"} if number % 3 else None,
        "tags": ["a", f"tag {number}"] if number % 2 else [],
        "counts": [("key", number)],
        **more,
    }


ODD: Sequence[Sequence[Row]] = [
    [row(1), row(2)],
    [row(3, amount=0.0, ratio=-0.0), row(4, amount=-0.0, ratio=0.0)],
    [row(5, amount=float("inf"), ratio=float("-inf"))],
    [row(9, word="\uffee", raw=b"\x7f"), row(10, word="", raw=b"\x00\x7f")],
    [row(12, word="ä" * 64, raw=b"")],
    [row(13, few=None, day=None, at=None, flag=None, price=None, word=None, raw=None, ratio=None)],
    [row(14, few=2**31 - 1, id=-(2**63), big=Decimal(10**28 - 1), small=Decimal("999.99"))],
]
"""Row groups."""
UNORDERED = [row(7, word="\U0001f600"), row(8, word="\ufffd", raw=b"\x80\xff")]
"""A row group with texts and bytes that Hudi, where it merges row groups, orders otherwise than Spark."""
NAN, LONG, EMOJI, CUT = float("nan"), "x" * 5000, "\U0001f600", "y" * 100
MISSED_BY_HUDI: Sequence[Sequence[Sequence[Row]]] = [
    [[row(21, word="short"), row(22, word=LONG)]],
    [[row(23, word="m")], [row(24, word="short"), row(25, word=LONG)]],
    [[row(31, amount=NAN), row(32, amount=NAN)]],
    [[row(33, amount=1.0)], [row(34, amount=NAN)], [row(35, amount=NAN), row(36, amount=2.0)]],
    [[row(41, inner={"x": 1, "y": LONG}), row(42, word=EMOJI)], [row(43, word="\ufffd")]],
    [[row(44, word=CUT)], [row(45, word="z")]],
]
"""Files of row groups: by the minima and maxima in their footers readers would skip files with rows that they want."""


class Written:
    """A table with files of the Arrow writer under an instant that is not complete yet."""

    def __init__(self, spark: SparkSession, base: Path, **more: str) -> None:
        sink_settings = {"schema.ddl": " ".join(DDL.split()), "partition.field.name": "part", "record.key.fields": "id"}
        self.settings = table_settings(base, "127.0.0.1:9", **{**sink_settings, **WITH_INDEX, **more})
        self.schema = parse_ddl(DDL, self.settings.provenance)
        self.table = Table(spark, self.settings.table, self.schema, unlocked)
        self.table.ensure()
        self.hudi = hudi_of(spark, self.settings, self.schema)
        self.instant = self.table.begin(1, 1)
        self.stats: list[str] = []

    def write(self, path: str, *groups: Sequence[Row]) -> dict[str, Any]:
        """Writes one file, with each group of rows as a row group."""
        number = len(self.stats)
        storage = open_storage(self.settings.base_path)
        task = WriteTask((Slice("t", number, 0, 9, "topic-id", 0),))
        attempt = Attempt(SINK, SINK, self.instant, f"{number}-0-0", task)
        file = BaseFile(storage, InstantGuard(storage, self.instant), attempt, path, 0)
        tables = [self._rows(group, path, file) for group in groups]
        file.open(choose_layout(tables[0], (), ()), "zstd")
        for rows in tables:
            file.write(rows)
        self.stats.append(file.close())
        return json.loads(self.stats[-1])

    def complete(self, carried: bool = True) -> None:
        stats = self.stats if carried else [json.dumps(without_ranges(stat)) for stat in self.stats]
        outcome = self.table.complete(self.instant, stats, checkpoint(1), allow)
        self.table.stop_heartbeats()
        assert outcome is TableOutcome.COMPLETED

    def _rows(self, rows: Sequence[Row], path: str, file: BaseFile) -> pa.Table:
        meta = {
            "_hoodie_commit_time": self.instant,
            "_hoodie_partition_path": path,
            "_hoodie_file_name": file.name,
        }
        provenance = {"_kafka_topic": "t", "_kafka_partition": 0, "_kafka_offset": 1, "_kafka_timestamp": None}
        columns = [
            pa.array([meta.get(name, f"{name} {values['id']}") for values in rows], pa.string())
            for name in META_COLUMNS
        ]
        for field in self.schema.arrow:
            columns.append(pa.array([{**provenance, **values}[field.name] for values in rows], field.type))
        return pa.table(columns, names=[*META_COLUMNS, *self.schema.arrow.names])


def hudi_of(spark: SparkSession, sink_settings: Settings, schema: TableSchema) -> HudiClient:
    return HudiClient(
        spark, sink_settings.table.store, schema.avro(sink_settings.table_name), commit_options(sink_settings.table)
    )


def without_ranges(stat: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(stat).items() if name != KEY}


def index(spark: SparkSession, base: str) -> list[str]:
    """Returns all entries of the metadata table about columns and about the columns of partitions."""
    spark.catalog.clearCache()
    rows = spark.read.format("hudi").load(f"{base}/.hoodie/metadata").filter("ColumnStatsMetadata is not null")
    return sorted(rows.select("key", "type", "ColumnStatsMetadata.*").toJSON().collect())


@pytest.mark.parametrize("columns", ["", NESTED], ids=["default", "nested"])
def test_the_metadata_table_says_the_same_as_after_hudi_has_read_the_footers(
    spark: SparkSession, tmp_path: Path, columns: str
) -> None:
    more = {"hoodie__metadata__index__column__stats__column__list": columns} if columns else {}
    written = Written(spark, tmp_path / "table", **more)
    for group in ODD:
        written.write("p", group)
    written.write("p", *ODD)
    written.write("p", UNORDERED)
    written.write("q=1/2 3", ODD[0], ODD[1])
    shutil.copytree(tmp_path / "table", tmp_path / "other")
    written.complete()
    other_settings = table_settings(
        tmp_path / "other", "127.0.0.1:9", **{**WITH_INDEX, **more, "partition.field.name": "part"},
        **{"schema.ddl": " ".join(DDL.split()), "record.key.fields": "id"},
    )  # fmt: skip
    table = Table(spark, other_settings.table, written.schema, unlocked)
    stats = [json.dumps(without_ranges(stat)) for stat in written.stats]
    assert table.complete(written.instant, stats, checkpoint(1), allow) is TableOutcome.COMPLETED
    table.stop_heartbeats()
    carried, read = (index(spark, str(tmp_path / name)) for name in ("table", "other"))
    assert carried == read
    names = {json.loads(entry)["columnName"] for entry in carried}
    assert names >= ({"inner.x", "tags.list.element"} if columns else {"id", "word", "big", "nobody", "_kafka_offset"})
    assert all(KEY in json.loads(stat) for stat in written.stats)


def test_hudi_takes_the_carried_statistics_and_does_not_look_at_the_files(spark: SparkSession, tmp_path: Path) -> None:
    written = Written(spark, tmp_path / "table")
    stat = written.write("p", ODD[0])
    file = tmp_path / "table" / stat["path"]
    content = file.read_bytes()
    file.write_bytes(bytes(len(content)))
    written.complete()
    file.write_bytes(content)
    entries = [json.loads(entry) for entry in index(spark, str(tmp_path / "table"))]
    assert [entry["minValue"]["member2"]["value"] for entry in entries if entry["columnName"] == "id"] == [1, 1]
    assert len({entry["type"] for entry in entries}) == 2


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param({"hoodie__metadata__enable": "false"}, marks=pytest.mark.thorough),
        pytest.param({"hoodie__metadata__index__column__stats__enable": "false"}, marks=pytest.mark.thorough),
        {"hoodie__metadata__index__bloom__filter__enable": "true"},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_without_an_index_that_takes_them_the_stats_are_plain(
    spark: SparkSession, tmp_path: Path, setting: dict[str, str]
) -> None:
    written = Written(spark, tmp_path / "table", **setting)
    written.write("p", ODD[0])
    stats = base_file_stats(written.hudi, written.stats, written.schema.avro(SINK))
    assert [str(stat.getClass().getSimpleName()) for stat in stats] == ["HoodieWriteStat"]
    written.complete()


def test_a_file_whose_statistics_were_cut_before_a_wanted_column_is_left_to_hudi(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written(spark, tmp_path / "table")
    monkeypatch.setattr("sink.layout.column_ranges.COLUMNS_MOST", 8)
    written.write("p", ODD[0])
    monkeypatch.setattr("sink.layout.column_ranges.COLUMNS_MOST", 64)
    written.write("p", ODD[1])
    stats = base_file_stats(written.hudi, written.stats, written.schema.avro(SINK))
    has_column_stats = {str(stat.getPath()): bool(stat.getColumnStats().isPresent()) for stat in stats}
    assert [has_column_stats[json.loads(stat)["path"]] for stat in written.stats] == [False, True]
    written.complete()
    assert len(index(spark, str(tmp_path / "table"))) > 0


@pytest.fixture(scope="module")
def numbered(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """A table of the rows 10 to 39, and its three files, each with ten of them."""
    base = tmp_path_factory.mktemp("skipping") / "table"
    written = Written(spark, base)
    for start in (10, 20, 30):
        written.write("p", [row(number) for number in range(start, start + 10)])
    written.complete()
    return base, [base / json.loads(stat)["path"] for stat in written.stats]


def ids_where(spark: SparkSession, base: Path, condition: str, skipping: bool) -> list[int]:
    reader = spark.read.format("hudi").option("hoodie.metadata.enable", "true")
    frame = reader.option("hoodie.enable.data.skipping", str(skipping).lower()).load(str(base))
    return sorted(record["id"] for record in frame.filter(condition).select("id").collect())


@pytest.fixture(scope="module")
def missed_by_hudi(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with each of these files in a partition of its own: Hudi merges files of a partition in Java's order."""
    base = tmp_path_factory.mktemp("missed") / "table"
    written = Written(spark, base, hoodie__metadata__index__column__stats__column__list="id,word,amount,inner.y")
    for number, groups in enumerate(MISSED_BY_HUDI):
        written.write(f"p{number}", *groups)
    written.complete()
    return base


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("word = 'short'", [21, 24]),
        pytest.param("word like 'x%'", [22, 25], marks=pytest.mark.thorough),
        # Spark's own filter of row groups leaves out NaN beside numbers, with or without Hudi.
        ("amount > 5", [31, 32, 34]),
        ("isnan(amount)", [31, 32, 34, 35]),
        pytest.param("amount = 2", [36], marks=pytest.mark.thorough),
        pytest.param(f"word = '{EMOJI}'", [42], marks=pytest.mark.thorough),
        (f"inner.y = '{LONG}'", [41]),
        pytest.param(f"word = '{CUT}'", [44], marks=pytest.mark.thorough),
    ],
)
def test_a_query_that_skips_by_them_misses_no_row_beyond_the_footers_minimum_and_maximum(
    spark: SparkSession, missed_by_hudi: Path, condition: str, ids: list[int]
) -> None:
    assert ids_where(spark, missed_by_hudi, condition, True) == ids


@pytest.mark.parametrize(
    "condition",
    [
        "id = 33",
        "word >= 'word 00038'",
        "price > -0.9985",
        pytest.param("amount < -55", marks=pytest.mark.thorough),
        pytest.param("day = '1970-01-12'", marks=pytest.mark.thorough),
        pytest.param("nobody is not null", marks=pytest.mark.thorough),
    ],
)
def test_a_query_that_skips_by_them_finds_the_same_rows(
    spark: SparkSession, numbered: tuple[Path, list[Path]], condition: str
) -> None:
    assert ids_where(spark, numbered[0], condition, True) == ids_where(spark, numbered[0], condition, False)


def test_a_query_that_skips_by_them_opens_no_other_files(
    spark: SparkSession, numbered: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    base, files = numbered
    shutil.copytree(base, tmp_path / "copy")
    for file in files[:2]:
        (tmp_path / "copy" / file.relative_to(base)).unlink()
    assert ids_where(spark, tmp_path / "copy", "id = 33", True) == [33]


def test_an_incremental_query_finds_the_files_of_a_commit_with_them(
    spark: SparkSession, numbered: tuple[Path, list[Path]]
) -> None:
    reader = spark.read.format("hudi").option("hoodie.datasource.query.type", "incremental")
    frame = reader.option("hoodie.datasource.read.begin.instanttime", "000").load(str(numbered[0]))
    assert sorted(record["id"] for record in frame.select("id").collect()) == list(range(10, 40))
