"""Reads a Hudi table's timeline, active and archived, without Hudi: commits, their write stats and checkpoints.

Guarantee: it returns every completed instant that changes data once, in order of completion; an instant that it cannot
read is a problem with its file name. Voided if archived history is deleted together with its manifest. It shares no
code with the product, because it checks the product. Raises `OtherFormat` for a checkpoint of another release."""

from __future__ import annotations

import io
import json
import posixpath
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import fastavro
import pyarrow.parquet as pq
from fastavro.schema import SchemaParseException

from sink.audit.checkpoints import AuditedCheckpoint, AuditedSlice, checkpoint_of, require_int
from sink.audit.report import AuditFinding, FindingKind
from sink.storage.table_files import TableFiles

CHECKPOINT_PREFIX = "sink.checkpoint."
REPLAYED_PREFIX, SQL_PREFIX = "sink.replayed.", "sink.replay.sql."
RELANDED_PREFIX = "sink.relanded."
SPECIFICATION_PREFIX = "sink.specification."
DATA_ACTIONS = frozenset({"commit", "deltacommit", "replacecommit"})
MOVING_OPERATIONS = frozenset({"CLUSTER", "COMPACT", "LOG_COMPACT", "INDEX"})
_COMPLETED = re.compile(r"^(\d+)_(\d+)\.(\w+)$")
_ANY_INSTANT = re.compile(r"^(\d+)[_.]")
_MANIFEST = re.compile(r"manifest_(\d+)")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A write stat: `writes` counts all rows of the file, `inserts`, `updates` and `deletes` the changes. `merged`
    counts the log files that a compaction has merged into it; None where it does not say."""

    file_id: str
    path: str
    partition_path: str
    writes: int
    inserts: int
    deletes: int
    size: int
    merged: int | None = None
    updates: int = 0

    @property
    def is_log(self) -> bool:
        return posixpath.basename(self.path).startswith(".")


@dataclass(frozen=True, slots=True)
class ReplayedRun:
    """Offsets `[low, high)` of one partition that were replayed from the errors table, or landed again."""

    topic: str
    topic_id: str
    partition: int
    generation: int
    low: int
    high: int

    def covers_part_of(self, piece: AuditedSlice) -> bool:
        own = (self.topic, self.topic_id, self.partition, self.generation)
        is_same = own == (piece.topic, piece.topic_id, piece.partition, piece.generation)
        return is_same and self.low < piece.end and piece.start < self.high


@dataclass(frozen=True, slots=True)
class Relanded:
    """A repair has landed this again: `runs` of offsets, whose rows are of this commit since; `records` counts the rows
    that its write stats have to count as inserted, where each record is a row."""

    records: int
    runs: tuple[ReplayedRun, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """A completed instant. `replaced` are (partition path, file id) of the file groups that it replaced."""

    instant: str
    completed: str
    action: str
    operation: str
    files: tuple[WrittenFile, ...]
    replaced: frozenset[tuple[str, str]]
    checkpoints: Mapping[str, AuditedCheckpoint]
    unreadable: Mapping[str, str]
    """The sinks whose checkpoint cannot be read, with the reason."""
    replayed: Mapping[str, tuple[ReplayedRun, ...]] = field(default_factory=dict)
    """The replayed bad records that the commit adds to the table, by sink."""
    specifications: Mapping[str, str] = field(default_factory=dict)
    """How the commit's records were decoded, by sink: a JSON object."""
    schema: str = ""
    """The table's columns, as an Avro record."""
    relanded: Mapping[str, Relanded] = field(default_factory=dict)
    """Offsets that the commit has landed again, by sink."""
    edited: frozenset[str] = frozenset()
    """The sinks whose replayed records have values that an operator's expression made."""

    @property
    def by_others(self) -> bool:
        """Whether another writer made the commit, and it did more than move rows between files."""
        return not self.checkpoints and not self.unreadable and self.operation not in MOVING_OPERATIONS

    @property
    def changes_rows(self) -> bool:
        """Whether it is a sink's upsert, in which several records may be one row."""
        return bool(self.checkpoints) and self.operation == "UPSERT"

    @property
    def inserted(self) -> int:
        return sum(file.inserts for file in self.files)

    @property
    def written(self) -> int:
        """How many rows it inserted or changed: so many can name it."""
        return 0 if self.operation in MOVING_OPERATIONS else sum(file.inserts + file.updates for file in self.files)

    @property
    def deleted(self) -> int:
        return sum(file.deletes for file in self.files)

    def __str__(self) -> str:
        return f"{self.instant} ({self.operation or self.action})"


