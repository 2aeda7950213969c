"""A sink's records, as its settings want them: what their values are, and how they are read."""

from __future__ import annotations

from dataclasses import dataclass

from sink.decode.formats import ValueFormat
from sink.decode.registry.client import RegistryAccess
from sink.write.reading.kafka_consumer import ConsumerSettings


@dataclass(frozen=True, slots=True)
class SchemaSource:
    """`ddl` names the columns, or the newest schema of `subject` in the registry does. `message` is a Protobuf message
    of the schema, `types` are the record types that land; empty for all."""

    ddl: str
    subject: str | None
    message: str | None
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordSpecification:
    """`key_form` is the format of Kafka keys that delete rows; None if keys delete none. `key_column` is the type of
    the table's column with the Kafka key, or `none`. `decoding` is the JSON with which commits say how their values
    were decoded. `tolerated` is the number of bad records that a task tolerates: as many as a whole transaction.
    """

    form: ValueFormat
    key_form: ValueFormat | None
    registry: RegistryAccess | None
    schema: SchemaSource
    key_column: str
    header_column: bool
    decoding: str
    consumer: ConsumerSettings
    tolerated: int

    @property
    def reads_headers(self) -> bool:
        """Whether a write needs the headers of records: for the table's column, or for schema ids."""
        return self.header_column or self.form.is_wire or (self.key_form is not None and self.key_form.is_wire)
