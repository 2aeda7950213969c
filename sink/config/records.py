"""Compiles what a write needs to know of records. Reads value.schema.file. Raises ConfigError, and OSError for a file
that cannot be read.
"""

from __future__ import annotations

from sink.config.derived import DerivedSettings
from sink.config.meaning import decoding_text
from sink.config.record_formats import key_format, registry_access, value_format
from sink.write.reading.kafka_consumer import ConsumerSettings
from sink.write.rows.specification import RecordSpecification, SchemaSource


def record_specification(settings: DerivedSettings) -> RecordSpecification:
    form = value_format(settings)
    ddl = "" if settings.schema_subject is not None else settings.schema_text
    return RecordSpecification(
        form=form,
        key_form=key_format(settings),
        registry=registry_access(settings),
        schema=SchemaSource(ddl, settings.schema_subject, settings.value_message, settings.schema_types),
        key_column=settings.key_format,
        header_column=settings.headers,
        decoding=decoding_text(settings, form),
        consumer=ConsumerSettings(settings.kafka_native_consumer, f"sink-{settings.name}"),
        tolerated=settings.errors_max if settings.tolerant else 0,
    )
