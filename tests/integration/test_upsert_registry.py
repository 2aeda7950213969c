"""Upsert tables fed through a real schema registry: Debezium's events and keys in Avro, columns that follow them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coordination.errors import BadRecord
from tests.integration.debezium_kit import Connector, optional
from tests.integration.table_kit import connected
from tests.integration.upsert_kit import Upserts

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600), pytest.mark.xdist_group("registry")]

KEY = {"shop": "string", "id": "int"}
COLUMNS = {"id": "int", "shop": "string", "amount": optional("int"), "note": optional("string")}
MORE = {**COLUMNS, "paid": optional("boolean")}
WIDER = {**MORE, "amount": optional("long")}

ON_READ = {
    "target__table__type": "merge_on_read",
    "index__type": "bucket",
    "hoodie__bucket__index__num__buckets": "2",
}

Open = Callable[..., Upserts]


@pytest.fixture
def opened(spark, kafka, zookeeper, registry_url: str, tmp_path: Path) -> Iterator[Open]:
    """A table of the events in a topic, at a place."""
    made: list[Upserts] = []
    with connected(zookeeper.address) as client:

        def make(topic: str, place: str = "one", **more: str) -> Upserts:
            given = {
                "value__envelope": "debezium",
                "value__format": "avro-confluent",
                "delete__key__format": "avro-confluent",
                "schema__registry__url": registry_url,
                "hoodie__metadata__enable": "false",
                "record__key__fields": "id,shop",
                **more,
            }
            made.append(Upserts(spark, client, tmp_path / place, kafka.address, topic, **given))
            return made[-1]

        yield make
        for each in made:
            each.table.stop_heartbeats()


def row(key: int, shop: str = "a", amount: int | None = 1, **more: Any) -> dict[str, Any]:
    return {"id": key, "shop": shop, "amount": amount, "note": None, **more}


def found(one: Upserts, column: str = "amount") -> dict[tuple[int, str], Any]:
    rows = one.spark.read.format("hudi").load(one.settings.base_path).select("id", "shop", column).collect()
    assert len({(each["id"], each["shop"]) for each in rows}) == len(rows)
    return {(each["id"], each["shop"]): each[column] for each in rows}


@pytest.mark.parametrize(
    ("kind", "place", "more", "columns", "amount", "schema_conflict"),
    [
        ("postgresql", "lsn", ON_READ, MORE, 20, "id is INT in the table, DOUBLE in the records (in a merge-on-read"),
        # Keys are compared as texts: 1 and 1.0 would be two rows.
        pytest.param(
            *("mysql", "binlog", {}, WIDER, 2**40, "record.key.fields: column 'id' has type double"),
            marks=pytest.mark.thorough,
        ),
    ],
    ids=["postgresql, merge on read", "mysql, copy on write"],
)
def test_a_table_follows_debeziums_avro_and_keys_in_avro_delete_their_rows(
    opened: Open,
    registry_url: str,
    kafka: Any,
    topic: Callable[[], str],
    kind: str,
    place: str,
    more: dict[str, str],
    columns: dict[str, Any],
    amount: int,
    schema_conflict: str,
) -> None:
    name = topic()
    shop = Connector(kind, registry_url, kafka.address, name)
    shop.describe(KEY, COLUMNS)
    for change in (row(1), row(1, "b", 2), row(2, "a", 3), row(3, "a", 4), row(3, "b", 5)):
        shop.send("c", key(change), None, change)
    shop.send("u", key(row(1)), None, row(1, "a", 10))
    subject = {"ddl": "", "schema__subject": f"{name}-value"}
    one, ordered = opened(name, **subject, **more), opened(name, "ordered", debezium__ordering=place, **subject)
    land(shop, one, ordered)
    assert found(one) == {(1, "a"): 10, (1, "b"): 2, (2, "a"): 3, (3, "a"): 4, (3, "b"): 5}
    # Of a deleted row MySQL tells everything, Postgres by default the key, and without a replica identity nothing.
    whole = kind == "mysql"
    shop.send("d", key(row(2)), row(2, "a", 3) if whole else row(2, "a", None), None)
    shop.tombstone(key(row(2)))
    shop.send("d", key(row(3)), row(3, "a", 4) if whole else None, None)
    # The event before it has been compacted away.
    shop.tombstone(key(row(3, "b")))
    land(shop, one, ordered)
    assert found(one) == {(1, "a"): 10, (1, "b"): 2}
    assert found(ordered) == {(1, "a"): 10, (1, "b"): 2, (3, "b"): 5}

    shop.describe(KEY, columns)
    shop.send("u", key(row(1, "b")), None, row(1, "b", amount, paid=True))
    shop.send("c", key(row(2)), None, row(2, "a", 6, paid=None))
    shop.tombstone(key(row(1)))
    instant = one.begin()
    one.write(instant, (0, landed(one), shop.sent))
    one.table.roll_back(instant)
    assert found(one) == {(1, "a"): 10, (1, "b"): 2}
    land(shop, one, ordered)
    assert found(one) == {(1, "b"): amount, (2, "a"): 6}
    assert found(ordered) == {(1, "a"): 10, (1, "b"): amount, (2, "a"): 6, (3, "b"): 5}
    assert found(ordered, "paid") == {(1, "a"): None, (1, "b"): True, (2, "a"): None, (3, "b"): None}

    shop.describe(KEY, {**columns, "amount": ["null", "long", "string"]})
    shop.send("c", key(row(8)), None, row(8, paid=None))
    assert "in the table, and no column in the records: the union" in one.columns().schema_conflict
    shop.describe(KEY, {**columns, "id": "double"})
    shop.send("c", key(row(9)), None, row(9, paid=None))
    assert schema_conflict in one.columns().schema_conflict
    assert one.columns().columns == ""


def test_a_key_that_does_not_name_the_row_is_a_bad_record(
    opened: Open, registry_url: str, kafka: Any, topic: Callable[[], str]
) -> None:
    name = topic()
    shop = Connector("mysql", registry_url, kafka.address, name)
    shop.describe({"id": "int"}, COLUMNS)
    one = opened(name, ddl="id INT, shop STRING, amount INT, note STRING")
    shop.send("c", {"id": 1}, None, row(1))
    shop.tombstone({"id": 1})
    with pytest.raises(BadRecord, match="record key column 'shop' is null") as bad:
        one.write(one.begin(), (0, 0, 2))
    assert bad.value.offset == 1


def key(change: dict[str, Any]) -> dict[str, Any]:
    return {name: change[name] for name in KEY}


def land(shop: Connector, *tables: Upserts) -> None:
    """All that was sent since the last time."""
    for one in tables:
        one.land((0, landed(one), shop.sent))


def landed(one: Upserts) -> int:
    return max((each.end for each in one.ends.values()), default=0)
