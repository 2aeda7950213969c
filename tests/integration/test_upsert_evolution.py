"""Columns that change while the rows of a table change: what is read of rows that were written before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

from coordination.errors import TableError
from sink.audit import audit
from tests.integration.table_kit import SINK, connected
from tests.integration.upsert_kit import (
    BUCKETS,
    BY_LOG,
    NO_METADATA,
    ON_READ,
    ORDERED,
    RECORD_INDEX,
    Change,
    Upserts,
    send,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

Row = dict[str, Any]

BEFORE = (
    "id INT, at BIGINT, whole INT, number INT, real FLOAT, price DECIMAL(9,2), place STRUCT<city: STRING>,"
    " parts ARRAY<STRUCT<part: INT>>, by MAP<STRING, STRUCT<v: INT>>"
)
WIDER = (
    "added STRING, id BIGINT, at BIGINT, whole BIGINT, number DOUBLE, real DOUBLE, price DECIMAL(18,2),"
    " place STRUCT<city: STRING, lat: DOUBLE>, parts ARRAY<STRUCT<part: INT, name: STRING>>,"
    " by MAP<STRING, STRUCT<v: INT, w: STRING>>"
)
MORE = f"added STRING, {BEFORE}, born STRUCT<city: STRING>"
OLD = {
    "whole": 2**31 - 2, "number": 7, "real": 0.5, "price": "1234567.89", "place": {"city": "Bern"},
    "parts": [{"part": 1}], "by": {"k": {"v": 2}},
}  # fmt: skip
NEW = {
    "added": "a", "whole": 2**40, "number": 7.25, "real": 1e300, "price": "1234567890123456.78",
    "place": {"city": "Bern", "lat": 46.9}, "parts": [{"part": 3, "name": "n"}], "by": {"k": {"v": 2, "w": "w"}},
}  # fmt: skip
READ_OLD = {
    **OLD, "added": None, "price": Decimal("1234567.89"), "place": {"city": "Bern", "lat": None},
    "parts": [{"part": 1, "name": None}], "by": {"k": {"v": 2, "w": None}},
}  # fmt: skip
READ_NEW = {**NEW, "price": Decimal("1234567890123456.78")}
# Of the types of before.
MORE_OLD = {**OLD, "price": READ_OLD["price"], "added": None, "born": None}
MORE_NEW = {**MORE_OLD, "whole": 2**31 - 1, "number": 8, "real": 1.5, "added": "a", "born": {"city": "Ulm"}}

# Log files of before and after belong to one base file.
ONE_BUCKET = {**BUCKETS, "hoodie__bucket__index__num__buckets": "1"}

Open = Callable[..., Upserts]


@pytest.fixture
def opened(spark, kafka, zookeeper, topic, tmp_path: Path) -> Iterator[Open]:
    """One table, whose sink was started with other settings each time."""
    name = topic()
    with connected(zookeeper.address) as client:
        made: list[Upserts] = []

        def make(ddl: str, **more: str) -> Upserts:
            made.append(Upserts(spark, client, tmp_path / "place", kafka.address, name, ddl=ddl, **more))
            return made[-1].go_on_as(made[-2]) if made[:-1] else made[-1]

        yield make
        for each in made:
            each.table.stop_heartbeats()


def change(key: int, at: int, row: Row, **more: Any) -> Change:
    return str(key).encode(), json.dumps({"id": key, "at": at, **row, **more}).encode()


def spark_rows(one: Upserts, metadata: str = "true", where: str = "true") -> dict[int, Row]:
    frame = one.spark.read.format("hudi").option("hoodie.metadata.enable", metadata).load(one.settings.base_path)
    return by_id(row.asDict(recursive=True) for row in frame.where(where).collect())


def rust_rows(one: Upserts) -> dict[int, Row]:
    """As hudi-rs reads them."""
    found = HudiTableBuilder.from_base_uri(Path(one.settings.base_path).as_uri()).build().read()
    return by_id(pa.Table.from_batches(found).to_pylist(maps_as_pydicts="strict"))


def by_id(rows: Any) -> dict[int, Row]:
    found = [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows]
    assert len({row["id"] for row in found}) == len(found)
    return {row.pop("id"): row for row in found}


@pytest.mark.parametrize(
    ("more", "ddl", "read_old", "read_new"),
    [
        pytest.param({**ORDERED, **NO_METADATA}, WIDER, READ_OLD, READ_NEW, marks=pytest.mark.thorough),
        ({**ORDERED, **ON_READ, **ONE_BUCKET}, MORE, MORE_OLD, MORE_NEW),
        pytest.param({**BY_LOG, **ON_READ, **NO_METADATA}, MORE, MORE_OLD, MORE_NEW, marks=pytest.mark.thorough),
    ],
    ids=["copy on write, bloom", "merge on read, buckets", "merge on read, bloom"],
)
def test_rows_of_before_and_after_are_read_alike_and_change_as_ever(
    opened: Open, kafka: Any, more: dict[str, str], ddl: str, read_old: Row, read_new: Row
) -> None:
    new = {**read_new, "price": str(read_new["price"])}
    one = opened(BEFORE, **more)
    base = [change(key, 1, OLD) for key in (1, 2, 3, 4, 5)]
    # The last that is known of 2 and 3 is in log files, if the table has any.
    logs = [change(2, 2, OLD), change(3, 2, OLD, _hoodie_is_deleted=True)]
    first = [change(4, 3, new), change(6, 3, new), change(5, 3, {}, _hoodie_is_deleted=True)]
    second = [change(6, 4, OLD), change(1, 4, new)]
    send(kafka.address, one.topic, [*base, *logs, *first, *second])
    one.land((0, 0, 5))
    one.land((0, 5, 7))
    on_read = one.hudi.merges_on_read
    assert any(".log." in path.name for path in one.files()) == on_read
    if on_read:
        with pytest.raises(TableError, match=r"whole is INT in the table, BIGINT in the records \(in a merge-on-read"):
            opened(WIDER, **more)

    after = opened(ddl, **more)
    before = {1: OLD, 2: OLD, 4: OLD, 5: OLD}
    instant = after.begin()
    after.write(instant, (0, 7, 10))
    after.table.roll_back(instant)
    assert {key: row["whole"] for key, row in spark_rows(one).items()} == dict.fromkeys(before, OLD["whole"])
    after.land((0, 7, 10))
    kept = {2: {"at": 2, **read_old}, 4: {"at": 3, **read_new}}
    assert_reads(after, {1: {"at": 1, **read_old}, **kept, 6: {"at": 3, **read_new}})
    after.land((0, 10, 12))
    rows = {1: {"at": 4, **read_new}, **kept, 6: {"at": 4, **read_old}}
    assert_reads(after, rows)
    for where, keys in {f"whole > {OLD['whole']}": {1, 4}, "number = 7": {2, 6}, "added IS NULL": {2, 6}}.items():
        assert set(spark_rows(after, where=where)) == keys
    if on_read:
        services = after.services()
        services.compact(services.scheduleCompaction(after.none).get(), True)
        services.close()
        assert_reads(after, rows)
    report = audit(after.settings.base_path, SINK)
    assert report.held, report.to_json()
    with pytest.raises(TableError, match=r"added string.* in the table, not in the schema"):
        opened(BEFORE, **more)


def assert_reads(one: Upserts, rows: dict[int, Row]) -> None:
    for metadata in ("true", "false"):
        assert spark_rows(one, metadata) == rows
    assert rust_rows(one) == rows


def test_inserts_that_fill_a_file_of_before_keep_its_rows(opened: Open, kafka: Any) -> None:
    more = {"write__operation": "insert", **NO_METADATA}
    one = opened(BEFORE, **more)
    send(kafka.address, one.topic, [change(1, 1, OLD), change(2, 1, NEW)])
    (before,) = one.land((0, 0, 1)).stats
    after = opened(WIDER, **more)
    (filled,) = after.land((0, 1, 2)).stats
    assert json.loads(filled)["fileId"] == json.loads(before)["fileId"]
    assert_reads(after, {1: {"at": 1, **READ_OLD}, 2: {"at": 1, **READ_NEW}})


def test_a_record_index_over_log_files_takes_new_columns(opened: Open, kafka: Any) -> None:
    more = {**BY_LOG, **ON_READ, **RECORD_INDEX}
    one = opened("id INT, at BIGINT, whole INT", **more)
    send(kafka.address, one.topic, [change(1, 1, {"whole": 1}), change(1, 2, {"whole": 2, "added": "a"})])
    one.land((0, 0, 1))
    after = opened("id INT, at BIGINT, whole INT, added STRING", **more)
    after.land((0, 1, 2))
    assert any(".log." in path.name for path in after.files())
    assert spark_rows(after) == {1: {"at": 2, "whole": 2, "added": "a"}}
