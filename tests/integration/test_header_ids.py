"""Records whose schema ids are in their headers, written by Confluent's own serializers, land like those with prefixes.

Apicurio's registry knows no GUIDs: a stub in front of it answers for a GUID that the test makes of the id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.common.serde import SchemaId
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import SparkSession
from sinktable import OpenInstant, make_settings, rows_of, tasks_of

from sink.decode.protobuf.files import descriptor_set_of_file
from sink.write.engines.engine import ArrowEngine
from sink.write.rows.row_spec import table_schema
from tests.registry_kit import RegistryRequest, RegistryResponse, StubRegistry, forward

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("registry")]

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
}
PROTO = 'syntax = "proto3"; message Other { string x = 1; } message Order { int64 id = 1; string name = 2; }'
DRAFT = "http://json-schema.org/draft-07/schema#"
Record = tuple[bytes, list[tuple[str, bytes]]]


@pytest.fixture
def guids(registry_url: str) -> Iterator[StubRegistry]:
    direct = forward(registry_url)

    def answer(request: RegistryRequest) -> RegistryResponse:
        before, guid, rest = request.path.partition("/schemas/guids/")
        if guid:
            name, *query = rest.split("?")
            return direct(
                RegistryRequest("?".join([f"{before}/schemas/ids/{UUID(name).int}", *query]), request.headers)
            )
        return direct(request)

    with StubRegistry(answer) as stub:
        yield stub


def in_header(payload: bytes, context: SerializationContext | None, schema_id: Any) -> bytes:
    guid = str(UUID(int=schema_id.id))
    named = SchemaId(schema_id.schema_type, schema_id.id, guid, schema_id.message_indexes)
    return header_schema_id_serializer(payload, context, named)


def writers(name: str, url: str, directory: Path) -> Callable[[dict[str, Any], SerializationContext, bool], bytes]:
    client = SchemaRegistryClient({"url": url, "timeout": 30})
    (directory / "order.proto").write_text(PROTO)
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(descriptor_set_of_file(directory / "order.proto")).file:
        pool.Add(file)
    order = GetMessageClass(pool.FindMessageTypeByName("Order"))

    def make(more: dict[str, Any]) -> Any:
        if name == "avro":
            return AvroSerializer(client, json.dumps(AVRO), conf=more)
        if name == "json":
            return JSONSerializer(json.dumps({"$schema": DRAFT, "title": "Order", "type": "object"}), client, conf=more)
        return ProtobufSerializer(order, client, {"use.deprecated.format": False, **more})

    with_prefix, with_header = make({}), make({"schema.id.serializer": in_header})

    def write(row: dict[str, Any], context: SerializationContext, header: bool) -> bytes:
        value = order(**row) if name == "protobuf" else row
        return bytes((with_header if header else with_prefix)(value, context))

    return write


@pytest.mark.parametrize("name", ["avro", "json", "protobuf"])
def test_ids_in_headers_and_before_values_may_be_mixed(
    name: str,
    guids: StubRegistry,
    registry_url: str,
    spark: SparkSession,
    kafka: Any,
    topic: Any,
    tmp_path: Path,
) -> None:
    source = topic()
    write = writers(name, registry_url, tmp_path)
    producer = Producer({"bootstrap.servers": kafka.address})
    rows = [{"id": number, "name": f"n{number}"} for number in range(40)]
    for row in rows:
        context = SerializationContext(source, MessageField.VALUE, [])
        value = write(row, context, row["id"] % 3 != 0)
        assert bool(context.headers) == (row["id"] % 3 != 0)
        producer.produce(source, value=value, partition=0, headers=context.headers)
    assert producer.flush(30) == 0
    more = {"value__format": f"{name}-confluent", "schema__registry__url": guids.url}
    settings = make_settings(tmp_path, kafka.address, source, "id BIGINT, name STRING", **more)
    instant = OpenInstant(tmp_path / "table")
    engine = ArrowEngine(spark, settings.table, settings.records, table_schema(settings.table, settings.records))
    engine.check()
    written = engine.write(instant.name, tasks_of(source, (0, 0, len(rows))))
    assert [result.records for result in written.results] == [len(rows)]
    table_rows = rows_of(instant.data_files).sort_by("_kafka_offset")
    assert table_rows.select(["id", "name"]).to_pylist() == rows
