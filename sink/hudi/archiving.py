"""Archiving step by step, so that a process that is stopped in it and wakes cannot set the archive back.

Hudi notes the number of the archive's newest manifest in `_version_`, which it writes anew each time, and gives a file
the name that another attempt gives, too. Here `_version_` is deleted: Hudi's readers then take the manifest with the
highest number. Each attempt writes files whose names no other one has, and two manifests: a copy of the newest, which
takes the next number, and then its own. Guarantee: the table lock is held meanwhile, so each later attempt's manifests
have higher numbers, whatever an earlier one still writes; an attempt that finds the lock lost publishes no manifest;
one whose manifest is not the newest deletes no instant from the active timeline; it deletes files of the archive only
if it listed them under the lock. Nothing is archived that is later than what stays on the active timeline: Hudi's
readers look for the completion of an instant after the first active one only there, and would take log files of an
archived one for part of the newest file slice. So restores and indexings go into the archive too, which Hudi leaves.
Voided by another Hudi writer that archives: until the next run here, its `_version_` counts, and so does what it left.
Written for Hudi 1.2, whose steps are called by reflection. Raises what py4j raises, Conflict and Corrupt.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from coordination.errors import Conflict, Corrupt
from sink.hudi.java_objects import HudiObjects

_ARCHIVER = "org.apache.hudi.client.timeline.versioning.v2.TimelineArchiverV2"
_ENGINE = "org.apache.hudi.common.engine.HoodieEngineContext"
_STREAM = "java.util.stream.Stream"
_VERSION = "_version_"
_MANIFEST = re.compile(r"manifest_(\d+)")
_DIGITS = 17
"""Those of an instant. Digits of an attempt follow the last instant in the name of a file."""
_TORN = re.compile(r"(?:manifest_\d+|_version_)\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Hudi writes a file under such a name and renames it. It takes one that a dead process left for a manifest, and fails
at its number."""
_FILE = re.compile(r"(\d+)_(\d+)_(\d)\.parquet")
_ATTEMPT = "attempt-"
_LEFT_BY_HUDI = ("restore", "indexing")
"""Actions that Hudi never archives."""


@dataclass(frozen=True, slots=True)
class _Manifest:
    """`files`: the size in bytes of each file, by its name."""

    number: int
    files: Mapping[str, int]

    def of_layer(self, layer: int, limit: int) -> list[str]:
        """Returns the names of a layer's files of at most `limit` bytes, the earliest instants first."""
        names = [name for name, size in self.files.items() if size <= limit]
        return sorted(name for name in names if (match := _FILE.fullmatch(name)) and int(match[3]) == layer)


