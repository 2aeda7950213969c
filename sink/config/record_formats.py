"""Compiles the formats of values and keys, the rules of values, and the access to the registry.

Reads the file in value.schema.file. Raises ConfigError, and OSError for a file that cannot be read.
"""

from __future__ import annotations

from typing import Any

from sink.config.derived import DerivedSettings
from sink.decode.fields import Choices, ValueRules
from sink.decode.formats import ValueFormat
from sink.decode.protobuf.files import descriptor_set_of_file
from sink.decode.quoting import Quotes
from sink.decode.registry.client import RegistryAccess


def key_format(settings: DerivedSettings) -> ValueFormat | None:
    """Returns the format of Kafka keys, from which the sink reads record keys; None if delete.key.format is `none`."""
    name = settings.delete_key_format
    if name == "none":
        return None
    access = registry_access(settings) if name.endswith("-confluent") else None
    return ValueFormat(name, access=access, bounds=settings.schema_bounds, rules=value_rules(settings))


def value_format(settings: DerivedSettings) -> ValueFormat:
    file, bounds, rules = settings.value_schema_file, settings.schema_bounds, value_rules(settings)
    quotes = Quotes.VALUES if settings.errors_quote_values else Quotes.LENGTHS
    match settings.value_format:
        case "avro":
            writer = file.read_bytes() if file else settings.schema_text.encode()
            return ValueFormat("avro", writer, bounds=bounds, rules=rules, quotes=quotes)
        case "protobuf":
            assert file is not None
            message = settings.value_message or ""
            return ValueFormat(
                "protobuf", descriptor_set_of_file(file), message, bounds=bounds, rules=rules, quotes=quotes
            )
        case name:
            return ValueFormat(name, access=registry_access(settings), bounds=bounds, rules=rules, quotes=quotes)


def registry_access(settings: DerivedSettings) -> RegistryAccess | None:
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


def value_rules(settings: DerivedSettings) -> ValueRules:
    return ValueRules(
        _choices(settings.time_unit),
        _choices(settings.date_unit),
        _choices(settings.decimal_format),
        infinity=settings.time_infinity,
        rounds=settings.decimal_rounding == "half_up",
        exact_case=settings.field_case == "exact",
        names=settings.field_names,
    )


def _choices(pairs: tuple[tuple[str, str], ...]) -> Choices[Any]:
    return Choices(dict(pairs).get(""), tuple(pair for pair in pairs if pair[0]))
