"""The formats of values and keys, from the settings.

Reads the file in value.schema.file. Raises ConfigError, and OSError for a file that cannot be read.
"""

from __future__ import annotations

from coordination.errors import ConfigError
from sink.config import Settings
from sink.decode.fingerprints import bounded_fingerprint
from sink.decode.formats import ValueFormat
from sink.decode.proto_files import descriptor_set_of_file, registered_set
from sink.decode.registry import RegisteredSchema, RegistryAccess
from sink.write.value_rules import value_rules


def key_format(settings: Settings) -> ValueFormat | None:
    """Returns the format of Kafka keys, from which the sink reads record keys; None if delete.key.format is `none`."""
    name = settings.delete_key_format
    if name == "none":
        return None
    access = registry_access(settings) if name.endswith("-confluent") else None
    return ValueFormat(name, access=access, bounds=settings.schema_bounds, rules=value_rules(settings))


def value_format(settings: Settings) -> ValueFormat:
    file, bounds, rules = settings.value_schema_file, settings.schema_bounds, value_rules(settings)
    match settings.value_format:
        case "avro":
            writer = file.read_bytes() if file else settings.schema_text.encode()
            return ValueFormat("avro", writer, bounds=bounds, rules=rules)
        case "protobuf":
            assert file is not None
            message = settings.value_message or ""
            return ValueFormat("protobuf", descriptor_set_of_file(file), message, bounds=bounds, rules=rules)
        case name:
            return ValueFormat(name, access=registry_access(settings), bounds=bounds, rules=rules)


def file_schema(form: ValueFormat) -> tuple[str, RegisteredSchema] | None:
    """Returns the schema that all values of a format have, with its fingerprint, as if a registry had it. None where
    values need none or name their own, and for one that the decoder refuses."""
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


def registry_access(settings: Settings) -> RegistryAccess | None:
    if not settings.registry_urls:
        return None
    login = settings.registry_login.get_secret_value() if settings.registry_login else ""
    client_settings = {
        "basic.auth.user.info": login,
        "ssl.ca.location": settings.registry_ca,
        "ssl.certificate.location": settings.registry_certificate,
        "ssl.key.location": settings.registry_key,
    }
    properties = tuple((name, str(value)) for name, value in client_settings.items() if value)
    return RegistryAccess(settings.registry_urls, properties, name=settings.registry_name)
