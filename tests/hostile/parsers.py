"""Every parser of bytes or text that strangers can send, as a function of bytes.

A parser may refuse its input by one of the errors in `REFUSALS`. Anything else that it raises is a crash.
"""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka.schema_registry import SchemaReference
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from coordination.errors import SinkError
from coordination.state import codec, control
from sink import config
from sink.audit.decode.avro_values import avro_reader
from sink.audit.decode.json_values import json_row
from sink.audit.decode.protobuf_values import protobuf_reader
from sink.audit.decode.rules import Bad, Rules
from sink.audit.timeline import metadata_of
from sink.config.values import topic_regex
from sink.decode.avro.columns import AvroReader
from sink.decode.column_records import ColumnDecoder, ColumnReader, UnusableSchema, WireDecoder
from sink.decode.cursors import Cursors
from sink.decode.fields import NO_RULES, Columns
from sink.decode.fingerprints import fingerprint
from sink.decode.header_ids import with_header_ids
from sink.decode.json.records import JsonDecoder
from sink.decode.protobuf.columns import ProtobufReader
from sink.decode.records import SchemaMismatch
from sink.decode.registry.client import RegisteredSchema, Registry, RegistryAccess, UnknownSchema
from sink.devtools.local.servers import free_ports
from sink.http.server import WorkerHttp
from sink.infer.json_schema import columns_of_json_schema
from sink.infer.protobuf import columns_of_message
from sink.infer.registered import columns_of_avro
from sink.runtime.process.http_settings import http_specification
from sink.schema.bounds import SchemaBounds
from sink.schema.table_schema import parse_ddl
from sink.telemetry.redaction import redact_text
from tests.columns_kit import columns
from tests.http_fleet import StubFacts, settings_in
from tests.inference_kit import infer_json

REFUSALS = (SinkError, SchemaMismatch, UnusableSchema)
Parser = Callable[[bytes], object]
HTTP_SECONDS = 30.0
"""A server that is silent for so long hangs: it gives a client ten seconds for a request."""
BOUNDS = SchemaBounds()
SCHEMA = parse_ddl(
    "i int, l bigint, s string, d decimal(10,2), x double, f float, b binary, t timestamp, dt date, a array<int>,"
    " m map<string, int>, st struct<a: int, b: array<struct<c: string>>>"
)
WITHOUT_MAPS = parse_ddl(
    "i int, l bigint, s string, d decimal(10,2), x double, b binary, t timestamp, a array<int>, st struct<a: int>"
)
_NODE = {
    "type": "record",
    "name": "N",
    "fields": [{"name": name, "type": ["null", "N"]} for name in ("left", "right")],
}
AVRO = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "i", "type": "int"},
            {"name": "skipped", "type": ["null", _NODE, {"type": "array", "items": "null"}]},
            {"name": "l", "type": ["null", "long", "int"]},
            {"name": "s", "type": ["string", "bytes"]},
            {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
            {"name": "a", "type": {"type": "array", "items": "int"}},
            {"name": "m", "type": {"type": "map", "values": "int"}},
            {"name": "more", "type": {"type": "map", "values": {"type": "array", "items": "N"}}},
        ],
    }
)


def _file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="a.proto", syntax="proto3")
    message = file.message_type.add(name="M")
    for number, (name, kind, label) in enumerate(
        [("i", 5, 1), ("l", 3, 1), ("s", 9, 1), ("x", 1, 1), ("b", 12, 1), ("a", 5, 3), ("f", 2, 1)], 1
    ):
        message.field.add(name=name, number=number, type=kind, label=label)
    message.field.add(name="st", number=8, type=11, label=1, type_name=".S")
    inner = file.message_type.add(name="S")
    inner.field.add(name="a", number=1, type=5, label=1)
    inner.field.add(name="more", number=2, type=11, label=3, type_name=".S")
    return file


DESCRIPTORS = FileDescriptorSet(file=[_file()]).SerializeToString()


@cache
def _avro() -> ColumnDecoder:
    return ColumnDecoder(columns(SCHEMA), AvroReader(AVRO, columns(SCHEMA), (), BOUNDS), may_be_empty=False)


@cache
def _protobuf() -> ColumnDecoder:
    return ColumnDecoder(columns(SCHEMA), ProtobufReader(DESCRIPTORS, "M", columns(SCHEMA), BOUNDS), may_be_empty=True)


def _values(data: bytes) -> pa.BinaryArray:
    """Cuts the input where it says `|||`, so that a value may have neighbours."""
    return pa.array(data.split(b"|||"), pa.binary())


