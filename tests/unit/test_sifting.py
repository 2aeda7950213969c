"""Bad rows among good ones: each is found by itself, in every format, wherever batches end."""

from __future__ import annotations

import io
import json
import struct
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import types as T

from sink.decode import formats
from sink.decode.formats import ValueFormat
from sink.decode.registry.client import RegisteredSchema, RegistryAccess, UnknownSchema
from sink.layout.partition_paths import PartitionPaths
from sink.layout.partition_times import PartitionTime
from sink.layout.record_keys import RecordKeys
from sink.schema.table_schema import parse_ddl
from sink.write.rows.record_columns import RowDecoder, RowSpec, separate_bad
from tests.unit.protobuf_kit import Proto

DDL = "id bigint, name string"
ROWS = 400
AVRO = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]}
PROTO = Proto().message("R", "int64 id = 1", "string name = 2")
DESCRIPTORS = PROTO.bytes()
MESSAGE = PROTO.type("R")
ACCESS = RegistryAccess(("http://127.0.0.1:1",))


class LocalRegistry:
    """A registry in this process that has one schema."""

    def schema(self, schema_id: int) -> RegisteredSchema:
        if schema_id != 1:
            raise UnknownSchema(f"schema id {schema_id} is not known")
        return RegisteredSchema(1, "AVRO", json.dumps(AVRO))


def avro(number: int) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), {"id": number, "name": f"n{number}"})
    return stream.getvalue()


def protobuf(number: int) -> bytes:
    message = MESSAGE(id=number, name=f"n{number}")
    return bytes(message.SerializeToString())


def js(number: int) -> bytes:
    return json.dumps({"id": number, "name": f"n{number}"}).encode()


FORMATS: dict[str, tuple[ValueFormat, Any, list[bytes | None]]] = {
    "json": (ValueFormat("json"), js, [None, b"", b"{", b'{"id":"x"}', b"[1]", b'{"id":1}{"id":2}', b"\xff"]),
    "json-confluent": (
        ValueFormat("json-confluent", access=ACCESS),
        lambda number: struct.pack(">bI", 0, 9) + js(number),
        [None, b"", b"\x00", js(1), struct.pack(">bI", 0, 9) + b"{"],
    ),
    "avro": (ValueFormat("avro", json.dumps(AVRO).encode()), avro, [None, b"", b"\x02\x08x", b"\xff" * 12]),
    "avro-confluent": (
        ValueFormat("avro-confluent", access=ACCESS),
        lambda number: struct.pack(">bI", 0, 1) + avro(number),
        [None, b"\x00\x00", struct.pack(">bI", 0, 7) + avro(1), b"\x01" + avro(1) * 3],
    ),
    "protobuf": (
        ValueFormat("protobuf", DESCRIPTORS, "t.R"),
        protobuf,
        [None, b"\x08", b"\x12\x09ab", b"\x12\x01\xff"],
    ),
    "string": (ValueFormat("string"), js, [b"\xff", b"\xc3"]),
}


def batch(values: list[bytes | None], keys: list[bytes | None], first: int = 0) -> pa.RecordBatch:
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array(values, pa.binary()),
            "key": pa.array(keys, pa.binary()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
        }
    )


def separated(
    decoder: RowDecoder, values: list[bytes | None], keys: list[bytes | None], sizes: list[int]
) -> tuple[Any, Any]:
    """Returns the good rows, and the bad ones by offset, from batches of these sizes."""
    good: list[Any] = []
    bad: list[Any] = []
    start = 0
    for size in sizes:
        records, decoded, bad_rows = separate_bad(
            batch(values[start : start + size], keys[start : start + size], start), "t", decoder.decode
        )
        bad += [(start + bad_row.row, bad_row.kind, bad_row.reason) for bad_row in bad_rows]
        if decoded is not None:
            rows, groups = decoded
            good += rows.to_pylist()
            assert records.num_rows == rows.num_rows == len(groups.codes)
        start += size
    return good, bad


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("seed", range(3))
def test_what_is_bad_is_found_by_itself_whatever_its_neighbours(monkeypatch, name: str, seed: int) -> None:
    monkeypatch.setattr(formats, "registry", lambda _: LocalRegistry())
    value_format, make, bad_values = FORMATS[name]
    random = Random(seed)
    bad_by_offset = {
        at: random.choice(bad_values) for at in random.sample(range(ROWS), random.choice((1, 20, ROWS // 2)))
    }
    values = [bad_by_offset.get(at, b"") if at in bad_by_offset else make(at) for at in range(ROWS)]
    schema = parse_ddl("value string" if name == "string" else DDL)
    decoder = RowDecoder(RowSpec(schema, value_format, RecordKeys((), False), PartitionPaths((), True, False)))
    keys: list[bytes | None] = [None] * ROWS
    good, bad = separated(decoder, values, keys, [ROWS])
    assert [offset for offset, *_ in bad] == sorted(bad_by_offset)
    assert [row["_kafka_offset"] for row in good] == [at for at in range(ROWS) if at not in bad_by_offset]
    assert separated(decoder, values, keys, [1] * ROWS) == (good, bad)
    cuts = [0, *sorted(random.sample(range(1, ROWS), 12)), ROWS]
    assert separated(decoder, values, keys, [high - low for low, high in pairwise(cuts)]) == (good, bad)


def test_each_row_is_told_the_first_stage_that_it_does_not_get_through() -> None:
    schema = replace(parse_ddl("id bigint, name string, at bigint"), key=T.StringType(), generated=("day",))
    paths = PartitionPaths(("name",), True, False, PartitionTime("at", unit="s"))
    decoder = RowDecoder(RowSpec(schema, ValueFormat("json"), RecordKeys(("id",), False), paths))
    cases = [
        (b"k", {"id": 1, "name": "a", "at": 0}, None),
        (b"\xff", {"id": "x"}, "value"),
        (b"\xff", {"id": None, "name": "a:b", "at": 1 << 60}, "key"),
        (b"k", {"id": None, "name": "a:b", "at": 1 << 60}, "partition"),
        (b"k", {"id": None, "name": "a:b", "at": 0}, "record key"),
        (b"k", {"id": 2, "name": "a:b", "at": 0}, "partition"),
        (None, {"id": 3, "name": "b", "at": None}, None),
    ] * 5
    values: list[bytes | None] = [json.dumps(value).encode() for _, value, _ in cases]
    keys = [key for key, *_ in cases]
    good, bad = separated(decoder, values, keys, [len(cases)])
    assert [(offset, kind) for offset, kind, _ in bad] == [(at, kind) for at, (*_, kind) in enumerate(cases) if kind]
    assert len(good) == 10
    assert separated(decoder, values, keys, [1] * len(cases)) == (good, bad)
