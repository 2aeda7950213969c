"""Compares the timeline's write stats with the files on storage, and with the files that a reader sees.

Guarantee: without a finding, every file that readers need exists with the size and rows of its write stat, a log file
consists of whole blocks, readers that list storage find its table partition, and no visible file lacks a commit.
Replaced and rewritten files are not checked: cleaning may have removed them. Raises `TryAgain` for a table in its first
transaction.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from sink.audit.failures import TryAgain
from sink.audit.hudi_log import count_blocks
from sink.audit.report import AuditFinding, FindingKind
from sink.audit.timeline import MOVING_OPERATIONS, AuditedTimeline, Commit, WrittenFile
from sink.storage.table_files import TableFiles

_BASE_FILE = re.compile(r"^(?P<file_id>[^_]+)_(?P<token>[^_]+)_(?P<instant>\d+)\.parquet$")
_LOG_FILE = re.compile(r"^\.(?P<file_id>[^_]+)_(?P<instant>\d+)\.log\.\d+(_[\d-]+)?$")
"""The name of a log file of rows; one of changes for Hudi's CDC queries ends with `.cdc`."""
_DATA_FILE = re.compile(rf"^[^.].*\.parquet$|{_LOG_FILE.pattern}")
_INSTANT = re.compile(r"^(\d+)[_.]")
_METAFILE = ".hoodie_partition_metadata"
_FILES_AT_ONCE = 16
"""Files that are checked at the same time: on an object store each takes several requests."""
_DEPTH = re.compile(rb"^partitionDepth=(\d+)\s*$", re.MULTILINE)

Group = tuple[str, str]
"""A file group: table partition path and file id."""


@dataclass(frozen=True, slots=True)
class NamedFile:
    file: WrittenFile
    commit: Commit


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """The files that commits name.

    `live`: the newest base file of each visible file group; `logs`: the log files that readers merge with it, or alone;
    `paths`: all files of all commits. `replaced`: the instant that replaced each group. `completed`: when each commit
    completed, by instant.

    `deletions` are commits that deleted rows, with the most rows that each can have deleted.
    """

    live: dict[Group, NamedFile]
    logs: dict[Group, tuple[NamedFile, ...]]
    paths: frozenset[str]
    replaced: Mapping[Group, str]
    completed: Mapping[str, str]
    deletions: tuple[tuple[Commit, int], ...]
    unmerged: tuple[tuple[NamedFile, int], ...] = ()
    """Base files of compactions that hide more log files than they were merged from, with the number of the hidden."""

    @property
    def removals(self) -> tuple[tuple[Commit, int], ...]:
        """The deletions by other writers than sinks."""
        return tuple((commit, most) for commit, most in self.deletions if commit.by_others)

    def removed_beside(self, sink: str) -> int:
        """Returns how many rows commits of others than this sink, other sinks included, can have deleted."""
        return sum(most for commit, most in self.deletions if sink not in commit.checkpoints)


@dataclass(frozen=True, slots=True)
class StorageCheck:
    """`visible`: paths that a reader which lists storage would read, although no commit names them. `stored`: all."""

    findings: tuple[AuditFinding, ...]
    visible: tuple[str, ...]
    broken: frozenset[str]
    stored: frozenset[str]


def named_files(commits: Sequence[Commit]) -> NamedFiles:
    """Collects the files of `commits`, which are in order of completion."""
    live: dict[Group, NamedFile] = {}
    logs: dict[Group, tuple[NamedFile, ...]] = {}
    paths: set[str] = set()
    replaced: dict[Group, str] = {}
    deletions: list[tuple[Commit, int]] = []
    unmerged: list[tuple[NamedFile, int]] = []
    for commit in commits:
        most = 0 if commit.operation in MOVING_OPERATIONS else commit.deleted
        if commit.by_others:
            most += sum(live[group].file.writes for group in commit.replaced if group in live)
        if most:
            deletions.append((commit, most))
        for file in commit.files:
            group = (file.partition_path, file.file_id)
            paths.add(file.path)
            if file.is_log:
                logs[group] = (*logs.get(group, ()), NamedFile(file, commit))
            else:
                live[group] = NamedFile(file, commit)
                # A base file holds what had completed when its instant was requested: a compaction's was, long before.
                kept = tuple(log for log in logs.get(group, ()) if log.commit.completed > commit.instant)
                hidden = len(logs.get(group, ())) - len(kept)
                if commit.operation == "COMPACT" and file.merged is not None and hidden > file.merged:
                    unmerged.append((live[group], hidden))
                logs[group] = kept
        for group in commit.replaced:
            replaced[group] = commit.instant
            live.pop(group, None)
            logs.pop(group, None)
    completed = {commit.instant: commit.completed for commit in commits}
    return NamedFiles(live, logs, frozenset(paths), replaced, completed, tuple(deletions), tuple(unmerged))


