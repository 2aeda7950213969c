"""Finds and deletes what a writer has left half-written on the timelines of a table and of its metadata table: the
store was full, or the writer died.

Hudi writes plans and inflight files in place on a local disk and on HDFS, and on a local disk also the file that
completes an instant. A plan that is cut short stops every commit and service, and one in the metadata table every
reader, because all pending plans are read. A completion that is cut short shows the instant as complete: rows of a
clustering appear twice, and reading the commit fails.

Guarantee: a completion that is cut short counts as pending here, unless a later write is complete as a whole (that
write may build on it), or the file was changed more than a minute after its completion (it was copied or edited, so it
is damaged). Under the table lock the file is deleted, and its owner completes the instant again or rolls it back. A
plan or inflight file is deleted only if nothing has followed it and it is not valid Avro. A rollback whose plan is
deleted is planned again. In the metadata table a completion that is cut short is deleted if its instant is pending in
the table: Hudi rolls it back there. Voided by writers that do not take the table lock. Raises what py4j and the store
raise.
"""

from __future__ import annotations

import io
import os
import re
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from pathlib import Path

import fastavro
import structlog
from py4j.protocol import Py4JJavaError

from sink.clients.java.errors import causes
from sink.hudi.client import HudiClient
from sink.hudi.instants import (
    CLUSTERING,
    COMPACTION,
    REPLACE,
    TIMELINE,
    TRANSACTION_ACTIONS,
    WRITES,
    ActiveTimeline,
    Instant,
)
from sink.hudi.java_objects import COMMIT, DELTA_COMMIT
from sink.hudi.metadata_timeline import METADATA_TIMELINE, completed, timeline_names
from sink.hudi.moments import age
from sink.storage.access import HDFS_SCHEMES

LOG = structlog.get_logger("sink.hudi")
_PLANS = frozenset({CLUSTERING, COMPACTION, "logcompaction", "clean", "rollback"})
_COMPLETIONS = WRITES | {"clean", "rollback"}
"""Without savepoints and restores: who asked for one has to know that it failed."""
_PENDING_ACTIONS = {COMMIT: COMPACTION, DELTA_COMMIT: "logcompaction", REPLACE: CLUSTERING}
"""Actions that Hudi calls otherwise once they are complete."""
_CHANGED_SECONDS = 60.0
"""A file that was changed so many seconds after its completion time, or later, was copied or edited."""
_DISK = "file"
_WRITTEN_IN_PLACE = HDFS_SCHEMES | {_DISK}
_MAGIC = b"Obj\x01"
_REQUESTED = re.compile(r"(\d+)\.(\w+)\.requested")
_INFLIGHT = re.compile(r"(\d+)(?:\.\w+)?\.inflight")
_COMPLETED = re.compile(r"(\d+)_\d+\.\w+")


