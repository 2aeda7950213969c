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
from tests.registry_kit import Asked, Front, Said, forward

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
    fleet: MakeFleet, registry_url: str, kafka: Any, topic: Any
) -> None:
    name = topic(partitions=1)
    produce(kafka.address, registry_url, name, FIRST_SCHEMA, 0)
    forward_requests, unavailable = forward(registry_url), Said(503, "maintenance")

    def refuse(_: Asked) -> Said:
        return unavailable

    with Front(refuse) as front:
        it = fleet(name=name, **{"value.format": "avro-confluent", "schema.registry.url": front.url})
        it.start("w1")
        it.wait_for_log("w1", "no answer for schema id")
        assert it.view().halt is None
        front.answer = forward_requests
        it.wait_landed({0: RECORDS})
        front.answer = refuse
        warnings_before = it.log("w1").count("no answer for schema id")
        produce(kafka.address, registry_url, name, SECOND_SCHEMA, RECORDS)
        it.wait("the worker warns again", lambda _: it.log("w1").count("no answer for schema id") > warnings_before)
        it.wait(f"more than {ATTEMPTS} aborts", lambda _: it.log("w1").count("transaction.aborted") > ATTEMPTS)
        assert "batch.divided" not in it.log("w1")
        front.answer = forward_requests
        it.wait_landed({0: 2 * RECORDS})
        assert it.view().halt is None
        assert it.log("w1").count("registry.unavailable") == it.log("w1").count("registry.available") == 2
        it.assert_exactly_once(2 * RECORDS)
    rows = pa.Table.from_batches(HudiTableBuilder.from_base_uri(it.table.as_uri()).build().read())
    assert sorted(rows.column("id").to_pylist()) == list(range(2 * RECORDS))
    assert sorted(rows.column("amount").drop_null().to_pylist()) == [
        number / 4 for number in range(RECORDS, 2 * RECORDS)
    ]
