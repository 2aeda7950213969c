"""Upsert tables take Debezium's events and keys in Avro by a real schema registry, and their columns follow it."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coordination.errors import BadRecord
from sink.decode.registry.client import Registry, RegistryAccess
from sink.hudi.schema_texts import MOST_KEPT, SCHEMAS
from tests.integration.debezium_kit import Connector, optional
from tests.integration.table_kit import connected
from tests.integration.upsert_kit import Upserts

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600), pytest.mark.xdist_group("registry")]

KEY = {"shop": "string", "id": "int"}
COLUMNS = {"id": "int", "shop": "string", "amount": optional("int"), "note": optional("string")}
MORE_COLUMNS = {**COLUMNS, "paid": optional("boolean")}
WIDER_COLUMNS = {**MORE_COLUMNS, "amount": optional("long")}

ON_READ = {
    "target__table__type": "merge_on_read",
    "index__type": "bucket",
    "hoodie__bucket__index__num__buckets": "2",
}

Open = Callable[..., Upserts]


@pytest.fixture
def open_upserts(spark, kafka, zookeeper, registry_url: str, tmp_path: Path) -> Iterator[Open]:
    """Opens a table of the events in a topic, in a directory of its own."""
    tables: list[Upserts] = []
    with connected(zookeeper.address) as client:

        def make(topic: str, directory: str = "one", **more: str) -> Upserts:
            options = {
                "value__envelope": "debezium",
                "value__format": "avro-confluent",
                "delete__key__format": "avro-confluent",
                "schema__registry__url": registry_url,
                "hoodie__metadata__enable": "false",
                "record__key__fields": "id,shop",
                **more,
            }
            tables.append(Upserts(spark, client, tmp_path / directory, kafka.address, topic, **options))
            return tables[-1]

        yield make
        for table in tables:
            table.table.stop_heartbeats()


def row(key: int, shop: str = "a", amount: int | None = 1, **more: Any) -> dict[str, Any]:
    return {"id": key, "shop": shop, "amount": amount, "note": None, **more}


def values_by_key(upserts: Upserts, column: str = "amount") -> dict[tuple[int, str], Any]:
    rows = upserts.spark.read.format("hudi").load(upserts.settings.base_path).select("id", "shop", column).collect()
    assert len({(record["id"], record["shop"]) for record in rows}) == len(rows)
    return {(record["id"], record["shop"]): record[column] for record in rows}


@pytest.mark.parametrize(
    ("kind", "ordering", "more", "columns", "amount", "schema_conflict"),
    [
        (
            "postgresql",
            "lsn",
            ON_READ,
            MORE_COLUMNS,
            20,
            "id is INT in the table, DOUBLE in the records (in a merge-on-read",
        ),
        # Hudi compares keys as texts: 1 and 1.0 would be two rows.
        pytest.param(
            *("mysql", "binlog", {}, WIDER_COLUMNS, 2**40, "record.key.fields: column 'id' has type double"),
            marks=pytest.mark.thorough,
        ),
    ],
    ids=["postgresql, merge on read", "mysql, copy on write"],
)
def test_a_table_follows_debeziums_avro_and_keys_in_avro_delete_their_rows(
    open_upserts: Open,
    registry_url: str,
    kafka: Any,
    topic: Callable[[], str],
    kind: str,
    ordering: str,
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
    upserts = open_upserts(name, **subject, **more)
    ordered = open_upserts(name, "ordered", debezium__ordering=ordering, **subject)
    land(shop, upserts, ordered)
    assert values_by_key(upserts) == {(1, "a"): 10, (1, "b"): 2, (2, "a"): 3, (3, "a"): 4, (3, "b"): 5}
    # MySQL logs the whole deleted row; Postgres logs its key by default, and nothing without a replica identity.
    logs_whole_row = kind == "mysql"
    shop.send("d", key(row(2)), row(2, "a", 3) if logs_whole_row else row(2, "a", None), None)
    shop.tombstone(key(row(2)))
    shop.send("d", key(row(3)), row(3, "a", 4) if logs_whole_row else None, None)
    # Kafka has compacted the event before this tombstone away.
    shop.tombstone(key(row(3, "b")))
    land(shop, upserts, ordered)
    assert values_by_key(upserts) == {(1, "a"): 10, (1, "b"): 2}
    assert values_by_key(ordered) == {(1, "a"): 10, (1, "b"): 2, (3, "b"): 5}

    shop.describe(KEY, columns)
    shop.send("u", key(row(1, "b")), None, row(1, "b", amount, paid=True))
    shop.send("c", key(row(2)), None, row(2, "a", 6, paid=None))
    shop.tombstone(key(row(1)))
    instant = upserts.begin()
    upserts.write(instant, (0, landed(upserts), shop.sent_count))
    upserts.table.roll_back(instant)
    assert values_by_key(upserts) == {(1, "a"): 10, (1, "b"): 2}
    land(shop, upserts, ordered)
    assert values_by_key(upserts) == {(1, "b"): amount, (2, "a"): 6}
    assert values_by_key(ordered) == {(1, "a"): 10, (1, "b"): amount, (2, "a"): 6, (3, "b"): 5}
    assert values_by_key(ordered, "paid") == {(1, "a"): None, (1, "b"): True, (2, "a"): None, (3, "b"): None}

    shop.describe(KEY, {**columns, "amount": ["null", "long", "string"]})
    shop.send("c", key(row(8)), None, row(8, paid=None))
    assert "amount" in upserts.columns().schema_conflict.reason
    shop.describe(KEY, {**columns, "id": "double"})
    shop.send("c", key(row(9)), None, row(9, paid=None))
    assert schema_conflict in upserts.columns().schema_conflict.reason
    assert upserts.columns().columns == ""


def test_a_key_that_does_not_name_the_row_is_a_bad_record(
    open_upserts: Open, registry_url: str, kafka: Any, topic: Callable[[], str]
) -> None:
    name = topic()
    shop = Connector("mysql", registry_url, kafka.address, name)
    shop.describe({"id": "int"}, COLUMNS)
    upserts = open_upserts(name, ddl="id INT, shop STRING, amount INT, note STRING")
    shop.send("c", {"id": 1}, None, row(1))
    shop.tombstone({"id": 1})
    with pytest.raises(BadRecord, match="record key column 'shop' is null") as bad:
        upserts.write(upserts.begin(), (0, 0, 2))
    assert bad.value.offset == 1


def test_the_table_keeps_each_schema_that_decoded_records_once(
    open_upserts: Open, registry_url: str, kafka: Any, topic: Callable[[], str]
) -> None:
    name = topic()
    shop = Connector("postgresql", registry_url, kafka.address, name)
    shop.describe(KEY, COLUMNS)
    shop.send("c", key(row(1)), None, row(1))
    upserts = open_upserts(name, ddl="", schema__subject=f"{name}-value")
    upserts.land((0, 0, 1))
    first = {path.name: path.stat().st_mtime_ns for path in kept_files(upserts)}
    shop.describe(KEY, MORE_COLUMNS)
    shop.send("c", key(row(2)), None, row(2, paid=None))
    shop.tombstone(key(row(1)))
    written = upserts.land((0, 1, 3))
    second = {path.name: path.stat().st_mtime_ns for path in kept_files(upserts)}
    assert first.items() < second.items()
    prints = {fingerprint for _, fingerprint in written.schemas}
    assert prints == {name.partition(".")[0] for name in second.keys() - first.keys()}
    texts = [schema["text"] for path in kept_files(upserts) for schema in kept_schemas(path)]
    registered = {Registry(RegistryAccess((registry_url,))).schema(int(id_)).text for id_, _ in written.schemas}
    assert registered < set(texts)

    # Of the oldest files only those of the newest checkpoint stay.
    directory = Path(upserts.settings.base_path, SCHEMAS)
    for file in kept_files(upserts):
        os.utime(file, (0, 0))
    for number in range(MOST_KEPT):
        other = directory / f"{number:016x}.json.gz"
        other.touch()
        os.utime(other, (number + 1, number + 1))
    (archiving,) = [service for service in upserts.table.services() if service.name == "archiving"]
    assert archiving.reason == ""
    left = {path.name for path in kept_files(upserts)}
    assert left & second.keys() == second.keys() - first.keys()
    assert len(left) == MOST_KEPT
    assert f"{0:016x}.json.gz" not in left
    assert f"{MOST_KEPT - 1:016x}.json.gz" in left


def kept_files(upserts: Upserts) -> list[Path]:
    return sorted(Path(upserts.settings.base_path, SCHEMAS).glob("*.json.gz"))


def kept_schemas(file: Path) -> list[dict[str, Any]]:
    return json.loads(gzip.decompress(file.read_bytes()))["schemas"]  # type: ignore[no-any-return]


def key(change: dict[str, Any]) -> dict[str, Any]:
    return {name: change[name] for name in KEY}


def land(shop: Connector, *tables: Upserts) -> None:
    """Lands all that the connector has sent since the last time."""
    for table in tables:
        table.land((0, landed(table), shop.sent_count))


def landed(table: Upserts) -> int:
    return max((checkpoint.end for checkpoint in table.ends.values()), default=0)