def check_storage(table: TableFiles, timeline: AuditedTimeline, files: NamedFiles) -> StorageCheck:
    findings: list[AuditFinding] = []
    broken: set[str] = set()
    stored = _list(table)
    entries = [*files.live.values(), *(log for logs in files.logs.values() for log in logs)]
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        for entry, finding in zip(entries, pool.map(partial(_check_file, table, stored), entries), strict=True):
            if finding:
                findings.append(finding)
                broken.add(entry.file.path)
    for entry, hidden in files.unmerged:
        sentence = (
            f"{entry.file.path} of commit {entry.commit} was merged from {entry.file.merged:,} log files, and"
            f" hides {hidden:,}: readers do not see their changes"
        )
        findings.append(AuditFinding(FindingKind.FILE_UNSEEN, sentence))
    needed = {group[0] for group in files.live} | {group[0] for group, logs in files.logs.items() if logs}
    findings += [finding for folder in sorted(needed) for finding in _check_metafile(table, folder)]
    visible: list[str] = []
    for path in sorted(stored.keys() - files.paths):
        finding, is_visible = _judge_unnamed(path, timeline, files)
        findings.append(finding)
        if is_visible:
            visible.append(path)
    return StorageCheck(tuple(findings), tuple(visible), frozenset(broken), frozenset(stored))


def _check_metafile(table: TableFiles, folder: str) -> Iterator[AuditFinding]:
    place = f"table partition {folder or '(root)'}"
    metafile = posixpath.join(table.root, folder, _METAFILE)
    infos = table.filesystem.get_file_info([metafile, f"{metafile}.parquet", f"{metafile}.orc"])
    if all(info.type is pafs.FileType.NotFound for info in infos):
        sentence = (
            f"{place} has no {_METAFILE}: readers that list storage do not see its rows, and no reader will once the"
            " metadata table is rebuilt"
        )
        yield AuditFinding(FindingKind.PARTITION_METAFILE, sentence)
    elif infos[0].type is pafs.FileType.File:
        depth = len(folder.split("/")) if folder else 0
        if (found := _DEPTH.search(table.read(metafile))) is None or int(found[1]) != depth:
            sentence = (
                f"{place} is of depth {depth}, and its {_METAFILE} says {int(found[1]) if found else 'nothing'}:"
                " readers that are given one of its files do not find the table"
            )
            yield AuditFinding(FindingKind.PARTITION_METAFILE, sentence)


def check_uncommitted(table: TableFiles, timeline: AuditedTimeline) -> tuple[AuditFinding, ...]:
    """Checks a table without a commit. Raises TryAgain for files of pending instants: they may belong to the first
    transaction, or to a commit that somebody deleted.
    """
    instants: dict[str, list[str]] = defaultdict(list)
    findings: list[AuditFinding] = []
    for path in sorted(_list(table)):
        name = posixpath.basename(path)
        match = _BASE_FILE.match(name) or _LOG_FILE.match(name)
        if match:
            instants[match["instant"]].append(path)
        else:
            findings.append(_judge_unnamed(path, timeline, named_files(()))[0])
    begun = {match[1] for match in map(_INSTANT.match, table.names(table.timeline_path)) if match}
    for instant in sorted(instants.keys() - begun - timeline.pending):
        paths = instants[instant]
        findings.append(
            AuditFinding(
                FindingKind.NO_COMMIT,
                f"{paths[0]}{f' and {len(paths) - 1:,} more' if paths[1:] else ''} of instant {instant}, which is not "
                "on the timeline: commits were deleted there, or an attempt that failed left files behind",
            )
        )
    if instants and not any(finding.kind.fails for finding in findings):
        raise TryAgain(
            f"{table.base_path}: nothing is committed, and {sum(map(len, instants.values())):,} files belong to "
            f"instants that did not complete ({', '.join(sorted(instants)[:3])}): audit again when the first "
            "transaction has. If it has already, its commit was taken off the timeline."
        )
    return tuple(findings)


def check_view(files: NamedFiles, visible: Iterable[str]) -> tuple[AuditFinding, ...]:
    """Compares with the base files that hudi-rs shows (from the metadata table, if there is one)."""
    paths = set(visible)
    expected = {entry.file.path: entry for entry in files.live.values()}
    unseen = [
        AuditFinding(
            FindingKind.FILE_UNSEEN,
            f"{path} of commit {expected[path].commit} holds {expected[path].file.writes:,} rows, "
            "but readers do not see it",
        )
        for path in sorted(expected.keys() - paths)
        if expected[path].file.writes
    ]
    unnamed = [
        AuditFinding(FindingKind.FILE_UNNAMED, f"readers see {path}, but no commit names it as current")
        for path in sorted(paths - expected.keys())
    ]
    return (*unseen, *unnamed)


