"""`sink infer` against real topics and a real registry: its output, the file that it writes, and no other effect."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from sink import cli
from sink.schema.table_schema import parse_ddl
from sink.write.rows.row_spec import table_schema
from tests.one_sink import load

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("registry")]

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
NEWER: dict[str, Any] = {
    **ORDER,
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "choice", "type": ["null", "int", "string"]},
    ],
}
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Head { string host = 1; }
message Order { int64 id = 1; repeated Head heads = 2; google.protobuf.Timestamp placed_at = 3; Order next = 4; }
"""
ORDER_AT = b"\x02\x02"
"""Confluent's index of the second message: a list of one, and in it a 1, both zigzag."""


@pytest.fixture
def configured(kafka, tmp_path: Path) -> Callable[..., Path]:
    """Writes a configuration that names no columns."""

    def configure(topics: str, **changes: str) -> Path:
        settings = {
            "zookeeper.connect": "127.0.0.1:1",
            "kafka.bootstrap.servers": kafka.address,
            "kafka.topic.names": topics,
            "target.base.path": str(tmp_path / "table"),
            "target.table.name": "orders",
        } | {key.replace("__", "."): value for key, value in changes.items()}
        path = tmp_path / "sink.yaml"
        path.write_text("".join(f"{key}: '{value}'\n" for key, value in settings.items()))
        return path

    return configure


@pytest.fixture
def produced(kafka) -> Callable[..., None]:
    def produce(topic: str, *values: object, partition: int = 0, **settings: str) -> None:
        producer = Producer({"bootstrap.servers": kafka.address, **settings})
        for value in values:
            raw = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
            producer.produce(topic, raw, partition=partition)
        producer.flush(30)

    return produce


