"""`Settings`: every setting of a sink with its name, type, default, bounds and meaning.

Every instance is well formed and complete; anything else raises pydantic's ValidationError, which `load_configuration`
turns into sentences. No secret is part of a `repr` or a dump. Printing a value of `Settings.kafka`, `.spark` or `.hudi`
by hand voids this.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import field_serializer, model_validator

from sink.config.contradictions import contradictions
from sink.config.derived import DerivedSettings
from sink.config.every_field import ProcessSettings
from sink.telemetry.redaction import Properties, redact_text

if TYPE_CHECKING:
    from sink.hudi.specification import ErrorsSpecification, TableSpecification
    from sink.write.rows.specification import RecordSpecification


class Settings(DerivedSettings):
    """Everything a worker needs to know. Immutable; printing it shows no secrets."""

    @model_validator(mode="after")
    def _require_consistent(self) -> Settings:
        for contradiction in contradictions(self):
            raise ValueError(contradiction)
        return self

    @field_serializer("kafka", "spark", "hudi")
    def _without_secrets(self, value: Properties) -> dict[str, str]:
        return value.redacted()

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, redact_text(value) if isinstance(value, str) else value

    def __str__(self) -> str:
        return repr(self)

    @property
    def table(self) -> TableSpecification:
        """The table, for those who write, serve and check it."""
        from sink.config.tables import table_specification

        return table_specification(self)

    @property
    def errors(self) -> ErrorsSpecification:
        """The table of bad records, and the dead-letter topic."""
        from sink.config.tables import errors_specification

        return errors_specification(self)

    @property
    def records(self) -> RecordSpecification:
        """The records, for those who read and write them. Reads value.schema.file."""
        from sink.config.records import record_specification

        return record_specification(self)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret value, to keep them out of a text."""
        credentials = (self.zookeeper_password, self.zookeeper_key_password, self.registry_login, self.http_token)
        credential_values = [secret.get_secret_value() for secret in credentials if secret]
        return (
            *credential_values,
            *self.kafka.secrets(),
            *self.spark.secrets(),
            *self.hudi.secrets(),
            *self.storage_as_set.secrets,
        )

    @property
    def config_digest(self) -> str:
        """A SHA-256 of the settings that all workers of a sink must agree on; no secrets, nothing of a single host."""
        agreed: dict[str, Any] = {
            name: getattr(self, name)
            for name, field in type(self).model_fields.items()
            if isinstance(field.json_schema_extra, dict) and field.json_schema_extra["same_on_all_workers"]
        }
        agreed["topics"] = sorted(self.topics)
        if self.topic_regex is None:
            del agreed["topic_regex"]
        if self.value_schema_file is not None:
            agreed["writer"] = hashlib.sha256(self.value_schema_file.read_bytes()).hexdigest()
        agreed["schema"] = re.sub(r"\s+", " ", self.schema_text)
        agreed["hudi"] = {k: v for k, v in sorted(self.hudi.items()) if not self.hudi.is_secret(k)}
        return hashlib.sha256(json.dumps(agreed, sort_keys=True, default=str).encode()).hexdigest()

    @property
    def process(self) -> ProcessSettings:
        """The settings that a worker's process has once, for all its sinks."""
        names = ProcessSettings.model_fields
        # A default may give way where a written setting may not.
        written = self.model_fields_set & names.keys()
        return ProcessSettings.model_construct(written, **{name: getattr(self, name) for name in names})


@cache
def aliases() -> Mapping[str, str]:
    """Maps every name that a setting may be written under to its proper name."""
    names: dict[str, str] = {}
    for field in Settings.model_fields.values():
        extra: Any = field.json_schema_extra
        if field.alias is not None and not field.alias.endswith(".*"):
            names |= dict.fromkeys((field.alias, *extra["also"]), field.alias)
    return names


def is_of_process(key: str) -> bool:
    """Whether the setting belongs to the whole process, under any of its names."""
    return key.startswith("spark.") or aliases().get(key) in _OF_PROCESS


_OF_PROCESS = frozenset(field.alias for field in ProcessSettings.model_fields.values())
