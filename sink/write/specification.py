"""The specification by which records are decoded, for the commits that have their rows.

A reader of a commit finds with it what its values meant, whatever the configuration has become. Raises OSError for a
schema file that cannot be read.
"""

from __future__ import annotations

import json
from hashlib import sha256

from sink.config import Settings
from sink.config.groups.meanings import MeaningSettings

_SETTINGS = (
    *MeaningSettings.model_fields,
    "value_format",
    "value_message",
    "value_envelope",
    "debezium_before",
    "delete_field",
    "delete_key_format",
    "key_format",
)


def specification(settings: Settings) -> str:
    """Returns the settings that are not defaults, by their names, and the digest of a schema file that the values need:
    a JSON object.

    Schemas of a registry are in the checkpoint, by id and fingerprint.
    """
    fields = type(settings).model_fields
    chosen = {name: getattr(settings, name) for name in _SETTINGS}
    found = {str(fields[name].alias): value for name, value in chosen.items() if value != fields[name].default}
    found["value.format"] = settings.value_format
    if settings.value_schema_file is not None:
        found["value.schema.file"] = f"sha256:{sha256(settings.value_schema_file.read_bytes()).hexdigest()}"
    return json.dumps(found, separators=(",", ":"), sort_keys=True)
