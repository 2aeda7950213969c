"""`python -m tests.bench.decoding`: processor time that each format costs a record, from bytes to columns.

The benchmark's order events, in batches as Spark hands them over, decoded by what a task uses. One process, one thread,
no Spark: formats take turns, and the fastest of their rounds counts, because a shared machine only adds time. For
comparison, fastavro and the protobuf library decode the same values record by record, without making columns.
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

from sink.decode.avro.columns import AvroReader
from sink.decode.column_records import WireDecoder
from sink.decode.formats import ValueFormat
from sink.schema.table_schema import parse_ddl
from tests.bench.orders import DDL, order
from tests.bench.workloads import AVRO
from tests.columns_kit import columns

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
    for number, field in enumerate(fields, 1):
        message.field.add(
            name=field["name"], number=number, type=TYPES[field["type"]], label=FieldDescriptorProto.LABEL_OPTIONAL
        )
    return FileDescriptorSet(file=[file]).SerializeToString()


def main() -> None:
    schema, rng = parse_ddl(DDL), random.Random(1)
    events = [json.loads(order(number, rng)[1]) for number in range(ROWS)]
    parsed = fastavro.parse_schema(json.loads(json.dumps(AVRO)))
    pool = DescriptorPool()
    pool.Add(FileDescriptorSet.FromString(descriptors()).file[0])
    message_class: Any = GetMessageClass(pool.FindMessageTypeByName("bench.Order"))

    def avro(event: dict[str, Any]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, event)
        return stream.getvalue()

    written = {
        "json": [json.dumps(event, separators=(",", ":")).encode() for event in events],
        "avro": [avro(event) for event in events],
        "protobuf": [message_class(**event).SerializeToString() for event in events],
    }
    framed = [struct.pack(">bI", 0, 1 + number % 2) + value for number, value in enumerate(written["avro"])]
    readers = {number: AvroReader(json.dumps(AVRO), columns(schema)) for number in (1, 2)}
    two_schemas = WireDecoder(columns(schema), lambda schema_id, _: readers[schema_id], has_message_indexes=False)
    cases: dict[str, tuple[list[bytes], Callable[[Any], Any]]] = {}
    for name, values in written.items():
        writer = {"avro": json.dumps(AVRO).encode(), "protobuf": descriptors()}.get(name, b"")
        decoder = ValueFormat(name, writer, "bench.Order" if name == "protobuf" else "").decoder(schema.value_struct)
        cases[name] = values, decoder.decode
    cases["avro-confluent, two schemas by turns"] = framed, two_schemas.decode
    cases["bytes"] = written["json"], ValueFormat("bytes").decoder(parse_ddl("value binary").value_struct).decode
    arrays = {name: pa.array(values, pa.binary()) for name, (values, _) in cases.items()}
    fastest: dict[str, float] = {}

    def time_call(name: str, call: Callable[[], Any]) -> None:
        began = time.process_time()
        call()
        fastest[name] = min(fastest.get(name, began), time.process_time() - began)

    for _ in range(ROUNDS):
        for name, (_, decode) in cases.items():
            time_call(name, lambda decode=decode, name=name: decode(arrays[name]))
        time_call("fastavro", lambda: [fastavro.schemaless_reader(io.BytesIO(v), parsed) for v in written["avro"]])
        time_call("the protobuf library", lambda: [message_class.FromString(v) for v in written["protobuf"]])
    print("| format | bytes a record | µs a record |\n|---|---|---|")
    for name, seconds in fastest.items():
        values = cases[name][0] if name in cases else written[LIBRARIES[name]]
        print(f"| {name} | {sum(map(len, values)) / ROWS:.0f} | {seconds / ROWS * 1e6:.2f} |")


if __name__ == "__main__":
    main()
