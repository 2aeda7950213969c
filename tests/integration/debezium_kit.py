"""Change events as Debezium's connectors for Postgres and MySQL send them through Kafka Connect's Avro converter: the
envelope, and the primary key as a record of its own, both behind the header of a schema registry.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

Row = Mapping[str, Any]


def optional(kind: Any) -> dict[str, Any]:
    return {"type": ["null", kind], "default": None}


SNAPSHOT = {
    "type": [{"type": "string", "connect.version": 1, "connect.name": "io.debezium.data.Enum"}, "null"],
    "default": "false",
}
COMMON = {
    "version": {"type": "string"},
    "connector": {"type": "string"},
    "name": {"type": "string"},
    "ts_ms": {"type": "long"},
    "snapshot": SNAPSHOT,
    "db": {"type": "string"},
    "sequence": optional("string"),
}
SOURCES: Mapping[str, Mapping[str, Any]] = {
    "postgresql": {
        **COMMON,
        "schema": {"type": "string"},
        "table": {"type": "string"},
        "txId": optional("long"),
        "lsn": optional("long"),
        "xmin": optional("long"),
    },
    "mysql": {
        **COMMON,
        "table": optional("string"),
        "server_id": {"type": "long"},
        "gtid": optional("string"),
        "file": {"type": "string"},
        "pos": {"type": "long"},
        "row": {"type": "int"},
        "thread": optional("long"),
        "query": optional("string"),
    },
}
SOURCE_VALUES: Mapping[str, Mapping[str, Any]] = {
    "postgresql": {"schema": "public", "txId": 555, "xmin": None},
    "mysql": {"server_id": 223344, "gtid": None, "file": "mysql-bin.000003", "row": 0, "thread": 7, "query": None},
}
TRANSACTION = {
    "type": "record",
    "name": "block",
    "namespace": "event",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "total_order", "type": "long"},
        {"name": "data_collection_order", "type": "long"},
    ],
}


class Connector:
    """Sends the changes of one table to a topic. Its schemas follow the table's columns."""

    def __init__(self, kind: str, registry: str, kafka: str, topic: str) -> None:
        self._kind = kind
        self._client = SchemaRegistryClient({"url": registry, "timeout": 30})
        self._producer = Producer({"bootstrap.servers": kafka})
        self._topic = topic
        self._log_position = 100
        self.sent_count = 0

    def describe(self, key: Mapping[str, Any], columns: Mapping[str, Any]) -> None:
        """Sets the types, by name, of the primary key and of all columns. A second call alters the table."""
        namespace = f"shop.{self._topic}"
        row_schema = {**_record("Value", columns), "connect.name": f"{namespace}.Value"}
        source_schema = _record("Source", SOURCES[self._kind])
        envelope = _record(
            "Envelope",
            {
                "before": optional(row_schema),
                "after": optional("Value"),
                "source": {"type": {**source_schema, "namespace": f"io.debezium.connector.{self._kind}"}},
                "transaction": optional(TRANSACTION),
                "op": {"type": "string"},
                "ts_ms": optional("long"),
            },
        )
        self._value = AvroSerializer(self._client, json.dumps({**envelope, "namespace": namespace}))
        self._key = AvroSerializer(self._client, json.dumps({**_record("Key", key), "namespace": namespace}))

    def send(self, op: str, key: Row, before: Row | None, after: Row | None) -> None:
        self._log_position += 1
        values = {**SOURCE_VALUES[self._kind], "lsn" if self._kind == "postgresql" else "pos": self._log_position}
        common = {"version": "2.7.0.Final", "connector": self._kind, "name": "shop", "ts_ms": 1700 + self._log_position}
        source = {**common, "snapshot": "false", "db": "shop", "sequence": None, "table": "orders", **values}
        event = {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": 1900}
        self._produce(key, self._value(event, SerializationContext(self._topic, MessageField.VALUE)))

    def tombstone(self, key: Row) -> None:
        self._produce(key, None)

    def _produce(self, key: Row, value: bytes | None) -> None:
        key_bytes = self._key(key, SerializationContext(self._topic, MessageField.KEY))
        self._producer.produce(self._topic, value, key_bytes, partition=0)
        assert self._producer.flush(60) == 0
        self.sent_count += 1


def _record(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    avro_fields = [
        {"name": field, **(kind if isinstance(kind, dict) else {"type": kind})} for field, kind in fields.items()
    ]
    return {"type": "record", "name": name, "fields": avro_fields}