def _list(table: TableFiles) -> dict[str, int]:
    """Returns the size of every Parquet and log file under the base path, except in `.hoodie`."""
    selector = pafs.FileSelector(table.root, recursive=False)
    sizes: dict[str, int] = {}
    pending = table.filesystem.get_file_info(selector)
    while pending:
        info = pending.pop()
        if info.type is pafs.FileType.Directory and info.base_name != ".hoodie":
            pending.extend(table.filesystem.get_file_info(pafs.FileSelector(info.path)))
        elif info.type is pafs.FileType.File and _DATA_FILE.match(info.base_name):
            sizes[posixpath.relpath(info.path, table.root)] = info.size
    return sizes


def _check_file(table: TableFiles, stored: dict[str, int], entry: NamedFile) -> AuditFinding | None:
    file, commit = entry.file, entry.commit
    path = posixpath.join(table.root, file.path)
    location = f"{file.path} of commit {commit}"
    if file.is_log:
        info = table.filesystem.get_file_info(path)
        size = None if info.type is pafs.FileType.NotFound else info.size
    else:
        size = stored.get(file.path)
    if size is None:
        return AuditFinding(FindingKind.FILE_MISSING, f"{location} is not on storage; it held {file.writes:,} rows")
    if size != file.size:
        return AuditFinding(FindingKind.FILE_SIZE, f"{location} has {size:,} bytes, its write stat says {file.size:,}")
    try:
        with table.filesystem.open_input_file(path) as source:
            if file.is_log:
                blocks = count_blocks(source)
                is_lost = not blocks and file.writes + file.deletes > 0
                return AuditFinding(FindingKind.FILE_UNREADABLE, f"{location} has no block") if is_lost else None
            rows = pq.ParquetFile(source).metadata.num_rows
    except (OSError, ValueError, pa.ArrowException) as error:
        return AuditFinding(FindingKind.FILE_UNREADABLE, f"{location}: {str(error)[:200]}")
    if rows != file.writes:
        return AuditFinding(FindingKind.FILE_ROWS, f"{location} has {rows:,} rows, its write stat says {file.writes:,}")
    return None


def _judge_unnamed(path: str, timeline: AuditedTimeline, files: NamedFiles) -> tuple[AuditFinding, bool]:
    """Judges a file that no commit names. Returns a finding, and whether readers that list storage see extra rows."""
    name = posixpath.basename(path)
    log = _LOG_FILE.match(name)
    match = log or _BASE_FILE.match(name)
    if not match:
        return AuditFinding(
            FindingKind.STRAY, f"{path} does not have the name of a Hudi base file: readers skip it"
        ), False
    group = (posixpath.dirname(path), match["file_id"])
    instant = match["instant"]
    if instant not in timeline.completed and (timeline.boundary is None or instant >= timeline.boundary):
        return AuditFinding(
            FindingKind.STRAY, f"{path} belongs to {instant}, which did not complete: readers skip it"
        ), False
    if group in files.replaced and group not in files.live:
        replaced_at = files.replaced[group]
        if timeline.boundary is not None and replaced_at < timeline.boundary:
            sentence = f"{path} belongs to a file group that {replaced_at} replaced, which is archived: readers show it"
            return AuditFinding(FindingKind.FILE_UNNAMED, sentence), False
        return AuditFinding(FindingKind.STRAY, f"{path} belongs to a replaced file group: readers skip it"), False
    current = files.live.get(group)
    if log and (current is None or files.completed.get(instant, instant) > current.commit.instant):
        sentence = f"{path} is in no commit, but a reader that lists storage merges its rows"
        return AuditFinding(FindingKind.FILE_UNNAMED, sentence), False
    if current is None:
        sentence = f"{path} is in no commit, but a reader that lists storage reads it"
        return AuditFinding(FindingKind.FILE_UNNAMED, sentence), True
    if log or posixpath.basename(current.file.path).rpartition("_")[2].removesuffix(".parquet") > instant:
        return AuditFinding(
            FindingKind.STRAY, f"{path} is older than {current.file.path} of its file group, which hides it"
        ), False
    sentence = f"{path} is in no commit, but a reader that lists storage may read it instead of {current.file.path}"
    return AuditFinding(FindingKind.FILE_UNNAMED, sentence), False
