"""Columns change while the rows of a table change: readers see old rows with the new columns."""

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
from sink.audit.audit import audit
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

OLD_DDL = (
    "id INT, at BIGINT, whole INT, number INT, real FLOAT, price DECIMAL(9,2), place STRUCT<city: STRING>,"
    " parts ARRAY<STRUCT<part: INT>>, by MAP<STRING, STRUCT<v: INT>>"
)
WIDER_DDL = (
    "added STRING, id BIGINT, at BIGINT, whole BIGINT, number DOUBLE, real DOUBLE, price DECIMAL(18,2),"
    " place STRUCT<city: STRING, lat: DOUBLE>, parts ARRAY<STRUCT<part: INT, name: STRING>>,"
    " by MAP<STRING, STRUCT<v: INT, w: STRING>>"
)
EXTENDED_DDL = f"added STRING, {OLD_DDL}, born STRUCT<city: STRING>"
OLD = {
    "whole": 2**31 - 2, "number": 7, "real": 0.5, "price": "1234567.89", "place": {"city": "Bern"},
    "parts": [{"part": 1}], "by": {"k": {"v": 2}},
}  # fmt: skip
NEW = {
    "added": "a", "whole": 2**40, "number": 7.25, "real": 1e300, "price": "1234567890123456.78",
    "place": {"city": "Bern", "lat": 46.9}, "parts": [{"part": 3, "name": "n"}], "by": {"k": {"v": 2, "w": "w"}},
}  # fmt: skip
OLD_IN_WIDER = {
    **OLD, "added": None, "price": Decimal("1234567.89"), "place": {"city": "Bern", "lat": None},
    "parts": [{"part": 1, "name": None}], "by": {"k": {"v": 2, "w": None}},
}  # fmt: skip
NEW_IN_WIDER = {**NEW, "price": Decimal("1234567890123456.78")}
# The types of OLD_DDL.
OLD_IN_EXTENDED = {**OLD, "price": OLD_IN_WIDER["price"], "added": None, "born": None}
NEW_IN_EXTENDED = {
    **OLD_IN_EXTENDED,
    "whole": 2**31 - 1,
    "number": 8,
    "real": 1.5,
    "added": "a",
    "born": {"city": "Ulm"},
}

# Log files from before and after the change belong to one base file.
ONE_BUCKET = {**BUCKETS, "hoodie__bucket__index__num__buckets": "1"}

Open = Callable[..., Upserts]


@pytest.fixture
def open_upserts(spark, kafka, zookeeper, topic, tmp_path: Path) -> Iterator[Open]:
    """Opens one table, each time with other settings of its sink."""
    name = topic()
    with connected(zookeeper.address) as client:
        opened: list[Upserts] = []

        def make(ddl: str, **more: str) -> Upserts:
            more.setdefault("schema__widen__decimals", "true")
            opened.append(Upserts(spark, client, tmp_path / "sink", kafka.address, name, ddl=ddl, **more))
            return opened[-1].go_on_as(opened[-2]) if opened[:-1] else opened[-1]

        yield make
        for upserts in opened:
            upserts.table.stop_heartbeats()


def change(key: int, at: int, row: Row, **more: Any) -> Change:
    return str(key).encode(), json.dumps({"id": key, "at": at, **row, **more}).encode()


def spark_rows(upserts: Upserts, metadata: str = "true", where: str = "true") -> dict[int, Row]:
    frame = (
        upserts.spark.read.format("hudi").option("hoodie.metadata.enable", metadata).load(upserts.settings.base_path)
    )
    return by_id(row.asDict(recursive=True) for row in frame.where(where).collect())


def rust_rows(upserts: Upserts) -> dict[int, Row]:
    """Returns the rows as hudi-rs reads them."""
    batches = HudiTableBuilder.from_base_uri(Path(upserts.settings.base_path).as_uri()).build().read()
    return by_id(pa.Table.from_batches(batches).to_pylist(maps_as_pydicts="strict"))


def by_id(rows: Any) -> dict[int, Row]:
    plain_rows = [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows]
    assert len({row["id"] for row in plain_rows}) == len(plain_rows)
    return {row.pop("id"): row for row in plain_rows}


