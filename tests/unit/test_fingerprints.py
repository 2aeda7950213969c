"""Fingerprints of registered schemas: the changes that they show, and those that they do not."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from sink.decode.fingerprints import fingerprint
from sink.decode.protobuf import files as proto_files
from sink.decode.protobuf.files import descriptor_set
from sink.decode.registry.client import RegisteredSchema

FIELD: dict[str, Any] = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "aliases": ["t"]}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        FIELD,
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"], "default": "A"}},
        {"name": "next", "type": ["null", "Order"], "default": None},
    ],
}
PROTO = """syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; repeated int32 counts = 2; google.protobuf.Timestamp at = 3; map<string, int32> of = 4; }
"""


def of(schema: object, *references: RegisteredSchema, kind: str = "AVRO", number: int = 7) -> str:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    named = tuple((f"reference {at}", reference) for at, reference in enumerate(references))
    return fingerprint(RegisteredSchema(number, kind, text, named))  # type: ignore[arg-type]


def changed(**more: Any) -> dict[str, Any]:
    return {**ORDER, **more}


def with_field(**more: Any) -> dict[str, Any]:
    return changed(fields=[{**FIELD, **more}, *ORDER["fields"][1:]])


@pytest.mark.parametrize(
    "same",
    [
        json.dumps(ORDER, indent=3),
        json.dumps(dict(reversed(ORDER.items()))),
        changed(doc="An order."),
        {**changed(name="shop.Order"), "namespace": "elsewhere"},
        with_field(doc="When.", order="descending"),
        changed(**{"connect.version": 3, "connect.name": "shop.Order"}),
        changed(
            fields=[*ORDER["fields"][:2], {"name": "next", "type": [{"type": "null"}, "shop.Order"], "default": None}]
        ),
    ],
)
def test_a_text_that_is_written_differently_is_the_same_schema(same: object) -> None:
    assert of(same) == of(ORDER)


@pytest.mark.parametrize(
    "other",
    [
        changed(namespace="market"),
        changed(name="Orders"),
        changed(aliases=["Old"]),
        changed(fields=ORDER["fields"][::-1]),
        changed(fields=ORDER["fields"][:2]),
        with_field(aliases=[]),
        with_field(name="when"),
        with_field(default=0),
        with_field(type="long"),
        with_field(type={"type": "long", "connect.name": "io.debezium.time.Timestamp"}),
        with_field(type={"type": "long", "logicalType": "timestamp-micros"}),
        json.dumps(ORDER).replace('["A", "B"]', '["B", "A"]'),
        json.dumps(ORDER).replace(', "default": "A"', ""),
        json.dumps(ORDER).replace('"default": null', '"default": []'),
        "not a schema",
    ],
)
def test_what_decoding_may_use_changes_the_fingerprint(other: object) -> None:
    assert of(other) != of(ORDER)


def test_a_schema_that_is_referred_to_is_a_part_of_it() -> None:
    small, large = (
        RegisteredSchema(8, "AVRO", json.dumps({"type": "fixed", "name": "F", "size": size})) for size in (4, 8)
    )
    assert len({of(ORDER), of(ORDER, small), of(ORDER, large)}) == 3
    assert of(ORDER, small) == of(ORDER, RegisteredSchema(9, "AVRO", small.text))


def test_a_decimals_precision_and_scale_are_a_part_of_it() -> None:
    kinds = [
        {"type": "bytes", "logicalType": "decimal", "precision": p, "scale": s} for p, s in ((9, 2), (9, 3), (8, 2))
    ]
    assert len({of(with_field(type=kind)) for kind in kinds}) == 3


def test_a_protobuf_schema_has_one_fingerprint_as_source_and_as_descriptor_under_any_id_and_name() -> None:
    source = RegisteredSchema(7, "PROTOBUF", PROTO)
    file = FileDescriptorProto()
    file.ParseFromString(_root(descriptor_set(source)))
    file.name = "other.proto"
    file.options.java_package = "com.shop"
    file.message_type[0].field[0].json_name = "ID"
    commented = PROTO.replace("int64 id", "/* its number */ int64  id").replace(
        "message", "option java_package='x';\nmessage"
    )
    same = [PROTO, base64.b64encode(file.SerializeToString()).decode(), commented]
    assert len({of(text, kind="PROTOBUF", number=number) for number, text in enumerate(same)}) == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("int64 id", "sint64 id"),
        ("int64 id", "int64 key"),
        ("id = 1", "id = 5"),
        ("package shop", "package market"),
        ("counts = 2", "counts = 2 [packed=false]"),
        ("int64 id", "optional int64 id"),
    ],
)
def test_what_changes_protobufs_values_changes_the_fingerprint(before: str, after: str) -> None:
    assert of(PROTO.replace(before, after), kind="PROTOBUF") != of(PROTO, kind="PROTOBUF")


def test_another_version_of_an_import_that_this_host_has_is_no_other_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    before = of(PROTO, kind="PROTOBUF")
    known = proto_files._known_files()
    newer = FileDescriptorProto()
    newer.CopyFrom(known["google/protobuf/timestamp.proto"])
    newer.message_type.add(name="Added")
    monkeypatch.setattr(proto_files, "_known_files", lambda: {**known, newer.name: newer})
    assert of(PROTO, kind="PROTOBUF", number=8) == before


def _root(descriptors: bytes) -> bytes:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    return FileDescriptorSet.FromString(descriptors).file[-1].SerializeToString()
