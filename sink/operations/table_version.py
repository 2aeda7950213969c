"""Refuses a table whose checkpoints another protocol version wrote, without Hudi and without a JVM.

Guarantee: the newest checkpoint of the sink, and of each other sink on the active timeline, is of this release's
version, or cannot be read here; other readers report that. Changes nothing. Raises OtherVersion.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

from coordination.errors import ConfigError, Corrupt, TableError, Unavailable
from coordination.state.codec import decode_checkpoint
from sink.audit.timeline import CHECKPOINT_PREFIX, active_names, instants_of, metadata_of
from sink.config import Settings
from sink.storage.table_files import open_table

_UNREADABLE = (TableError, Unavailable, Corrupt, ConfigError, OSError, pa.ArrowException)
_NO_METADATA = (ValueError, LookupError, TypeError, AttributeError, EOFError)


def require_own_table(settings: Settings) -> None:
    """Raises OtherVersion if the newest checkpoint of a sink in the table is of another version."""
    own, seen = CHECKPOINT_PREFIX + settings.name, set[str]()
    with suppress(*_UNREADABLE, *_NO_METADATA):
        table = open_table(settings.base_path, settings.storage)
        active = active_names(table)[::-1]
        for instant, _, _, content, file in instants_of(table, active, []):
            if own in seen and file not in active:
                return
            for key, text in (metadata_of(content).get("extraMetadata") or {}).items():
                if key.startswith(CHECKPOINT_PREFIX) and key not in seen:
                    seen.add(key)
                    name = key.removeprefix(CHECKPOINT_PREFIX)
                    decode_checkpoint(text, f"{settings.base_path}: checkpoint of sink {name} in commit {instant}")