@dataclass(frozen=True, slots=True)
class AuditedTimeline:
    """The timeline. `boundary` is the start of the active timeline: readers take earlier instants as committed.

    `pending` are instants that have not completed. `active` is false if all `commits` are archived, which archiving
    never does."""

    commits: tuple[Commit, ...]
    problems: tuple[AuditFinding, ...]
    completed: frozenset[str]
    pending: frozenset[str]
    active: bool
    boundary: str | None

    @property
    def sinks(self) -> tuple[str, ...]:
        names = (name for commit in self.commits for name in (*commit.checkpoints, *commit.unreadable))
        return tuple(sorted(set(names)))


def active_names(table: TableFiles) -> tuple[str, ...]:
    """Returns the file names on the active timeline, also of pending instants."""
    return tuple(name for name in table.names(table.timeline_path) if _ANY_INSTANT.match(name))


def completed_names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in names if _COMPLETED.match(name))


def any_commit(names: Iterable[str]) -> bool:
    return any(match[3] in DATA_ACTIONS for match in map(_COMPLETED.match, names) if match)


def read_timeline(table: TableFiles, active: Sequence[str]) -> AuditedTimeline:
    """Reads the timeline as of the listing `active`, without instants that completed later."""
    problems: list[AuditFinding] = []
    commits: dict[str, Commit] = {}
    for instant, completed, action, content, file in instants_of(table, active, problems):
        if instant in commits:
            # Archiving keeps an instant on the active timeline for a while.
            if completed != commits[instant].completed:
                sentence = f"{file}: {instant} completed at {completed} and at {commits[instant].completed}"
                problems.append(AuditFinding(FindingKind.UNREADABLE_INSTANT, sentence))
            continue
        try:
            commit = commits[instant] = _commit(table.base_path, instant, completed, action, content)
            for name, reason in commit.unreadable.items():
                problems.append(AuditFinding(FindingKind.UNREADABLE_CHECKPOINT, f"{file}: of sink {name}: {reason}"))
        except (ValueError, LookupError, TypeError, AttributeError, EOFError) as error:
            reason = f"{type(error).__name__}: {error}"[:200]
            problems.append(AuditFinding(FindingKind.UNREADABLE_INSTANT, f"{file}: not a commit's metadata ({reason})"))
    if commits and not any_commit(active):
        sentence = f"{len(commits):,} commits are archived and none is active: active commits were deleted"
        problems.append(AuditFinding(FindingKind.NO_COMMIT, sentence))
    instants = [match[1] for match in map(_ANY_INSTANT.match, active) if match]
    completed_now = {match[1] for match in map(_COMPLETED.match, active) if match}
    return AuditedTimeline(
        commits=tuple(sorted(commits.values(), key=lambda commit: (commit.completed, commit.instant))),
        problems=tuple(problems),
        completed=frozenset(completed_now | set(commits)),
        pending=frozenset(instants) - completed_now,
        active=any_commit(active),
        boundary=min(instants, default=None),
    )


def instants_of(
    table: TableFiles, active: Sequence[str], problems: list[AuditFinding]
) -> Iterator[tuple[str, str, str, bytes, str]]:
    """Yields active instants first, so that it does not miss one that is archived meanwhile."""
    for name in active:
        match = _COMPLETED.match(name)
        if match and match[3] in DATA_ACTIONS:
            try:
                content = table.read(posixpath.join(table.timeline_path, name))
            except FileNotFoundError:
                continue  # archived since the listing: the manifest, read below, has it
            yield match[1], match[2], match[3], content, name
    yield from _archived(table, problems)