@pytest.mark.parametrize(
    ("more", "ddl", "read_old", "read_new"),
    [
        pytest.param({**ORDERED, **NO_METADATA}, WIDER_DDL, OLD_IN_WIDER, NEW_IN_WIDER, marks=pytest.mark.thorough),
        ({**ORDERED, **ON_READ, **ONE_BUCKET}, EXTENDED_DDL, OLD_IN_EXTENDED, NEW_IN_EXTENDED),
        pytest.param(
            {**BY_LOG, **ON_READ, **RECORD_INDEX},
            EXTENDED_DDL,
            OLD_IN_EXTENDED,
            NEW_IN_EXTENDED,
            marks=pytest.mark.thorough,
        ),
    ],
    ids=["copy on write, bloom", "merge on read, buckets", "merge on read, record index"],
)
def test_rows_of_before_and_after_are_read_alike_and_change_as_ever(
    open_upserts: Open, kafka: Any, more: dict[str, str], ddl: str, read_old: Row, read_new: Row
) -> None:
    new_row = {**read_new, "price": str(read_new["price"])}
    old_upserts = open_upserts(OLD_DDL, **more)
    inserts = [change(key, 1, OLD) for key in (1, 2, 3, 4, 5)]
    # The newest changes of 2 and 3 are in log files, if the table has any.
    logged_changes = [change(2, 2, OLD), change(3, 2, OLD, _hoodie_is_deleted=True)]
    first_changes = [change(4, 3, new_row), change(6, 3, new_row), change(5, 3, {}, _hoodie_is_deleted=True)]
    second_changes = [change(6, 4, OLD), change(1, 4, new_row)]
    send(kafka.address, old_upserts.topic, [*inserts, *logged_changes, *first_changes, *second_changes])
    old_upserts.land((0, 0, 5))
    old_upserts.land((0, 5, 7))
    on_read = old_upserts.hudi.merges_on_read
    assert any(".log." in path.name for path in old_upserts.files()) == on_read
    if on_read:
        with pytest.raises(TableError, match=r"whole is INT in the table, BIGINT in the records \(in a merge-on-read"):
            open_upserts(WIDER_DDL, **more)

    new_upserts = open_upserts(ddl, **more)
    old_rows = {1: OLD, 2: OLD, 4: OLD, 5: OLD}
    instant = new_upserts.begin()
    new_upserts.write(instant, (0, 7, 10))
    new_upserts.table.roll_back(instant)
    assert {key: row["whole"] for key, row in spark_rows(old_upserts).items()} == dict.fromkeys(old_rows, OLD["whole"])
    new_upserts.land((0, 7, 10))
    unchanged = {2: {"at": 2, **read_old}, 4: {"at": 3, **read_new}}
    assert_reads(new_upserts, {1: {"at": 1, **read_old}, **unchanged, 6: {"at": 3, **read_new}})
    new_upserts.land((0, 10, 12))
    rows = {1: {"at": 4, **read_new}, **unchanged, 6: {"at": 4, **read_old}}
    assert_reads(new_upserts, rows)
    for where, keys in {f"whole > {OLD['whole']}": {1, 4}, "number = 7": {2, 6}, "added IS NULL": {2, 6}}.items():
        assert set(spark_rows(new_upserts, where=where)) == keys
    if on_read:
        services = new_upserts.services()
        services.compact(services.scheduleCompaction(new_upserts.none).get(), True)
        services.close()
        assert_reads(new_upserts, rows)
    report = audit(new_upserts.settings.base_path, SINK)
    assert report.held, report.to_json()
    with pytest.raises(TableError, match=r"added string.* in the table, not in the schema"):
        open_upserts(OLD_DDL, **more)


def assert_reads(upserts: Upserts, rows: dict[int, Row]) -> None:
    for metadata in ("true", "false"):
        assert spark_rows(upserts, metadata) == rows
    assert rust_rows(upserts) == rows


def test_inserts_that_fill_a_file_of_before_keep_its_rows(open_upserts: Open, kafka: Any) -> None:
    more = {"write__operation": "insert", **NO_METADATA}
    old_upserts = open_upserts(OLD_DDL, **more)
    send(kafka.address, old_upserts.topic, [change(1, 1, OLD), change(2, 1, NEW)])
    (old_stat,) = old_upserts.land((0, 0, 1)).stats
    new_upserts = open_upserts(WIDER_DDL, **more)
    (filled_stat,) = new_upserts.land((0, 1, 2)).stats
    assert json.loads(filled_stat)["fileId"] == json.loads(old_stat)["fileId"]
    assert_reads(new_upserts, {1: {"at": 1, **OLD_IN_WIDER}, 2: {"at": 1, **NEW_IN_WIDER}})


def test_a_record_index_over_log_files_takes_new_columns(open_upserts: Open, kafka: Any) -> None:
    more = {**BY_LOG, **ON_READ, **RECORD_INDEX}
    old_upserts = open_upserts("id INT, at BIGINT, whole INT", **more)
    send(kafka.address, old_upserts.topic, [change(1, 1, {"whole": 1}), change(1, 2, {"whole": 2, "added": "a"})])
    old_upserts.land((0, 0, 1))
    new_upserts = open_upserts("id INT, at BIGINT, whole INT, added STRING", **more)
    new_upserts.land((0, 1, 2))
    assert any(".log." in path.name for path in new_upserts.files())
    assert spark_rows(new_upserts) == {1: {"at": 2, "whole": 2, "added": "a"}}


@pytest.mark.thorough
@pytest.mark.parametrize("more", [NO_METADATA, RECORD_INDEX], ids=["bloom", "record index"])
def test_an_int_that_orders_rows_may_become_a_bigint(open_upserts: Open, kafka: Any, more: dict[str, str]) -> None:
    """The values of before and after the change are compared as numbers, those of deletes too."""
    before = [change(key, 100, {"kind": "old"}) for key in range(1, 7)]
    after = [
        change(1, 50, {"kind": "late"}),
        change(2, 100, {"kind": "equal"}),
        change(3, 2**40, {"kind": "new"}),
        change(4, 50, {}, _hoodie_is_deleted=True),
        change(5, 0, {}, _hoodie_is_deleted=True),
        change(6, 2**40, {}, _hoodie_is_deleted=True),
    ]
    narrow = open_upserts("id BIGINT, at INT, kind STRING", **ORDERED, **more)
    send(kafka.address, narrow.topic, [*before, *after])
    narrow.land((0, 0, len(before)))
    wide = open_upserts("id BIGINT, at BIGINT, kind STRING", **ORDERED, **more)
    wide.land((0, len(before), len(before) + len(after)))
    kinds = {key: row["kind"] for key, row in spark_rows(wide).items()}
    assert kinds == {1: "old", 2: "equal", 3: "new", 4: "old", 5: "old"}
    assert audit(wide.settings.base_path, SINK).held
