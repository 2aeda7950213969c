"""A value of another format than the sink's is bad, and its reason says what it begins like."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from avro_cases import zigzag
from protobuf_kit import Proto

from sink.decode.formats import ValueFormat
from sink.schema.table_schema import parse_ddl

AVRO = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
FRAMED = b"\0\0\0\0\7\n"


def forms() -> dict[str, ValueFormat]:
    proto = Proto()
    proto.message("K", "int64 id = 1")
    return {
        "json": ValueFormat("json"),
        "avro": ValueFormat("avro", json.dumps(AVRO).encode()),
        "protobuf": ValueFormat("protobuf", proto.bytes(), "t.K"),
    }


def reason(form: str, value: bytes) -> str:
    (bad,) = forms()[form].decoder(parse_ddl("id bigint").value_struct).decode(pa.array([value], pa.binary())).bad
    return bad.reason


@pytest.mark.parametrize("form", ["json", "avro", "protobuf"])
@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (
            FRAMED,
            "Its first byte is 0, as in a schema registry's header: if it has one, set the format that",
        ),
        (b"\x03\0" + bytes(range(16)), "It begins like AWS Glue's header, which is not read. Have the producer leave"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\3", "It begins like gzip. Have the producer set compression.type"),
        (b"Obj\x01\4\x14avro", "It begins like a file of Avro. Have the producer send each record"),
    ],
)
def test_first_bytes_tell_what_wrote_a_value(form: str, value: bytes, sentence: str) -> None:
    assert f". {sentence}" in reason(form, value)


@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_json_in_another_format_is_named(form: str) -> None:
    assert reason(form, b'{"id":1}').endswith(". It begins like JSON: if it is, set the format json.")


@pytest.mark.parametrize("text", ["utf-16-le", "utf-16-be"])
def test_json_in_utf_16_is_named(text: str) -> None:
    mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}[text]
    assert reason("json", mark + '{"id":1}'.encode(text)) == (
        "not UTF-8 at byte 0. It begins like UTF-16. Have the producer write UTF-8."
    )


def test_a_record_that_is_read_up_to_a_column_is_of_the_format() -> None:
    at = {"type": "long", "logicalType": "timestamp-millis"}
    fields = [{"name": "note", "type": ["null", "string"]}, {"name": "at", "type": at}]
    form = ValueFormat("avro", json.dumps(AVRO | {"fields": fields}).encode())
    value = b"\0" + zigzag(10**15)
    (bad,) = (
        form.decoder(parse_ddl("note string, at timestamp").value_struct).decode(pa.array([value], pa.binary())).bad
    )
    assert bad.reason.startswith("column 'at': ")
    assert "registry" not in bad.reason


def test_other_beginnings_tell_nothing() -> None:
    assert reason("json", b"abcdef") == "not one JSON document: Expecting value at character 0"
    assert reason("avro", b"") == "the value is empty"