def _archived(table: TableFiles, problems: list[AuditFinding]) -> Iterator[tuple[str, str, str, bytes, str]]:
    names = table.names(table.history_path)
    stored = [name for name in names if name.endswith(".parquet") and not name.startswith(".")]
    numbers = [int(match[1]) for match in map(_MANIFEST.fullmatch, names) if match]
    if not stored and not numbers:
        return
    try:
        # Hudi's readers take the highest number where no file names another.
        number = str(max(numbers, default=0))
        if "_version_" in names:
            number = table.read(posixpath.join(table.history_path, "_version_")).decode().strip()
        manifest = json.loads(table.read(posixpath.join(table.history_path, f"manifest_{number}")))
        listed = [entry["fileName"] for entry in manifest["files"]]
    except (OSError, ValueError, KeyError) as error:
        problems.append(AuditFinding(FindingKind.UNREADABLE_INSTANT, f"the archived timeline's manifest: {error}"))
        listed = stored
    for name in listed:
        file = f"history/{name}"
        try:
            with table.filesystem.open_input_file(posixpath.join(table.history_path, name)) as source:
                columns = ["instantTime", "completionTime", "action", "metadata"]
                for batch in pq.ParquetFile(source).iter_batches(batch_size=256, columns=columns):
                    for row in batch.to_pylist():
                        if row["action"] in DATA_ACTIONS:
                            completed = row["completionTime"] or row["instantTime"]
                            yield row["instantTime"], completed, row["action"], row["metadata"], file
        except (OSError, ValueError) as error:
            problems.append(AuditFinding(FindingKind.UNREADABLE_INSTANT, f"{file}: {str(error)[:200]}"))


def _commit(base_path: str, instant: str, completed: str, action: str, content: bytes) -> Commit:
    metadata = metadata_of(content)
    replaced = frozenset(
        (partition_path, file_id)
        for partition_path, file_ids in (metadata.get("partitionToReplaceFileIds") or {}).items()
        for file_id in file_ids
    )
    checkpoints: dict[str, AuditedCheckpoint] = {}
    unreadable: dict[str, str] = {}
    replayed: dict[str, tuple[ReplayedRun, ...]] = {}
    relanded: dict[str, Relanded] = {}
    specifications: dict[str, str] = {}
    extra = metadata.get("extraMetadata") or {}
    for key, value in extra.items():
        if key.startswith(CHECKPOINT_PREFIX):
            name = key.removeprefix(CHECKPOINT_PREFIX)
            try:
                checkpoints[name] = _own_checkpoint(name, value, base_path, instant)
            except ValueError as error:
                unreadable[name] = str(error)
        elif key.startswith(REPLAYED_PREFIX):
            runs = (ReplayedRun(row[0], row[1], *map(require_int, row[2:])) for row in json.loads(value))
            replayed[key.removeprefix(REPLAYED_PREFIX)] = tuple(runs)
        elif key.startswith(RELANDED_PREFIX):
            document = json.loads(value)
            again = tuple(ReplayedRun(row[0], row[1], *map(require_int, row[2:])) for row in document["runs"])
            relanded[key.removeprefix(RELANDED_PREFIX)] = Relanded(require_int(document["records"]), again)
        elif key.startswith(SPECIFICATION_PREFIX):
            specifications[key.removeprefix(SPECIFICATION_PREFIX)] = value
    operation = metadata.get("operationType") or ""
    return Commit(
        instant,
        completed,
        action,
        operation,
        _files(metadata),
        replaced,
        checkpoints,
        unreadable,
        replayed,
        specifications,
        extra.get("schema", ""),
        relanded,
        frozenset(key.removeprefix(SQL_PREFIX) for key in extra if key.startswith(SQL_PREFIX)),
    )


def _own_checkpoint(sink: str, text: str, base_path: str, instant: str) -> AuditedCheckpoint:
    found = checkpoint_of(text, f"{base_path}: checkpoint of sink {sink} in commit {instant}")
    if found.sink != sink:
        raise ValueError(f"it is the checkpoint of sink {found.sink}")
    return found


def _files(metadata: Mapping[str, Any]) -> tuple[WrittenFile, ...]:
    return tuple(
        WrittenFile(
            file_id=stat["fileId"],
            path=stat["path"],
            partition_path=partition_path,
            writes=stat["numWrites"] or 0,
            inserts=stat["numInserts"] or 0,
            deletes=stat["numDeletes"] or 0,
            size=stat["fileSizeInBytes"] or 0,
            merged=stat.get("totalLogFilesCompacted"),
            updates=stat.get("numUpdateWrites") or 0,
        )
        for partition_path, stats in (metadata.get("partitionToWriteStats") or {}).items()
        for stat in stats
        if stat.get("path")
    )


def metadata_of(content: bytes) -> dict[str, Any]:
    try:
        records = list(fastavro.reader(io.BytesIO(content)))
    except (SchemaParseException, ArithmeticError, RecursionError, zlib.error) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if len(records) != 1 or not isinstance(records[0], dict):
        raise ValueError(f"{len(records)} records where one is expected")
    return records[0]
