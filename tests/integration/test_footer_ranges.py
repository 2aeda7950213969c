"""The column ranges of files that Hudi's writer makes: readers that skip files by them miss no row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from sink.layout.column_ranges import KEY
from tests.integration.conftest import Open
from tests.integration.table_kit import CLUSTERING, by_name
from tests.integration.test_rewrites import EAGER
from tests.integration.upsert_kit import ON_READ, Upserts, send

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

DDL = "id bigint, at bigint, part string, word string, ratio double"
LONG, NAN = "x" * 5000, "NaN"
HIDDEN_BY_HUDI: Mapping[int, Mapping[str, Any]] = {
    1: {"part": "long", "word": LONG, "ratio": 1.5},
    2: {"part": "long", "word": None, "ratio": 1.5},
    3: {"part": "nan", "word": "m", "ratio": NAN},
    4: {"part": "nan", "word": "m", "ratio": NAN},
}
ONE_BUCKET = {"index__type": "bucket", "hoodie__bucket__index__num__buckets": "1"}
SMALL_FILES = {"hoodie__parquet__small__file__limit": "0"}
WRITTEN = [
    pytest.param("", {"index__type": "bloom"}, id="upsert", marks=pytest.mark.thorough),
    pytest.param("", {**ON_READ, **ONE_BUCKET}, id="log files", marks=pytest.mark.thorough),
    pytest.param("compaction", {**ON_READ, **ONE_BUCKET}, id="compaction"),
    pytest.param(
        "clustering", {**CLUSTERING, **SMALL_FILES, "index__type": "bloom"}, id="clustering", marks=pytest.mark.thorough
    ),
]
"""The table service that writes the files, and the settings of its table."""


def change(key: int, at: int, row: Mapping[str, Any]) -> tuple[bytes, bytes]:
    return str(key).encode(), json.dumps({"id": key, "at": at, **row}).encode()


def ids_where(upserts: Upserts, condition: str) -> list[int]:
    options = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
    frame = upserts.spark.read.format("hudi").options(**options).load(upserts.settings.base_path)
    return sorted(row["id"] for row in frame.filter(condition).select("id").collect())


@pytest.mark.parametrize(("service", "settings"), WRITTEN)
def test_a_reader_that_skips_files_finds_long_texts_and_nan(
    open_upserts: Open, kafka, service: str, settings: Mapping[str, str]
) -> None:
    upserts = open_upserts(ddl=DDL, partition__field__name="part", **EAGER, **settings)
    rows = [change(key + more, 1, row) for more in (0, 10) for key, row in HIDDEN_BY_HUDI.items()]
    send(kafka.address, upserts.topic, rows)
    upserts.land((0, 0, 4))
    upserts.land((0, 4, 8))
    if service:
        assert by_name(upserts.table.services())[service].instant
    assert ids_where(upserts, "word is not null") == [1, 3, 4, 11, 13, 14]
    assert ids_where(upserts, f"word = '{LONG}'") == [1, 11]
    assert ids_where(upserts, "word is null") == [2, 12]
    assert ids_where(upserts, "ratio > 5") == [3, 4, 13, 14]


@pytest.mark.thorough
def test_the_ranges_of_other_values_are_those_that_hudi_reads(open_upserts: Open, kafka) -> None:
    ddl = """id bigint, at bigint, kind string, amount decimal(10,2), day date, seen timestamp, flag boolean,
        part double, few int, small float, big decimal(38,10), nobody string, never int, tags array<string>"""
    upserts = open_upserts(ddl=" ".join(ddl.split()), **EAGER, index__type="bloom")
    days = ["1969-12-31", "2024-02-29"]
    rows = [
        {"kind": kind, "amount": f"{at}.25", "day": day, "seen": f"{day}T10:00:00Z", "flag": at > 1, "part": at * -0.5,
         "few": at - 2, "small": at / 3, "big": f"-{at}.5", "tags": ["a"]}
        for at, kind, day in zip((1, 2), "aé", days, strict=True)
    ]  # fmt: skip
    send(kafka.address, upserts.topic, [change(key, 1, rows[key % 2]) for key in range(9)])
    statistics = []
    for carries in (True, False):
        instant = upserts.begin()
        written = upserts.write(instant, (0, 0, 9))
        stats = [json.loads(stat) for stat in written.stats]
        assert all(KEY in stat for stat in stats)
        bare = tuple(json.dumps({name: value for name, value in stat.items() if name != KEY}) for stat in stats)
        upserts.complete(instant, written if carries else replace(written, stats=bare))
        statistics.append(ranges_of(upserts, {stat["path"] for stat in stats}))
    assert statistics[0] == statistics[1]
    assert {row["columnName"] for row in statistics[0]} >= {"id", "amount", "day", "seen", "flag", "nobody", "big"}


def ranges_of(upserts: Upserts, paths: set[str]) -> list[dict[str, Any]]:
    """Returns the metadata table's statistics of these files, without Hudi's own columns and the files' sizes."""
    table = upserts.spark.read.format("hudi").load(f"{upserts.settings.base_path}/.hoodie/metadata")
    rows = table.where("ColumnStatsMetadata is not null").select("ColumnStatsMetadata.*").collect()
    found = [row.asDict(recursive=True) for row in rows if row["fileName"] in paths]
    other = ("fileName", "totalSize", "totalUncompressedSize")
    own = [row for row in found if not row["columnName"].startswith("_hoodie")]
    return sorted(({k: v for k, v in row.items() if k not in other} for row in own), key=str)
