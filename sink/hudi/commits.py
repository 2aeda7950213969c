"""Reads a table's completed commits from the files of its timeline, active and archived, without Hudi or a JVM.

Guarantee: each completed instant that changes data comes once, or an error does, so that a commit which does not come
is not there. Voided if archived history is deleted together with its manifest. It shares no code with the auditor,
which reads the same files and must not share a mistake. Raises TableError for a timeline that cannot be read whole, and
Unavailable for an error of the store.
"""

from __future__ import annotations

import io
import json
import posixpath
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from fastavro.schema import SchemaParseException

from coordination.errors import TableError, Unavailable
from sink.hudi.instants import WRITES
from sink.hudi.other_sinks import CHECKPOINT_KEY
from sink.storage.table_files import TableFiles

_INSTANT = re.compile(r"\d{17}[_.]")
_COMPLETED = re.compile(r"(?P<instant>\d{17})_(?P<completed>\d{17})\.(?P<action>\w+)\Z")
_MALFORMED = (
    *(ValueError, LookupError, TypeError, AttributeError, EOFError, ArithmeticError, RecursionError),
    *(FileNotFoundError, SchemaParseException, pa.ArrowException, zlib.error),
)
_MAX_QUOTED = 200


@dataclass(frozen=True, slots=True)
class StoredCommit:
    """A completed commit. `metadata` is Hudi's."""

    instant: str
    completed: str
    is_archived: bool
    metadata: Mapping[str, Any]

    @property
    def extra(self) -> Mapping[str, str]:
        return self.metadata.get("extraMetadata") or {}

    @property
    def checkpoints(self) -> dict[str, str]:
        """The checkpoints' texts, by sink."""
        prefix = CHECKPOINT_KEY
        return {key.removeprefix(prefix): text for key, text in self.extra.items() if key.startswith(prefix)}


def active_names(table: TableFiles) -> list[str]:
    """Returns the file names on the active timeline, also of pending instants. Raises OSError."""
    return [name for name in table.names(table.timeline_path) if _INSTANT.match(name)]


def completed_in(names: Iterable[str]) -> dict[str, str]:
    """Returns the completed instants among these file names, with their actions."""
    return {match["instant"]: match["action"] for match in map(_COMPLETED.match, names) if match}


def any_commit(names: Iterable[str]) -> bool:
    return not WRITES.isdisjoint(completed_in(names).values())


def read_commits(table: TableFiles, active: Iterable[str]) -> Iterator[StoredCommit]:
    """Yields the commits of the listing `active` in its order, then archived ones: it misses none that is archived
    meanwhile."""
    seen = set()
    with readable(table.base_path):
        for match in filter(None, map(_COMPLETED.match, active)):
            try:
                content = (
                    table.read(posixpath.join(table.timeline_path, match[0])) if match["action"] in WRITES else b""
                )
            except FileNotFoundError:
                continue  # archived since the listing: the manifest, read below, has it
            if content:
                seen.add(match["instant"])
                yield StoredCommit(match["instant"], match["completed"], False, _metadata(match[0], content))
        for name in _archived_names(table):
            for row in _archived_rows(table, name):
                if row["action"] in WRITES and row["instantTime"] not in seen:
                    seen.add(row["instantTime"])
                    completed = row["completionTime"] or row["instantTime"]
                    yield StoredCommit(row["instantTime"], completed, True, _metadata(name, row["metadata"]))


def completed_commits(table: TableFiles) -> list[StoredCommit]:
    """Returns all commits, in the order of completion."""
    with readable(table.base_path):
        commits = read_commits(table, active_names(table))
        return sorted(commits, key=lambda commit: (commit.completed, commit.instant))


@contextmanager
def readable(base_path: str) -> Iterator[None]:
    """Raises Unavailable for an error of the store, and TableError for content that cannot be understood."""
    try:
        yield
    except _MALFORMED as error:
        problem = f"{type(error).__name__}: {error}"[:_MAX_QUOTED]
        raise TableError(
            f"{base_path}: the timeline cannot be read whole ({problem}). See `sink audit`, repair it first."
        ) from error
    except OSError as error:
        raise Unavailable(f"{base_path}: the timeline cannot be read ({error}). Try again.") from error


def _archived_names(table: TableFiles) -> list[str]:
    names = set(table.names(table.history_path))
    versions = [int(name.removeprefix("manifest_")) for name in names if re.fullmatch(r"manifest_\d+", name)]
    if not versions and not any(name.endswith(".parquet") and not name.startswith(".") for name in names):
        return []
    version = str(max(versions, default=0))  # as Hudi does where no file says which manifest counts
    if "_version_" in names:
        version = table.read(posixpath.join(table.history_path, "_version_")).decode().strip()
    manifest = json.loads(table.read(posixpath.join(table.history_path, f"manifest_{version}")))
    return [entry["fileName"] for entry in manifest["files"]]


def _archived_rows(table: TableFiles, name: str) -> Iterator[dict[str, Any]]:
    columns = ["instantTime", "completionTime", "action", "metadata"]
    with table.filesystem.open_input_file(posixpath.join(table.history_path, name)) as file:
        for batch in pq.ParquetFile(file).iter_batches(batch_size=256, columns=columns):
            yield from batch.to_pylist()


def _metadata(name: str, content: bytes) -> Mapping[str, Any]:
    try:
        [metadata] = fastavro.reader(io.BytesIO(content))
    except _MALFORMED as error:
        raise ValueError(f"{name}: {error}") from error
    if not isinstance(metadata, dict):
        raise ValueError(f"{name}: not a commit's metadata")
    return metadata
