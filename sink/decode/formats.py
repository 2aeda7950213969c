"""How record values are written, as the settings say it, and the decoder for it.

A `ValueFormat` is small and can be pickled: it travels to the executors with a write, which make the decoder. Raises
ConfigError where the format and the table's columns cannot go together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.decode.avro_columns import AvroReader
from sink.decode.column_records import ColumnDecoder, RawDecoder, Reader, Unframed, UnusableSchema, WireDecoder
from sink.decode.json_records import JsonDecoder
from sink.decode.proto_files import descriptor_set
from sink.decode.protobuf_columns import ProtobufReader
from sink.decode.records import Decoder, SchemaMismatch
from sink.decode.registry import RegisteredSchema, RegistryAccess, registry
from sink.schema import TableSchema

WIRE = "-confluent"
"""Formats of this ending have a schema registry's header before each value."""
RAW: dict[str, type[T.DataType]] = {"string": T.StringType, "bytes": T.BinaryType}


@dataclass(frozen=True)
class ValueFormat:
    name: str = "json"
    """As the setting value.format has it."""
    writer: bytes = b""
    """The writer's schema of plain Avro, the file descriptors of plain Protobuf; else empty."""
    message: str = ""
    """The full name of the message of plain Protobuf."""
    access: RegistryAccess | None = None

    @property
    def columnar(self) -> bool:
        """Whether a value's own schema is needed to read it."""
        return self.name.startswith(("avro", "protobuf"))

    def decoder(self, schema: TableSchema) -> Decoder:
        """One for a thread; raises ConfigError."""
        kind, wire = self.name.removesuffix(WIRE), self.name.endswith(WIRE)
        if kind in RAW:
            return _raw(schema, kind)
        if kind == "json":
            return Unframed(JsonDecoder(schema)) if wire else JsonDecoder(schema)
        if wire:
            return WireDecoder(schema, partial(self._registered, schema), message_paths=kind == "protobuf")
        try:
            # A message of Protobuf whose fields all have their defaults is no bytes.
            return ColumnDecoder(schema, self._reader(schema), may_be_empty=kind == "protobuf")
        except SchemaMismatch as error:
            raise ConfigError(f"value.schema.file: {error}; correct the one or the other") from None

    def _reader(self, schema: TableSchema) -> Reader:
        if self.name == "avro":
            return AvroReader(self.writer.decode(), schema.value_struct)
        return ProtobufReader(self.writer, self.message, schema.value_struct)

    def _registered(self, schema: TableSchema, schema_id: int, message_path: tuple[int, ...]) -> Reader:
        assert self.access is not None
        return self.reader(schema, registry(self.access).schema(schema_id), message_path)

    def reader(self, schema: TableSchema, registered: RegisteredSchema, message_path: tuple[int, ...]) -> Reader:
        """For values written with a registered schema; raises SchemaMismatch and UnusableSchema. With Protobuf `place`
        says which message of its file."""
        wanted = self.name.removesuffix(WIRE).upper()
        if registered.kind != wanted:
            raise UnusableSchema(f"it is one of {registered.kind}, and value.format is {self.name}")
        try:
            if wanted == "PROTOBUF":
                return ProtobufReader(descriptor_set(registered), message_path, schema.value_struct)
            return AvroReader(registered.text, schema.value_struct, referred(registered))
        except ConfigError as error:
            raise UnusableSchema(str(error)) from None


def referred(schema: RegisteredSchema) -> list[str]:
    """Schemas that this one refers to, each after those that it refers to itself."""
    texts: dict[str, None] = {}
    for _, reference in schema.references:
        texts |= dict.fromkeys(referred(reference)) | {reference.text: None}
    return list(texts)


def _raw(schema: TableSchema, kind: str) -> Decoder:
    fields = schema.value_struct.fields
    if len(fields) != 1 or not isinstance(fields[0].dataType, RAW[kind]):
        wanted = RAW[kind]().simpleString()
        shown = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields)
        raise ConfigError(
            f"value.format={kind} fills one column of type {wanted}, and the schema has {shown}; correct the one or the"
            " other"
        )
    return RawDecoder(schema)
