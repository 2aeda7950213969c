"""The format of record values, from the settings, and its decoder.

Spark ships a `ValueFormat` to the executors, which make the decoder. Raises ConfigError if the table's columns do not
fit the format.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial

from pyspark.sql import types as T

from coordination.errors import ConfigError, in_sentences
from sink.decode.avro.columns import AvroReader
from sink.decode.column_records import (
    ColumnDecoder,
    ColumnReader,
    FramedJsonDecoder,
    NumberDecoder,
    RawDecoder,
    UnusableSchema,
    WireDecoder,
)
from sink.decode.field_names import ProjectedDecoder, Projection
from sink.decode.fields import NO_RULES, Columns, ValueRules
from sink.decode.fingerprints import bounded_fingerprint
from sink.decode.json.connect_json import ConnectDecoder
from sink.decode.protobuf.columns import ProtobufReader
from sink.decode.protobuf.descriptors import descriptor_of
from sink.decode.protobuf.files import MissingCompiler, descriptor_set
from sink.decode.quoting import Quotes
from sink.decode.record_types import protobuf_type, require_type
from sink.decode.records import Decoder, SchemaMismatch
from sink.decode.registry.client import BrokenSchema, RegisteredSchema, RegistryAccess, SchemaId, referred, registry
from sink.schema.bounds import LARGEST, SchemaBounds

WIRE = "-confluent"
"""Formats with this suffix are in the wire format of a schema registry."""
BARE_KEYS = ("string", "int", "long")
"""Formats of Kafka keys that are the one field of a record key."""
NUMBER_BYTES = {"int": 4, "long": 8}
"""The sizes of the numbers that Kafka's serializers write, as keys."""
RAW: dict[str, type[T.DataType]] = {"string": T.StringType, "bytes": T.BinaryType}


