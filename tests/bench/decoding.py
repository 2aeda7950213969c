"""`python -m tests.bench.decoding`: processor time that each format costs a record, from bytes to columns.

The benchmark's order events, in batches as Spark hands them over, decoded by what a task uses. One process, one thread,
no Spark: formats take turns, and the fastest of their rounds counts, for a shared machine only ever adds to it. Beside
it what fastavro and the protobuf library take for the same values, record by record and without making columns.
"""

from __future__ import annotations

import io
import json
import random
import struct
import time
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from sink.decode.avro_columns import AvroReader
from sink.decode.column_records import WireDecoder
from sink.decode.formats import ValueFormat
from sink.schema import parse_ddl
from tests.bench.orders import DDL, order
from tests.bench.workloads import AVRO

ROWS = 16_384
ROUNDS = 30
LIBRARIES = {"fastavro": "avro", "the protobuf library": "protobuf"}
TYPES = {
    "long": FieldDescriptorProto.TYPE_INT64,
    "string": FieldDescriptorProto.TYPE_STRING,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
}


def descriptors() -> bytes:
    file = FileDescriptorProto(name="order.proto", package="bench", syntax="proto3")
    message = file.message_type.add(name="Order")
    fields: Any = AVRO["fields"]
    for number, each in enumerate(fields, 1):
        message.field.add(
            name=each["name"], number=number, type=TYPES[each["type"]], label=FieldDescriptorProto.LABEL_OPTIONAL
        )
    return FileDescriptorSet(file=[file]).SerializeToString()


def main() -> None:
    schema, chance = parse_ddl(DDL), random.Random(1)
    events = [json.loads(order(number, chance)[1]) for number in range(ROWS)]
    parsed = fastavro.parse_schema(json.loads(json.dumps(AVRO)))
    pool = DescriptorPool()
    pool.Add(FileDescriptorSet.FromString(descriptors()).file[0])
    kind: Any = GetMessageClass(pool.FindMessageTypeByName("bench.Order"))

    def avro(event: dict[str, Any]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, event)
        return stream.getvalue()

    written = {
        "json": [json.dumps(event, separators=(",", ":")).encode() for event in events],
        "avro": [avro(event) for event in events],
        "protobuf": [kind(**event).SerializeToString() for event in events],
    }
    framed = [struct.pack(">bI", 0, 1 + number % 2) + value for number, value in enumerate(written["avro"])]
    readers = {number: AvroReader(json.dumps(AVRO), schema.value_struct) for number in (1, 2)}
    two_schemas = WireDecoder(schema, lambda schema_id, _: readers[schema_id], message_paths=False)
    tried: dict[str, tuple[list[bytes], Callable[[Any], Any]]] = {}
    for name, values in written.items():
        writer = {"avro": json.dumps(AVRO).encode(), "protobuf": descriptors()}.get(name, b"")
        decoder = ValueFormat(name, writer, "bench.Order" if name == "protobuf" else "").decoder(schema)
        tried[name] = values, decoder.decode
    tried["avro-confluent, two schemas by turns"] = framed, two_schemas.decode
    tried["bytes"] = written["json"], ValueFormat("bytes").decoder(parse_ddl("value binary")).decode
    arrays = {name: pa.array(values, pa.binary()) for name, (values, _) in tried.items()}
    fastest: dict[str, float] = {}

    def clocked(name: str, call: Callable[[], Any]) -> None:
        began = time.process_time()
        call()
        fastest[name] = min(fastest.get(name, began), time.process_time() - began)

    for _ in range(ROUNDS):
        for name, (_, decode) in tried.items():
            clocked(name, lambda decode=decode, name=name: decode(arrays[name]))
        clocked("fastavro", lambda: [fastavro.schemaless_reader(io.BytesIO(v), parsed) for v in written["avro"]])
        clocked("the protobuf library", lambda: [kind.FromString(v) for v in written["protobuf"]])
    print("| format | bytes a record | µs a record |\n|---|---|---|")
    for name, seconds in fastest.items():
        values = tried[name][0] if name in tried else written[LIBRARIES[name]]
        print(f"| {name} | {sum(map(len, values)) / ROWS:.0f} | {seconds / ROWS * 1e6:.2f} |")


if __name__ == "__main__":
    main()