class Archiving:
    """One run on a table that Hudi has opened (`table`), whose timeline is in the directory `timeline`, relative to the
    base path of `hudi`. The caller holds the table lock; `require_held` raises if it has lost it. `kept` are restores
    that stay on the active timeline.
    """

    def __init__(
        self,
        hudi: HudiObjects,
        table: Any,
        timeline: str,
        require_held: Callable[[], None],
        kept: Collection[str] = (),
    ) -> None:
        self._hudi = hudi
        self._require_held = require_held
        self._kept = kept
        self._table = table
        self._config = table.getConfig()
        self._storage = hudi.storage()
        self._history = f"{timeline}/history"
        self._markers = f"{timeline.rpartition('/')[0]}/.temp"
        self._attempt = f"{self._history}/{_ATTEMPT}{secrets.token_hex(8)}"
        self._token = f"{secrets.randbelow(10**8):08}"
        self._last = _Manifest(0, {})
        """The manifest that this attempt has written last."""

    def run(self) -> None:
        self._settle()
        archiver = getattr(self._hudi.jvm, _ARCHIVER)(self._config, self._table)
        actions = self._due(archiver)
        if actions.isEmpty():
            return
        newest = self._newest()
        self._create(_Manifest(newest.number + 1, newest.files))
        name, size = self._write(actions)
        self._publish({name: size})
        parameters = ("java.util.List", _ENGINE)
        self._hudi.call_hidden(archiver, "deleteArchivedActions", parameters, actions, self._hudi.engine_context)
        self._delete_markers({str(action.getInstantTime()) for action in actions})
        self._compact()
        self._clean()
        self._storage.deleteDirectory(self._hudi.path(self._attempt))

    def _settle(self) -> None:
        """Removes what processes have left that died or were too late, and the file that hides the newest manifest."""
        names = self._hudi.names(self._history)
        for name in names:
            if name.startswith(_ATTEMPT):
                self._storage.deleteDirectory(self._path(name))
            elif _TORN.fullmatch(name):
                self._delete(name)
        if _VERSION in names:
            self._settle_version(self._numbers(names))

    def _settle_version(self, numbers: Sequence[int]) -> None:
        """Deletes the manifests whose writer died before it had named them, and the file that names one."""
        newest = next(filter(self._is_readable, numbers), 0)
        named = self._content(_VERSION).strip()
        if named.isdigit() and newest < int(named):
            raise Corrupt(f"{self._history}/{_VERSION}: manifest_{named} cannot be read. Restore it from a backup.")
        for number in numbers:
            if number > newest:
                self._delete(f"manifest_{number}")
        self._delete(_VERSION)

    def _due(self, archiver: Any) -> Any:
        """Returns a Java list of what is to be archived, the oldest first: what Hudi would archive and what it leaves
        before that, up to the first instant that stays. May be empty.
        """
        actions = self._due_by_hudi(archiver)
        times = [str(action.getInstantTime()) for action in actions]
        listed = self._hudi.json(self._table.getActiveTimeline().getInstants())
        left = [
            entry
            for entry in listed
            if entry["action"] in _LEFT_BY_HUDI
            and entry["state"] == "COMPLETED"
            and entry["requestedTime"] not in self._kept
        ]
        last = max(times + (self._archived_until() if left else []), default="")
        added = {entry["requestedTime"] for entry in left if entry["completionTime"] < last}
        first_to_stay = min(
            (entry["requestedTime"] for entry in listed if entry["requestedTime"] not in added.union(times)), default=""
        )
        due = self._hudi.jvm.java.util.ArrayList()
        for action in [*actions, *map(self._action, sorted(added))]:
            if not first_to_stay or str(action.getInstantTime()) < first_to_stay:
                due.add(action)
        self._hudi.jvm.java.util.Collections.sort(due)
        return due

    def _archived_until(self) -> list[str]:
        """Returns the last instant of each file of the archive."""
        matches = map(_FILE.fullmatch, self._newest().files)
        return [match[2][:_DIGITS] for match in matches if match]

    def _action(self, instant: str) -> Any:
        """Makes Hudi's object of a complete instant, of the files of all its states."""
        timeline = self._hudi.java.common.table.timeline
        files = timeline.versioning.v2.ActiveTimelineV2(self._table.getMetaClient(), False).getInstants()
        states = self._hudi.jvm.java.util.ArrayList()
        for entry in files:
            if str(entry.requestedTime()) == instant and str(entry.getAction()) in _LEFT_BY_HUDI:
                states.add(entry)
        return timeline.ActiveAction.fromInstants(states)

    def _due_by_hudi(self, archiver: Any) -> Any:
        hudi = self._hudi
        stream = hudi.call_hidden(archiver, "getInstantsToArchive", ())
        # The class of a stream is not public.
        ordered = hudi.call_hidden(stream, "sorted", (), owner=_STREAM)
        collector = hudi.jvm.java.util.stream.Collectors.toList()
        return hudi.call_hidden(ordered, "collect", ("java.util.stream.Collector",), collector, owner=_STREAM)

    def _write(self, actions: Any) -> tuple[str, int]:
        """Writes the file of these instants. Returns its name and its size in bytes."""
        self._writer(self._attempt).write(actions, self._hudi.option(), self._hudi.option())
        (entry,) = [
            entry
            for entry in self._storage.listDirectEntries(self._hudi.path(self._attempt))
            if _FILE.fullmatch(str(entry.getPath().getName()))
        ]
        formats = self._hudi.java.io.storage.HoodieIOFactory.getIOFactory(self._storage)
        parquet = formats.getFileFormatUtils(self._hudi.java.common.model.HoodieFileFormat.PARQUET)
        written = parquet.getRowCount(self._storage, entry.getPath())
        if written != actions.size():
            # Hudi leaves out an instant that it cannot read, and only logs it.
            lost = actions.size() - written
            raise Corrupt(
                f"archiving: {lost} of {actions.size()} instants cannot be read: another process archives at the same"
                " time, or their files are damaged. The next run tries again."
            )
        name = self._unique(str(entry.getPath().getName()))
        self._rename(str(entry.getPath().getName()), name)
        return name, int(entry.getLength())

    def _delete_markers(self, archived: set[str]) -> None:
        """Deletes the markers that writers which died have left of these instants, as Hudi does."""
        for instant in archived & set(self._hudi.names(self._markers)):
            self._storage.deleteDirectory(self._hudi.path(f"{self._markers}/{instant}"))

    def _compact(self) -> None:
        """Joins the oldest files of each layer that has enough of them."""
        batch = self._config.getTimelineCompactionBatchSize()
        limit = self._config.getTimelineCompactionTargetFileMaxBytes() // batch
        layer = 0
        while len(names := self._last.of_layer(layer, limit)[:batch]) == batch:
            layer += 1
            bounds = [match.groups() for match in map(_FILE.fullmatch, names) if match]
            first, last = min(bound[0] for bound in bounds), max(bound[1] for bound in bounds)
            name = self._unique(f"{first}_{last}_{layer}.parquet")
            self._writer(self._history).compactFiles(self._hudi.java_list(names), name)
            size = int(self._storage.getPathInfo(self._path(name)).getLength())
            self._publish({name: size}, names)

    def _clean(self) -> None:
        """Deletes manifests that no reader takes any more, and the files that only those name."""
        names = self._hudi.names(self._history)
        kept = self._numbers(names)[: 2 * self._config.getTimelineManifestRetainedVersions()]
        in_use = {name for number in kept for name in self._read(number).files}
        for number in self._numbers(names)[len(kept) :]:
            self._delete(f"manifest_{number}")
        for name in names:
            if _FILE.fullmatch(name) and name not in in_use:
                self._delete(name)

    def _publish(self, added: Mapping[str, int], removed: Sequence[str] = ()) -> None:
        """Makes a manifest of the attempt's last one, without some files and with others."""
        files = {name: size for name, size in self._last.files.items() if name not in removed}
        self._create(_Manifest(self._last.number + 1, {**files, **added}))
        if self._newest() != self._last:
            raise Conflict("archiving: another process archives at the same time. The next run goes on.")

    def _create(self, manifest: _Manifest) -> None:
        self._last = manifest
        name = f"manifest_{manifest.number}"
        if self._storage.exists(self._path(name)):
            raise Conflict(f"archiving: another process has written {name}. The next run goes on.")
        files = [{"fileName": name, "fileLen": size} for name, size in sorted(manifest.files.items())]
        with closing(self._storage.create(self._hudi.path(f"{self._attempt}/{name}"), True)) as output:
            output.write(json.dumps({"files": files}).encode())
        self._require_held()
        self._rename(name, name)

    def _rename(self, name: str, final: str) -> None:
        """Moves a file of this attempt into the archive: no reader sees a part of it."""
        if not self._storage.rename(self._hudi.path(f"{self._attempt}/{name}"), self._path(final)):
            raise Conflict(f"archiving: {final} cannot be renamed, or is there already. The next run goes on.")

    def _newest(self) -> _Manifest:
        numbers = self._numbers(self._hudi.names(self._history))
        return self._read(numbers[0]) if numbers else _Manifest(0, {})

    def _read(self, number: int) -> _Manifest:
        name = f"manifest_{number}"
        try:
            entries = json.loads(self._content(name))["files"]
            return _Manifest(number, {str(entry["fileName"]): int(entry["fileLen"]) for entry in entries})
        except (ValueError, LookupError, TypeError) as error:
            raise Corrupt(f"{self._history}/{name}: {type(error).__name__}: {error}") from error

    def _is_readable(self, number: int) -> bool:
        try:
            self._read(number)
        except Corrupt:
            return False
        return True

    @staticmethod
    def _numbers(names: Sequence[str]) -> list[int]:
        """Returns the numbers of the manifests, the newest first."""
        return sorted((int(match[1]) for match in map(_MANIFEST.fullmatch, names) if match), reverse=True)

    def _unique(self, name: str) -> str:
        """Returns the name with digits of this attempt behind the last instant: the range that the name tells ends no
        earlier.
        """
        first, last, layer = name.split("_")
        return f"{first}_{last}{self._token}_{layer}"

    def _writer(self, directory: str) -> Any:
        writers = self._hudi.java.client.timeline.versioning.v2.LSMTimelineWriter
        return writers.getInstance(self._config, self._table, self._hudi.option(self._hudi.path(directory)))

    def _content(self, name: str) -> str:
        return self._hudi.content(f"{self._history}/{name}").decode()

    def _delete(self, name: str) -> None:
        self._storage.deleteFile(self._path(name))

    def _path(self, name: str) -> Any:
        return self._hudi.path(f"{self._history}/{name}")