@dataclass(frozen=True)
class ValueFormat:
    name: str = "json"
    """The value of the setting value.format."""
    writer: bytes = b""
    """The writer's schema for plain Avro, the file descriptors for plain Protobuf; else empty."""
    message: str = ""
    """The full name of the message, for plain Protobuf."""
    types: tuple[str, ...] = ()
    """The full names of the record types that land, behind a registry's header; empty where nothing names them."""
    access: RegistryAccess | None = None
    bounds: SchemaBounds = LARGEST
    """How large a writer's schema may be."""
    used: dict[str, str] | None = field(default=None, compare=False)
    """Gets the fingerprint of each registered schema that decodes values, by its id; None: nobody asks."""
    quotes: Quotes = Quotes.VALUES
    """How reasons of bad records show values."""
    rules: ValueRules = NO_RULES
    """How values are read whose meaning their type leaves open."""

    @property
    def is_wire(self) -> bool:
        """Whether values carry the id of a registered schema."""
        return self.name.endswith(WIRE)

    @property
    def columnar(self) -> bool:
        """Whether a value can only be read with its writer's schema."""
        return self.name.startswith(("avro", "protobuf"))

    def decoder(self, struct: T.StructType) -> Decoder:
        """Makes a decoder of these columns, for one thread. Raises ConfigError."""
        return self.decoder_of(self.columns(struct))

    def columns(self, struct: T.StructType) -> Columns:
        """Returns columns with the rules of their values."""
        return Columns.of(struct, self.rules)

    def fields_of(self, struct: T.StructType) -> Columns:
        """Returns the fields of records that are read for these columns. Raises ConfigError."""
        columns = self.columns(struct)
        return Projection(columns, dict(self.rules.names)).source if self.rules.names else columns

    def decoder_of(self, columns: Columns, takes_bare: bool = False) -> Decoder:
        """Makes a decoder of columns that have their rules. With `takes_bare` a value without fields is that of the
        only column. Raises ConfigError."""
        if not self.rules.names:
            return self._decoder_of(columns, takes_bare)
        projection = Projection(columns, dict(self.rules.names))
        return ProjectedDecoder(projection, self._decoder_of(projection.source, takes_bare))

    def _decoder_of(self, columns: Columns, takes_bare: bool) -> Decoder:
        kind, wire = self.name.removesuffix(WIRE), self.is_wire
        if kind in NUMBER_BYTES:
            return NumberDecoder(columns, NUMBER_BYTES[kind])
        if kind in RAW:
            return _raw(columns, kind)
        if kind == "json":
            decoder = ConnectDecoder(columns, takes_bare)
            return FramedJsonDecoder(decoder) if wire else decoder
        if wire:
            return WireDecoder(
                columns,
                partial(self._registered, columns, takes_bare=takes_bare),
                has_message_indexes=kind == "protobuf",
            )
        try:
            if kind == "avro":
                avro_reader = AvroReader(self.writer.decode(), columns, bounds=self.bounds)
                return ColumnDecoder(columns, avro_reader, may_be_empty=False)
            # A Protobuf message whose fields all have their defaults has no bytes.
            reader = ProtobufReader(self.writer, self.message, columns, self.bounds)
            return ColumnDecoder(columns, reader, may_be_empty=True)
        except SchemaMismatch as error:
            raise ConfigError(
                in_sentences(f"value.schema.file: {error}", "Correct the schema file or the columns.")
            ) from None

    def _registered(
        self, columns: Columns, schema_id: SchemaId, message_path: tuple[int, ...], takes_bare: bool = False
    ) -> ColumnReader:
        assert self.access is not None
        try:
            registered = registry(self.access).schema(schema_id)
        except BrokenSchema as error:
            raise UnusableSchema(str(error)) from None
        if self.used is not None:
            # Also where the schema does not fit: that of another registry under this id need not. The reader raises
            # what is suppressed.
            with suppress(ConfigError, ValueError):
                self.used[self.access.qualified(schema_id)] = bounded_fingerprint(registered, self.bounds)
        return self.reader(columns, registered, message_path, takes_bare)

    def reader(
        self,
        columns: Columns,
        registered: RegisteredSchema,
        message: str | tuple[int, ...],
        takes_bare: bool = False,
    ) -> ColumnReader:
        """Makes a reader for values of a registered schema. `message` has the full name or the indexes of Protobuf's
        message. Raises SchemaMismatch and UnusableSchema; MissingCompiler and Unavailable, which tell nothing of the
        schema."""
        kind = self.name.removesuffix(WIRE).upper()
        if registered.kind != kind:
            raise UnusableSchema(f"its kind is {registered.kind}, and value.format is {self.name}")
        try:
            self.bounds.check_text(registered.text, *referred(registered))
            if kind == "PROTOBUF":
                descriptors = descriptors_of(registered)
                require_type(protobuf_type(descriptor_of(descriptors, message)), self.types, columns)
                return ProtobufReader(descriptors, message, columns, self.bounds)
            return AvroReader(registered.text, columns, referred(registered), self.bounds, self.types, takes_bare)
        except MissingCompiler:
            raise
        except ConfigError as error:
            raise UnusableSchema(str(error)) from None


def descriptors_of(schema: RegisteredSchema) -> bytes:
    """Returns the descriptors of a registered Protobuf schema. Raises ConfigError, MissingCompiler and Unavailable."""
    descriptors = _compiled(schema)
    if isinstance(descriptors, ConfigError):
        raise descriptors
    return descriptors


@lru_cache(100)
def _compiled(schema: RegisteredSchema) -> bytes | ConfigError:
    """Compiles a schema once, however many message indexes its records have."""
    try:
        return descriptor_set(schema)
    except MissingCompiler:
        raise
    except ConfigError as error:
        return ConfigError(str(error))


def _raw(columns: Columns, kind: str) -> Decoder:
    fields = columns.struct.fields
    if len(fields) != 1 or not isinstance(fields[0].dataType, RAW[kind]):
        column_type = RAW[kind]().simpleString()
        given = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields)
        raise ConfigError(
            f"value.format={kind} fills one column of type {column_type}, and the schema has {given}. Correct one of"
            " them."
        )
    return RawDecoder(columns)
