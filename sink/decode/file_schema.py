"""The schema that all values of a topic have, from value.schema.file, as if a registry had it."""

from __future__ import annotations

from coordination.errors import ConfigError
from sink.decode.fingerprints import bounded_fingerprint
from sink.decode.formats import ValueFormat
from sink.decode.protobuf.files import registered_set
from sink.decode.registry.client import RegisteredSchema


def file_schema(form: ValueFormat) -> tuple[str, RegisteredSchema] | None:
    """Returns the schema that all values of a format have, with its fingerprint. None where values need none or name
    their own, and for one that the decoder refuses."""
    if not form.writer:
        return None
    file = "value.schema.file"
    try:
        schema = (
            registered_set(file, form.writer)
            if form.name == "protobuf"
            else RegisteredSchema(file, "AVRO", form.writer.decode())
        )
        return bounded_fingerprint(schema, form.bounds), schema
    except (ConfigError, ValueError):
        return None
