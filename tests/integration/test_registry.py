"""The sink reads schemas from a real registry by the ids that the official serializers wrote into records."""

from __future__ import annotations

import base64
import json
import ssl
import uuid
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from coordination.errors import ConfigError
from sink.decode.protobuf.files import descriptor_set, descriptor_set_of_file
from sink.decode.registry.client import Registry, RegistryAccess, RegistryUnavailable, UnknownSchema, registry
from sink.devtools.local.servers import LOOPBACK
from tests.registry_kit import Answer, RegistryRequest, RegistryResponse, RegistryServer, StubRegistry, forward

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("registry")]

LOGIN = "sink:open-sesame"
PROTOBUF_INDEX = b"\x00"
"""The first message of the file."""
ITEM = {"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "sku", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "shop.Item"}],
}
ITEM_JSON = {"$id": "item.json", "type": "object", "properties": {"sku": {"type": "string"}}}
ORDER_JSON = {
    "$id": "order.json",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "item": {"$ref": "item.json"}},
}
ITEM_PROTO = 'syntax = "proto3"; package shop; message Item { string sku = 1; }'
ORDER_PROTO = """
syntax = "proto3";
package shop;
import "item.proto";
import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; Item item = 2; google.protobuf.Timestamp placed_at = 3; }
"""


@pytest.fixture
def url(registry_url: str) -> str:
    """The address of a registry that outlives the test. Use subjects that `topic` names."""
    return registry_url


@pytest.fixture
def client(url: str) -> SchemaRegistryClient:
    """A client as producers use it."""
    return SchemaRegistryClient({"url": url, "timeout": 30})


@pytest.fixture
def sink_registry(url: str) -> Registry:
    return Registry(RegistryAccess((url,)))


@pytest.fixture
def name() -> str:
    """The name of a topic of the test's own."""
    return f"t{uuid.uuid4().hex[:12]}"


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def schema_id(record: bytes) -> int:
    assert record[0] == 0
    return int.from_bytes(record[1:5], "big")


def order_class(serialized: bytes) -> type[Message]:
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(serialized).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


@pytest.fixture
def order(tmp_path: Path) -> Message:
    (tmp_path / "item.proto").write_text(ITEM_PROTO)
    (tmp_path / "order.proto").write_text(ORDER_PROTO)
    message: Any = order_class(descriptor_set_of_file(tmp_path / "order.proto"))(id=7)
    message.item.sku = "tea"
    message.placed_at.seconds = 1
    return message  # type: ignore[no-any-return]


def test_an_avro_record_leads_to_its_schema_and_what_it_refers_to(
    sink_registry: Registry, client: SchemaRegistryClient, name: str
) -> None:
    item_id = client.register_schema(f"{name}-item", Schema(json.dumps(ITEM), "AVRO"))
    schema = Schema(json.dumps(ORDER), "AVRO", [SchemaReference("shop.Item", f"{name}-item", 1)])
    record = AvroSerializer(client, schema)({"id": 7, "item": {"sku": "tea"}}, value_of(name))
    registered = sink_registry.schema(schema_id(record))
    assert (registered.kind, json.loads(registered.text)) == ("AVRO", ORDER)
    ((item_name, item),) = registered.references
    assert (item_name, item.id, json.loads(item.text)) == ("shop.Item", item_id, ITEM)


def test_a_json_record_leads_to_its_schema_and_what_it_refers_to(
    sink_registry: Registry, client: SchemaRegistryClient, name: str
) -> None:
    client.register_schema(f"{name}-item", Schema(json.dumps(ITEM_JSON), "JSON"))
    schema = Schema(json.dumps(ORDER_JSON), "JSON", [SchemaReference("item.json", f"{name}-item", 1)])
    record = JSONSerializer(schema, client)({"id": 7, "item": {"sku": "tea"}}, value_of(name))
    registered = sink_registry.schema(schema_id(record))
    assert (registered.kind, json.loads(registered.text)) == ("JSON", ORDER_JSON)
    ((item_name, item),) = registered.references
    assert (item_name, item.kind, json.loads(item.text)) == ("item.json", "JSON", ITEM_JSON)


def test_a_protobuf_record_can_be_read_with_the_descriptors_of_its_id(
    sink_registry: Registry, client: SchemaRegistryClient, name: str, order: Message
) -> None:
    record = ProtobufSerializer(type(order), client)(order, value_of(name))
    registered = sink_registry.schema(schema_id(record))
    assert registered.kind == "PROTOBUF"
    assert [import_name for import_name, _ in registered.references] == ["item.proto"]
    message = order_class(descriptor_set(registered)).FromString(record[5:].removeprefix(PROTOBUF_INDEX))
    assert message.SerializeToString() == order.SerializeToString()