class HalfWritten:
    """Looks at the timelines of one table. Remembers what is whole."""

    def __init__(self, hudi: HudiClient) -> None:
        self._hudi = hudi
        self._whole: frozenset[Instant] = frozenset()
        self._readable: set[Instant] = set()

    def with_pending(self, listed: Iterable[Instant]) -> tuple[tuple[Instant, ...], tuple[Instant, ...]]:
        """Returns the instants, those with a completion that is cut short as pending; and these as they are listed."""
        instants = tuple(listed)
        cut_short = tuple(self._cut_short(instants)) if self._scheme == _DISK else ()
        return tuple(self._pending(entry) if entry in cut_short else entry for entry in instants), cut_short

    def drop(self, snapshot: ActiveTimeline, require_held: Callable[[], None]) -> bool:
        """Deletes what is half-written. Call it under the table lock, with a snapshot that was read under it. Returns
        whether the snapshot has changed by that.
        """
        found = [f"{TIMELINE}/{_name(entry)}" for entry in (*snapshot.cut_short, *self._unreadable(snapshot))]
        for file in (*found, *self._in_metadata_table(snapshot)):
            require_held()
            self._hudi.storage().deleteFile(self._hudi.path(file))
            LOG.warning("half_written.deleted", file=file)
        return bool(found)

    def is_any(self, snapshot: ActiveTimeline) -> bool:
        """Whether `drop` would delete something of the table's own timeline."""
        return bool(snapshot.cut_short) or any(self._unreadable(snapshot))

    def is_plan(self, entry: Instant) -> bool:
        """Whether the plan of a pending instant is whole; it is for one that has ended meanwhile."""
        return not self._is_unreadable(f"{TIMELINE}/{entry.requested}.{entry.action}.requested", entry.action)

    def _unreadable(self, snapshot: ActiveTimeline) -> Iterator[Instant]:
        """Yields what was planned, or is to begin, and nobody can read."""
        actions = _PLANS | TRANSACTION_ACTIONS
        requested = {entry for entry in snapshot.instants if entry.state == "REQUESTED" and entry.action in actions}
        self._readable &= requested
        for entry in sorted(requested - self._readable):
            if self._is_unreadable(f"{TIMELINE}/{_name(entry)}", entry.action):
                yield entry
            else:
                self._readable.add(entry)

    def _is_unreadable(self, file: str, action: str = "") -> bool:
        """Whether a file that was requested or begun is there, has or needs a content, and is not whole."""
        content = self._read(file)
        return content is not None and bool(content or action in _PLANS) and not _is_avro(content)

    def _in_metadata_table(self, snapshot: ActiveTimeline) -> Iterator[str]:
        """Yields the files of the metadata table's timeline that are half-written."""
        if self._scheme not in _WRITTEN_IN_PLACE:
            return
        pending = {entry.requested for entry in snapshot.instants if not entry.done}
        names = self._metadata_names()
        done = completed(names)
        begun = done | {match[1] for match in map(_INFLIGHT.fullmatch, names) if match}
        for name in names:
            file, is_half_written = f"{METADATA_TIMELINE}/{name}", False
            if match := _REQUESTED.fullmatch(name):
                is_half_written = match[1] not in begun and self._is_unreadable(file, match[2])
            elif match := _INFLIGHT.fullmatch(name):
                is_half_written = match[1] not in done and self._is_unreadable(file)
            elif match := _COMPLETED.fullmatch(name):
                is_half_written = match[1] in pending and _is_cut_short(self._read(file))
            if is_half_written:
                yield file

    def _cut_short(self, instants: Collection[Instant]) -> Iterator[Instant]:
        """Yields completions that are cut short, newest first, up to the newest whole write."""
        whole = set()
        completed = [entry for entry in instants if entry.done and entry.action in _COMPLETIONS]
        for entry in sorted(completed, key=lambda entry: entry.completed or "", reverse=True):
            if entry in self._whole or not self._is_half_written(entry):
                whole.add(entry)
                if entry.action in WRITES:
                    break
            else:
                yield entry
        self._whole = frozenset(whole)

    def _is_half_written(self, entry: Instant) -> bool:
        """Whether a completion on the disk is cut short, and nobody has changed it since."""
        file = f"{TIMELINE}/{_name(entry)}"
        if not _is_cut_short(self._read(file)):
            return False
        try:
            unchanged_seconds = time.time() - (self._directory / file).stat().st_mtime
        except FileNotFoundError:
            return False
        return age(entry.completed or "", self._hudi.instant_now()) - unchanged_seconds < _CHANGED_SECONDS

    def _pending(self, entry: Instant) -> Instant:
        other = _PENDING_ACTIONS.get(entry.action, "")
        is_other = other and self._read(f"{TIMELINE}/{entry.requested}.{other}.inflight") is not None
        return Instant(entry.requested, other if is_other else entry.action, "INFLIGHT", None)

    @cached_property
    def _scheme(self) -> str:
        return str(self._hudi.storage().getScheme())

    @cached_property
    def _directory(self) -> Path:
        return Path(str(self._hudi.path().toUri().getPath()))

    def _metadata_names(self) -> Collection[str]:
        """Lists the metadata table's timeline: on a disk without the JVM, with which each name takes three calls."""
        if self._scheme != _DISK:
            return timeline_names(self._hudi) or ()
        directory = self._directory / METADATA_TIMELINE
        return os.listdir(directory) if directory.is_dir() else ()

    def _read(self, file: str) -> bytes | None:
        """Reads a file of the table; None if it is gone. From a disk without Hadoop, which would compare the content
        with a checksum that may be cut short itself.
        """
        try:
            if self._scheme == _DISK:
                return (self._directory / file).read_bytes()
            return self._hudi.content(file)
        except FileNotFoundError:
            return None
        except Py4JJavaError as error:
            if "java.io.FileNotFoundException" in causes(error):
                return None
            raise


def _name(entry: Instant) -> str:
    """Returns the name of the file that shows a complete or requested instant."""
    requested = f"{entry.requested}.{entry.action}.requested"
    return f"{entry.requested}_{entry.completed}.{entry.action}" if entry.done else requested


def _is_avro(content: bytes) -> bool:
    """Whether the content of a file is that of an Avro file, to its end."""
    try:
        return bool(list(fastavro.reader(io.BytesIO(content))))
    except (ValueError, EOFError, IndexError, KeyError, TypeError, UnicodeDecodeError, zlib.error):
        return False


def _is_cut_short(content: bytes | None) -> bool:
    return content is not None and _MAGIC.startswith(content[: len(_MAGIC)]) and not _is_avro(content)