@pytest.fixture
def infer(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command; returns its exit status, the columns and its remarks on them."""

    def run(config: Path, *arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main(["infer", "--config", str(config), *map(str, arguments)])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return run


def test_json_columns_are_printed_and_written_so_that_the_same_configuration_can_use_them(
    configured, produced, infer, topic, tmp_path: Path
):
    name = topic(partitions=2)
    produced(name, {"id": 1, "item": "tea", "price": 2, "at": "2024-02-29T12:00:00Z"}, partition=0)
    produced(name, {"id": 2, "item": "cup", "price": 2.5, "at": None, "gone": None, "a-b": 1}, partition=1)
    produced(name, b"not json", None, partition=1)
    config = configured(name, schema__file="orders.ddl")
    code, out, err = infer(config, "--output", tmp_path / "orders.ddl")
    expected = "id BIGINT,\nitem STRING,\nprice DOUBLE,\nat TIMESTAMP,\ngone STRING,\na_b BIGINT\n"
    assert (code, out) == (0, expected)
    assert (tmp_path / "orders.ddl").read_text() == expected
    assert f"4 records read: {name}-0 0 to 0, {name}-1 0 to 2." in err
    assert "  field.names: a_b=a-b" in err
    assert "- null throughout, and STRING for want of better: gone" in err
    assert "- not in every record, and null there: gone, a-b" in err
    assert "2 values do not fit the columns" in err
    assert f"- {name}-1 offset 1: not one JSON document" in err
    assert f"- {name}-1 offset 2: the value is null (a tombstone)" in err
    assert (
        table_schema(load(config, {}).table, load(config, {}).records).value_struct == parse_ddl(expected).value_struct
    )


def test_a_file_that_is_there_is_replaced_only_when_told_to(configured, produced, infer, topic, tmp_path: Path):
    name, output = topic(), tmp_path / "orders.ddl"
    produced(name, {"id": 1})
    output.write_text("id STRING\n")
    config = configured(name)
    code, out, err = infer(config, "--output", output)
    assert (code, out, output.read_text()) == (2, "", "id STRING\n")
    assert "exists already" in err
    assert infer(config, "--output", output, "--force")[0] == 0
    assert output.read_text() == "id BIGINT\n"
    assert [path.name for path in tmp_path.glob("*orders.ddl*")] == ["orders.ddl"]


def test_the_newest_records_are_read_or_the_oldest_and_no_more_than_asked_for(configured, produced, infer, topic):
    name = topic(partitions=2)
    for partition in (0, 1):
        produced(name, *({"old": number} for number in range(50)), partition=partition)
        produced(name, *({"new": number} for number in range(50)), partition=partition)
    config = configured(name)
    _, out, err = infer(config, "--records", 10)
    assert out == "new BIGINT\n"
    assert f"10 records read: {name}-0 95 to 99, {name}-1 95 to 99." in err
    _, out, err = infer(config, "--records", 10, "--from-beginning")
    assert out == "old BIGINT\n"
    assert f"10 records read: {name}-0 0 to 4, {name}-1 0 to 4." in err
    assert infer(config, "--records", 200)[1] == "old BIGINT,\nnew BIGINT\n"


def test_only_committed_records_count_and_those_before_aborted_ones_are_found(
    kafka, configured, produced, infer, topic
):
    name = topic()
    produced(name, {"committed": 1})
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(20):
        producer.produce(name, json.dumps({"aborted": number}).encode())
    producer.flush(30)
    _, out, err = infer(configured(name), "--records", 5)
    assert out == "committed BIGINT\n"
    assert f"hold back 20 acknowledged offsets, which cannot be read before they end: {name}-0 from offset 1" in err
    producer.abort_transaction(30)
    _, out, err = infer(configured(name), "--records", 5)
    assert out == "committed BIGINT\n"
    assert f"1 records read: {name}-0 0 to 0." in err


def test_no_offset_is_committed(kafka, configured, produced, infer, topic):
    name = topic()
    produced(name, {"id": 1})
    assert infer(configured(name, sink__name=name))[0] == 0
    with closing(Consumer({"bootstrap.servers": kafka.address, "group.id": f"sink-{name}"})) as consumer:
        assert consumer.committed([TopicPartition(name, 0)], timeout=30)[0].offset < 0
        # A committed offset would be seen.
        consumer.commit(offsets=[TopicPartition(name, 0, 1)], asynchronous=False)
        assert consumer.committed([TopicPartition(name, 0)], timeout=30)[0].offset == 1


def test_a_topic_can_be_chosen_and_all_of_them_make_one_table(configured, produced, infer, topic):
    first, second = topic(name=f"a-{uuid.uuid4().hex[:8]}"), topic(name=f"b-{uuid.uuid4().hex[:8]}")
    produced(first, {"id": 1})
    produced(second, {"id": 1.5, "kind": "buy"})
    config = configured(f"{first},{second}")
    assert infer(config)[1] == "id DOUBLE,\nkind STRING\n"
    assert infer(config, "--topic", first)[1] == "id BIGINT\n"


def test_topics_from_which_nothing_can_be_inferred_are_one_sentence(configured, produced, infer, topic):
    name, absent = topic(), f"t{uuid.uuid4().hex[:12]}"
    code, out, err = infer(configured(absent))
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert err.startswith("sink: no such topic at ")
    assert absent in err
    assert infer(configured(name)) == (
        2,
        "",
        f"sink: {name} has no record to infer columns from: produce some, or write schema.ddl by hand\n",
    )
    produced(name, b"x", None)
    code, _, err = infer(configured(name))
    assert (code, len(err.splitlines())) == (2, 1)
    assert f"not one of the 2 values read of {name} is a record of value.format=json: {name}-0 offset 0:" in err
    produced(name, *[{} for _ in range(3)])
    code, _, err = infer(configured(name), "--records", 3)
    assert (code, err) == (2, "sink: 3 records: not one column can be made of it\n")


def test_avro_columns_are_those_of_the_newest_schema_in_the_sample(
    registry_url: str, configured, produced, infer, topic
):
    client, name = SchemaRegistryClient({"url": registry_url, "timeout": 30}), topic()
    config = configured(name, value__format="avro-confluent", schema__registry__url=registry_url)
    code, _, err = infer(config)
    assert (code, len(err.splitlines())) == (2, 1)
    assert f"{name} has no record to infer columns from, and the schema registry" in err
    client.register_schema(f"{name}-value", Schema(json.dumps(ORDER), "AVRO"))
    # Columns that are NOT NULL would refuse the next schema that lacks one.
    assert infer(config)[1] == "id BIGINT,\nnote STRING\n"
    context = SerializationContext(name, MessageField.VALUE)
    old = AvroSerializer(client, Schema(json.dumps(ORDER), "AVRO"))({"id": 1, "note": "x"}, context)
    client.set_compatibility(f"{name}-value", "NONE")
    new = AvroSerializer(client, Schema(json.dumps(NEWER), "AVRO"))({"id": 2, "price": b"\x01", "choice": 1}, context)
    produced(name, new, old, b"x")
    code, out, err = infer(config)
    assert (code, out) == (0, "id BIGINT,\nprice DECIMAL(9,2),\nchoice STRING\n")
    newest, older = (int.from_bytes(value[1:5], "big") for value in (new, old))
    assert f"3 columns, from schema id {newest}." in err
    assert f"- schema id {older} (1 records) has also note, of which no column is made" in err
    assert "2 values do not fit the columns. A sink that meets one halts:" in err
    assert (
        f"{name}-0 offset 1: the schema with id {older} cannot be used: shop.Order has no field for the column" in err
    )
    assert "List the full names of the types that land in schema.types." in err
    assert f"{name}-0 offset 2: it is too short" in err


def test_protobuf_columns_are_those_of_the_message_that_the_records_name(
    registry_url: str, configured, produced, infer, topic
):
    client, name = SchemaRegistryClient({"url": registry_url, "timeout": 30}), topic()
    schema_id = client.register_schema(f"{name}-value", Schema(PROTO, "PROTOBUF"))
    config = configured(name, value__format="protobuf-confluent", schema__registry__url=registry_url)
    code, out, err = infer(config)
    assert (code, out) == (2, "")
    assert f"schema id {schema_id} has the messages shop.Head, shop.Order. Set value.message to the message" in err
    produced(name, b"\x00" + schema_id.to_bytes(4, "big") + ORDER_AT + b"\x08\x07")
    code, out, err = infer(config)
    assert (code, out) == (0, "id BIGINT,\nheads ARRAY<STRUCT<host: STRING>>,\nplaced_at TIMESTAMP\n")
    assert f"3 columns, from shop.Order of schema id {schema_id}." in err
    assert "- left out: next: it is a shop.Order within a shop.Order, which no column can hold" in err
    assert "do not fit" not in err


def test_json_behind_a_registrys_header_is_read_and_what_has_none_is_told(
    registry_url: str, configured, produced, infer, topic
):
    name = topic()
    produced(name, b'\x00\x00\x00\x00\x07{"id": 1}', b'{"id": "x"}', None)
    config = configured(name, value__format="json-confluent", schema__registry__url=registry_url)
    code, out, err = infer(config)
    assert (code, out) == (0, "id BIGINT\n")
    assert f"- {name}-0 offset 1: its first byte is 123. A schema registry's header begins with 0 or 1" in err
    assert f"- {name}-0 offset 2: the value is null (a tombstone)" in err


def test_plain_avro_and_protobuf_are_inferred_from_their_schema_file(
    configured, produced, infer, topic, tmp_path: Path
):
    name = topic()
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    config = configured(name, value__format="avro", value__schema__file="order.avsc")
    assert infer(config)[:2] == (0, "id BIGINT NOT NULL,\nnote STRING\n")
    produced(name, b"\x02\x00", b"\xff")
    assert f"1 values do not fit the columns. A sink that meets one halts:\n- {name}-0 offset 1:" in infer(config)[2]
    (tmp_path / "order.proto").write_text(PROTO)
    config = configured(name, value__format="protobuf", value__schema__file="order.proto", value__message="shop.Order")
    code, out, err = infer(config)
    assert (code, out) == (0, "id BIGINT,\nheads ARRAY<STRUCT<host: STRING>>,\nplaced_at TIMESTAMP\n")
    assert "from shop.Order of value.schema.file" in err


@pytest.mark.parametrize("value_format", ["avro-confluent", "protobuf-confluent"])
def test_values_of_which_none_names_a_schema_are_one_sentence(
    registry_url: str, configured, produced, infer, topic, value_format: str
):
    name = topic()
    # The second has a header, and a list of -1 message indexes where they are asked for.
    produced(name, None, *([b"\x00\x00\x00\x00\x07\x01"] if value_format.startswith("protobuf") else [b"x"]))
    config = configured(name, value__format=value_format, schema__registry__url=registry_url)
    code, out, err = infer(config)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert f"not one of the 2 values read of {name} names a schema of the registry: {name}-0 offset 0: the value" in err