def avro(data: bytes) -> object:
    return _avro().decode(_values(data))


def avro_schema(data: bytes) -> object:
    text = data.decode(errors="replace")
    AvroReader(text, columns(SCHEMA), (), BOUNDS)
    fingerprint(RegisteredSchema(1, "AVRO", text))
    return columns_of_avro(text, (), [], BOUNDS)


def avro_both(data: bytes) -> object:
    """Reads a value, behind a zero, by the schema before it, once into columns and once without any."""
    schema, _, value = data.partition(b"\0")
    struct = columns_of_avro(schema.decode(errors="replace"), (), [], BOUNDS)
    for target in (Columns.of(struct, NO_RULES), columns(SCHEMA)):
        cursors = Cursors(pa.array([value, value], pa.binary()))
        AvroReader(schema.decode(errors="replace"), target, (), BOUNDS).read(cursors, np.arange(2))
    return struct


def protobuf(data: bytes) -> object:
    return _protobuf().decode(_values(data))


def protobuf_schema(data: bytes) -> object:
    try:
        file = FileDescriptorProto.FromString(data)
    except DecodeError:
        return None
    descriptors = FileDescriptorSet(file=[file]).SerializeToString()
    _, inferred, _ = columns_of_message(descriptors, (0,), BOUNDS)
    for target in (inferred, SCHEMA.value_struct):
        ProtobufReader(descriptors, (0,), Columns.of(target, NO_RULES), BOUNDS)
    return inferred


def json_values(data: bytes) -> object:
    JsonDecoder(columns(WITHOUT_MAPS)).decode(_values(data))
    return JsonDecoder(columns(SCHEMA)).decode(_values(data))


_AUDITED = json.loads(SCHEMA.value_struct.json())


@cache
def _auditors_avro() -> tuple[Callable[[bytes], object], ...]:
    """By the schema of the corpus, and by one whose items take no bytes."""
    empty = {"name": "nothing", "type": {"type": "array", "items": {"type": "record", "name": "E", "fields": []}}}
    empty_items = json.dumps({"type": "record", "name": "R", "fields": [{"name": "i", "type": "int"}, empty]})
    return tuple(avro_reader([text], _AUDITED, Rules()) for text in (AVRO, empty_items))


@cache
def _auditors_protobuf() -> Callable[[bytes], object]:
    return protobuf_reader(DESCRIPTORS, "M", _AUDITED, Rules())


def _audited(data: bytes, *readers: Callable[[bytes], object]) -> object:
    """Reads each value by each reader, as the audit does."""
    found: list[object] = []
    for value in data.split(b"|||"):
        for read in readers:
            try:
                found.append(read(value))
            except Bad as error:
                found.append(str(error))
    return found


def audit_avro(data: bytes) -> object:
    return _audited(data, *_auditors_avro())


def audit_avro_schema(data: bytes) -> object:
    text = data.decode(errors="replace")
    return _audited(bytes(9), lambda value: avro_reader([text], _AUDITED, Rules())(value))


def audit_protobuf(data: bytes) -> object:
    return _audited(data, _auditors_protobuf())


def audit_json(data: bytes) -> object:
    return _audited(data, lambda value: json_row(value, _AUDITED, Rules()))


def json_sample(data: bytes) -> object:
    return infer_json(data.split(b"|||"))


def json_schema(data: bytes) -> object:
    text = data.decode(errors="replace")
    fingerprint(RegisteredSchema(1, "JSON", text))
    return columns_of_json_schema(RegisteredSchema(1, "JSON", text), [], BOUNDS)


def _reader_of(schema_id: object, message_path: tuple[int, ...]) -> ColumnReader:
    if schema_id == 7 and message_path in ((), (0,)):
        return _avro()._reader
    raise UnknownSchema("there is no such schema")


def framing(data: bytes) -> object:
    values = _values(data)
    for with_paths in (False, True):
        decoder = WireDecoder(columns(SCHEMA), _reader_of, has_message_indexes=with_paths)
        decoder.decode(values)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "__value_schema_id", "value": data[:20]}]] * len(values), kind)
    return decoder.decode(with_header_ids(values, headers, "__value_schema_id"))


