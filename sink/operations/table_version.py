"""Refuses a table whose checkpoints another protocol version wrote, without Hudi and without a JVM.

Guarantee: the newest checkpoint of the sink, and of each other sink on the active timeline, is of this release's
version, or cannot be read here; other readers report that. Changes nothing. Raises OtherVersion.
"""

from __future__ import annotations

from contextlib import suppress

from coordination.errors import ConfigError, Corrupt, TableError, Unavailable
from coordination.state.codec import decode_checkpoint
from sink.config import Settings
from sink.hudi.commits import active_names, read_commits
from sink.storage.table_files import open_table

_UNREADABLE = (TableError, Unavailable, Corrupt, ConfigError, OSError)


def require_own_table(settings: Settings) -> None:
    """Raises OtherVersion if the newest checkpoint of a sink in the table is of another version."""
    seen = set[str]()
    with suppress(*_UNREADABLE):
        table = open_table(settings.base_path, settings.storage)
        for commit in read_commits(table, reversed(active_names(table))):
            if settings.name in seen and commit.is_archived:
                return
            for name, text in commit.checkpoints.items():
                if name not in seen:
                    seen.add(name)
                    decode_checkpoint(
                        text, f"{settings.base_path}: checkpoint of sink {name} in commit {commit.instant}"
                    )
