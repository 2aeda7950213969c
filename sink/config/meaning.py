"""Compiles the text that says how records are decoded, for the commits that have their rows.

A reader of a commit finds with it what its values meant, whatever the configuration has become.
"""

from __future__ import annotations

import json

from sink.config.derived import DerivedSettings
from sink.config.groups.meanings import MeaningSettings
from sink.decode.file_schema import file_schema
from sink.decode.formats import ValueFormat

_SETTINGS = (
    *MeaningSettings.model_fields,
    "value_format",
    "value_message",
    "value_envelope",
    "debezium_before",
    "delete_field",
    "delete_key_format",
    "key_format",
    "partition_time_field",
    "partition_time_format",
    "partition_time_zone",
    "partition_time_column",
)


def decoding_text(settings: DerivedSettings, form: ValueFormat) -> str:
    """Returns the settings that are not defaults, by their names, and the fingerprint of the schema that all values
    of `form` have: a JSON object. The table has the schema (`sink.hudi.schema_texts`).

    Schemas of a registry are in the checkpoint, by id and fingerprint.
    """
    fields = type(settings).model_fields
    chosen = {name: getattr(settings, name) for name in _SETTINGS}
    found = {str(fields[name].alias): value for name, value in chosen.items() if value != fields[name].default}
    found["value.format"] = settings.value_format
    if (schema := file_schema(form)) is not None:
        found["value.schema.file"] = schema[0]
    return json.dumps(found, separators=(",", ":"), sort_keys=True)
