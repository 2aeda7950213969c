"""Serializers of one event in four formats, as producers with a schema registry have them: every topic has a schema of
its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from sink.decode.protobuf.files import descriptor_set_of_file

Serialize = Callable[[Mapping[str, Any]], bytes]
SHAPES = 5
"""Schemas differ in one field."""
SUBJECT = {"schema.subject": "{topic}-value"}
PATTERNS: Mapping[str, Mapping[str, str]] = {
    "json": {"value.format": "json", "schema.ddl": "id BIGINT NOT NULL, what STRING"},
    "avro": {"value.format": "avro-confluent", **SUBJECT},
    "protobuf": {"value.format": "protobuf-confluent", **SUBJECT},
    "jsonschema": {"value.format": "json-confluent", **SUBJECT},
}
"""Settings of a pattern of topics, by format."""


def event(number: int, shape: int) -> dict[str, Any]:
    return {"id": number, "what": f"event {number}", f"extra_{shape % SHAPES}": number / 2}


def serializer(format_name: str, topic: str, shape: int, client: SchemaRegistryClient, directory: Path) -> Serialize:
    """Registers the schema of `topic`. `directory` is for files that a compiler reads."""
    extra_field, context = f"extra_{shape % SHAPES}", SerializationContext(topic, MessageField.VALUE)
    if format_name == "json":
        return lambda value: json.dumps(value).encode()
    if format_name == "protobuf":
        message = _message(directory / f"{topic}.proto", extra_field)
        protobuf_serializer = ProtobufSerializer(message, client)
        serialize: Serialize = lambda value: protobuf_serializer(message(**value), context)  # noqa: E731
    else:
        registry_serializer = (
            AvroSerializer(client, Schema(json.dumps(_avro(extra_field)), "AVRO"))
            if format_name == "avro"
            else JSONSerializer(Schema(json.dumps(_json_schema(extra_field)), "JSON"), client)
        )
        serialize = lambda value: registry_serializer(dict(value), context)  # noqa: E731
    serialize(event(0, shape))
    return serialize


def _avro(extra_field: str) -> dict[str, Any]:
    fields = [
        {"name": "id", "type": "long"},
        {"name": "what", "type": ["null", "string"], "default": None},
        {"name": extra_field, "type": "double"},
    ]
    return {"type": "record", "name": "Event", "fields": fields}


def _json_schema(extra_field: str) -> dict[str, Any]:
    properties = {"id": {"type": "integer"}, "what": {"type": "string"}, extra_field: {"type": "number"}}
    return {"title": "Event", "type": "object", "properties": properties}


def _message(file: Path, extra_field: str) -> Any:
    package = file.stem.replace("-", "_")
    fields = f"int64 id = 1; string what = 2; double {extra_field} = 3;"
    file.write_text(f'syntax = "proto3"; package {package}; message Event {{ {fields} }}')
    pool = DescriptorPool()
    for file_descriptor in FileDescriptorSet.FromString(descriptor_set_of_file(file)).file:
        pool.Add(file_descriptor)
    return GetMessageClass(pool.FindMessageTypeByName(f"{package}.Event"))
