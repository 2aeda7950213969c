"""A fleet whose values name schemas of a registry waits while the registry does not answer."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hudi import HudiTableBuilder

from tests.integration.conftest import MakeFleet
from tests.registry_kit import Answer, RegistryRequest, RegistryResponse, StubRegistry, forward

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600), pytest.mark.xdist_group("registry")]

ID, KIND = {"name": "id", "type": "int"}, {"name": "kind", "type": "string"}
FIRST_SCHEMA: dict[str, Any] = {"type": "record", "name": "Event", "fields": [ID, KIND]}
SECOND_SCHEMA = {
    **FIRST_SCHEMA,
    "fields": [*FIRST_SCHEMA["fields"], {"name": "amount", "type": ["null", "double"], "default": None}],
}
RECORDS = 300
ATTEMPTS = 3
"""Failed attempts after which a coordinator divides a batch whose size may be the cause."""


def produce(kafka: str, registry: str, topic: str, schema: Any, first: int) -> None:
    client = SchemaRegistryClient({"url": registry, "timeout": 30})
    serialize = AvroSerializer(client, json.dumps(schema))
    producer = Producer({"bootstrap.servers": kafka})
    for number in range(first, first + RECORDS):
        event = {"id": number, "kind": "buy", "amount": number / 4}
        value = serialize(event, SerializationContext(topic, MessageField.VALUE))
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


@pytest.mark.thorough
def test_it_waits_and_says_so_until_the_registry_answers_and_loses_nothing(
    make_fleet: MakeFleet, registry_url: str, kafka: Any, topic: Any
) -> None:
    name = topic(partitions=1)
    produce(kafka.address, registry_url, name, FIRST_SCHEMA, 0)
    forward_requests, unavailable = forward(registry_url), RegistryResponse(503, "maintenance")

    def refuse(_: RegistryRequest) -> RegistryResponse:
        return unavailable

    with StubRegistry(refuse) as proxy:
        fleet = make_fleet(name=name, **{"value.format": "avro-confluent", "schema.registry.url": proxy.url})
        fleet.start("w1")
        fleet.wait_for_log("w1", "no answer for schema id")
        assert fleet.view().halt is None
        proxy.answer = forward_requests
        fleet.wait_landed({0: RECORDS})
        proxy.answer = refuse
        warnings_before = fleet.log("w1").count("no answer for schema id")
        produce(kafka.address, registry_url, name, SECOND_SCHEMA, RECORDS)
        fleet.wait(
            "the worker warns again", lambda _: fleet.log("w1").count("no answer for schema id") > warnings_before
        )
        fleet.wait(f"more than {ATTEMPTS} aborts", lambda _: fleet.log("w1").count("transaction.aborted") > ATTEMPTS)
        assert "batch.divided" not in fleet.log("w1")
        proxy.answer = forward_requests
        fleet.wait_landed({0: 2 * RECORDS})
        assert fleet.view().halt is None
        assert fleet.log("w1").count("registry.unavailable") == fleet.log("w1").count("registry.available") == 2
        fleet.assert_exactly_once(2 * RECORDS)
    rows = pa.Table.from_batches(HudiTableBuilder.from_base_uri(fleet.table.as_uri()).build().read())
    assert sorted(rows.column("id").to_pylist()) == list(range(2 * RECORDS))
    assert sorted(rows.column("amount").drop_null().to_pylist()) == [
        number / 4 for number in range(RECORDS, 2 * RECORDS)
    ]


def of_another_registry(answer: Answer) -> Answer:
    """Returns what a registry answers that gave each id to another schema that fits."""

    def other(request: RegistryRequest) -> RegistryResponse:
        response = answer(request)
        if not request.path.startswith("/schemas/ids/"):
            return response
        body = json.loads(response.body) if isinstance(response.body, str) else dict(response.body)
        schema = json.loads(body["schema"])
        schema["fields"][0]["aliases"] = ["other"]
        return RegistryResponse(response.status, {**body, "schema": json.dumps(schema)})

    return other


@pytest.mark.thorough
def test_an_id_of_another_registry_halts_and_lands_nothing(
    make_fleet: MakeFleet, registry_url: str, kafka: Any, topic: Any
) -> None:
    """Its bytes fit both schemas: only the fingerprint tells."""
    name = topic(partitions=1)
    produce(kafka.address, registry_url, name, FIRST_SCHEMA, 0)
    with StubRegistry(forward(registry_url)) as proxy:
        fleet = make_fleet(name=name, **{"value.format": "avro-confluent", "schema.registry.url": proxy.url})
        worker = fleet.start("w1")
        fleet.wait_landed({0: RECORDS})
        worker.stop()
        proxy.answer = of_another_registry(forward(registry_url))
        produce(kafka.address, registry_url, name, FIRST_SCHEMA, RECORDS)
        fleet.start("w2")
        fleet.wait("the sink is halted", lambda view: view.halt is not None)
        halt = fleet.view().halt
        assert halt is not None
        assert "is not the schema that it was" in halt.reason
        assert fleet.audit().rows == RECORDS