def test_a_protobuf_source_can_be_registered_instead(
    sink_registry: Registry, client: SchemaRegistryClient, name: str, order: Message
) -> None:
    client.register_schema(f"{name}-item", Schema(ITEM_PROTO, "PROTOBUF"))
    schema = Schema(ORDER_PROTO, "PROTOBUF", [SchemaReference("item.proto", f"{name}-item", 1)])
    registered = sink_registry.schema(client.register_schema(f"{name}-value", schema))
    message = order_class(descriptor_set(registered)).FromString(order.SerializeToString())
    assert message.SerializeToString() == order.SerializeToString()


def test_versions_of_a_subject_have_their_own_schemas(
    sink_registry: Registry, client: SchemaRegistryClient, name: str
) -> None:
    second_version = ITEM | {"fields": [*ITEM["fields"], {"name": "size", "type": "int", "default": 0}]}  # type: ignore[misc]
    client.register_schema(f"{name}-value", Schema(json.dumps(ITEM), "AVRO"))
    assert json.loads(sink_registry.latest(f"{name}-value").text) == ITEM
    client.register_schema(f"{name}-value", Schema(json.dumps(second_version), "AVRO"))
    assert json.loads(sink_registry.latest(f"{name}-value").text) == second_version
    assert json.loads(sink_registry.version(f"{name}-value", 1).text) == ITEM
    assert sink_registry.version(f"{name}-value", 2) is sink_registry.latest(f"{name}-value")


def test_what_was_never_registered_is_unknown_at_once(
    sink_registry: Registry, client: SchemaRegistryClient, name: str
) -> None:
    client.register_schema(f"{name}-value", Schema(json.dumps(ITEM), "AVRO"))
    for look_up in (
        lambda: sink_registry.schema(2_000_000_000),
        lambda: sink_registry.latest(f"{name}-key"),
        lambda: sink_registry.version(f"{name}-key", 1),
        lambda: sink_registry.version(f"{name}-value", 99),
    ):
        with pytest.raises(UnknownSchema):
            look_up()


def test_a_path_that_is_no_registrys_is_not_taken_for_an_unknown_schema(url: str) -> None:
    with pytest.raises(RegistryUnavailable, match=r"HTTP 404.*schema\.registry\.url"):
        Registry(RegistryAccess((url.removesuffix("/ccompat/v7"),), patience_seconds=0)).schema(1)


def behind_login(login: str, answer: Answer) -> Answer:
    """Answers only requests with this login, as a registry behind a login does."""
    header = f"Basic {base64.b64encode(login.encode()).decode()}"

    def answer_if_authorized(request: RegistryRequest) -> RegistryResponse:
        if request.headers.get("Authorization") == header:
            return answer(request)
        return RegistryResponse(401, {"error_code": 401, "message": "Unauthorized"})

    return answer_if_authorized


def test_a_registry_behind_tls_and_a_login_is_read(
    url: str, client: SchemaRegistryClient, name: str, tmp_path: Path
) -> None:
    registered_id = client.register_schema(f"{name}-value", Schema(json.dumps(ITEM), "AVRO"))
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(LOOPBACK).configure_cert(context)
    trust = ("ssl.ca.location", str(tmp_path / "ca.pem"))
    with StubRegistry(behind_login(LOGIN, forward(url)), tls=context) as proxy:
        access = RegistryAccess((proxy.url,), (trust, ("basic.auth.user.info", LOGIN)))
        assert json.loads(registry(access).schema(registered_id).text) == ITEM
        with pytest.raises(ConfigError, match=r"schema\.registry\.basic\.auth\.user\.info"):
            registry(RegistryAccess((proxy.url,), (trust,))).schema(registered_id)


def test_what_is_known_outlives_the_registry_and_the_rest_comes_when_it_is_back(tmp_path: Path, name: str) -> None:
    with RegistryServer(tmp_path / "registry") as server:
        client = SchemaRegistryClient({"url": server.url, "timeout": 30})
        registered_id = client.register_schema(f"{name}-value", Schema(json.dumps(ITEM), "AVRO"))
        patient = Registry(RegistryAccess((server.url,), patience_seconds=0))
        schema = patient.schema(registered_id)
        server.pause()
        impatient = Registry(RegistryAccess((server.url,), (("timeout", "0.5"),), patience_seconds=0))
        with pytest.raises(RegistryUnavailable, match="ReadTimeout"):
            impatient.schema(registered_id)
        server.resume()
        assert impatient.schema(registered_id) == schema
        server.kill()
        with pytest.raises(RegistryUnavailable, match="ConnectError"):
            patient.latest(f"{name}-value")
        assert patient.schema(registered_id) is schema