class _Answer:
    """The answer of a registry's client, whatever JSON the registry sent."""

    def __init__(self, document: Any) -> None:
        fields: Mapping[str, Any] = document if isinstance(document, dict) else {}
        self.schema_str: Any = fields.get("schema")
        self.schema_type: Any = fields.get("schemaType", "AVRO")
        self.schema_id: Any = fields.get("id", 1)
        self.references = [
            SchemaReference(str(reference.get("name")), str(reference.get("subject")), 1)
            for reference in fields.get("references") or ()
            if isinstance(reference, dict)
        ]


class _Client:
    def __init__(self, document: Any) -> None:
        self._document = document

    def clear_caches(self) -> None:
        """Has none."""

    def __getattr__(self, name: str) -> Callable[..., _Answer]:
        return lambda *_args, **_options: _Answer(self._document)


def registry(data: bytes) -> object:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    client = Registry(RegistryAccess(("http://registry",), patience_seconds=0.0))
    client._clients = (("registry", _Client(document)),)  # type: ignore[assignment]
    return client.schema(7)


def znodes(data: bytes) -> object:
    refused: SinkError | None = None
    for decode in (codec.decode_states, codec.decode_header, codec.decode_status, codec.decode_member, control.decode):
        try:
            decode(data, "znode")
        except SinkError as error:
            refused = error
    return refused


def checkpoints(data: bytes) -> object:
    return codec.decode_checkpoint(data.decode(errors="replace"))


def footers(data: bytes) -> object:
    """Reads the metadata of a commit, and the footer of a Parquet file."""
    import pyarrow.parquet as pq

    try:
        return metadata_of(data), pq.read_metadata(pa.BufferReader(data))
    except (ValueError, OSError, EOFError, LookupError, TypeError):
        # What the audit calls unreadable.
        return None


def configuration(data: bytes) -> object:
    outcomes: list[object] = []
    with tempfile.TemporaryDirectory() as directory:
        for suffix in ("yaml", "properties"):
            path = Path(directory, f"sink.{suffix}")
            path.write_bytes(data)
            try:
                outcomes.append(config.load_configuration(path, {}))
            except SinkError as error:
                outcomes.append(str(error))
    return outcomes


def ddl(data: bytes) -> object:
    return parse_ddl(data.decode(errors="replace"), bounds=BOUNDS)


def topics(data: bytes) -> object:
    try:
        return topic_regex(data.decode(errors="replace"))
    except ValueError as error:
        return str(error)


def texts(data: bytes) -> object:
    return redact_text(data.decode(errors="replace"))


@cache
def _http_port() -> int:
    """Returns the port of a worker's server on loopback, which this process runs to its end."""
    [port] = free_ports(1)
    settings = settings_in(Path(tempfile.mkdtemp()), "127.0.0.1:1", http__listen=port)
    WorkerHttp(http_specification(settings), StubFacts()).start()
    return port


def _rest(connection: socket.socket) -> bytes:
    """Returns all that the server still answers on a connection, until it closes it."""
    answer = bytearray()
    with suppress(ConnectionError):
        while received := connection.recv(1 << 16):
            answer += received
    return bytes(answer)


def http(data: bytes) -> object:
    """A defect is an answer with status 500, and a server that does not answer another client meanwhile."""
    address = ("127.0.0.1", _http_port())
    with socket.create_connection(address, HTTP_SECONDS) as stranger:
        # The server may refuse a request, and close the connection, before it has read all of it.
        with suppress(ConnectionError):
            stranger.sendall(data)
        with socket.create_connection(address, HTTP_SECONDS) as client:
            client.sendall(b"GET /liveness HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            alive = _rest(client)
        # The server takes this for the end of the connection: not before it has read the request.
        with suppress(OSError):
            stranger.shutdown(socket.SHUT_WR)
        answer = _rest(stranger)
    assert alive.startswith(b"HTTP/1.1 200"), alive[:300]
    assert b"HTTP/1.1 500" not in answer, answer[:300]
    return answer


PARSERS: Mapping[str, Parser] = {
    "audit-avro": audit_avro,
    "audit-avro-schema": audit_avro_schema,
    "audit-protobuf": audit_protobuf,
    "audit-json": audit_json,
    "avro": avro,
    "avro-schema": avro_schema,
    "avro-both": avro_both,
    "protobuf": protobuf,
    "protobuf-schema": protobuf_schema,
    "json": json_values,
    "json-sample": json_sample,
    "json-schema": json_schema,
    "framing": framing,
    "registry": registry,
    "znodes": znodes,
    "checkpoints": checkpoints,
    "footers": footers,
    "configuration": configuration,
    "ddl": ddl,
    "topics": topics,
    "texts": texts,
    "http": http,
}
