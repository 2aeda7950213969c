"""Holds the timeline's write stats against the files on storage and against what a reader is shown.

Guarantee: a file that readers should have exists with the stated size and rows, its table partition can be
found by readers that list storage, and no file is visible that no commit names. Files that were replaced or
rewritten since are not asked for: cleaning may have removed them. What is wrong is a finding; `Unavailable`
is raised for a table that is in its first transaction.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from coordination.errors import Unavailable
from sink.audit.report import AuditFinding, FindingKind
from sink.audit.timeline import AuditedTimeline, Commit, TableFiles, WrittenFile

_BASE_FILE = re.compile(r"^(?P<file_id>[^_]+)_(?P<token>[^_]+)_(?P<instant>\d{17})\.parquet$")
_VISIBLE = re.compile(r"^[^.].*\.parquet$")
_INSTANT = re.compile(r"^(\d{17})[_.]")
_METAFILE = ".hoodie_partition_metadata"

Group = tuple[str, str]
"""A file group: table partition path and file id."""


@dataclass(frozen=True, slots=True)
class NamedFile:
    file: WrittenFile
    commit: Commit


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """The files that commits name.

    `live`: the newest base file of each group still in sight; `logs`: log files on those; `named`: all ever.

    `removals` are commits by others that took rows away, with the most that each can have taken.
    """

    live: dict[Group, NamedFile]
    logs: dict[Group, tuple[NamedFile, ...]]
    named: frozenset[str]
    replaced: frozenset[Group]
    removals: tuple[tuple[Commit, int], ...]


@dataclass(frozen=True, slots=True)
class StorageCheck:
    """`visible`: paths that a reader which lists storage would take, though no commit names them."""

    findings: tuple[AuditFinding, ...]
    visible: tuple[str, ...]
    broken: frozenset[str]


def named_files(commits: Sequence[Commit]) -> NamedFiles:
    """`commits` in order of completion."""
    live: dict[Group, NamedFile] = {}
    logs: dict[Group, tuple[NamedFile, ...]] = {}
    named: set[str] = set()
    replaced: set[Group] = set()
    removals: list[tuple[Commit, int]] = []
    for commit in commits:
        if commit.by_others:
            gone = sum(live[group].file.writes for group in commit.replaced if group in live)
            if commit.deleted + gone:
                removals.append((commit, commit.deleted + gone))
        for file in commit.files:
            group = (file.partition_path, file.file_id)
            named.add(file.path)
            if file.is_log:
                logs[group] = (*logs.get(group, ()), NamedFile(file, commit))
            else:
                live[group] = NamedFile(file, commit)
                logs.pop(group, None)
        for group in commit.replaced:
            replaced.add(group)
            live.pop(group, None)
            logs.pop(group, None)
    return NamedFiles(live, logs, frozenset(named), frozenset(replaced), tuple(removals))


def check_storage(table: TableFiles, timeline: AuditedTimeline, files: NamedFiles) -> StorageCheck:
    findings: list[AuditFinding] = []
    broken: set[str] = set()
    stored = _list(table)
    for entry in [*files.live.values(), *(log for logs in files.logs.values() for log in logs)]:
        finding = _check_file(table, stored, entry)
        if finding:
            findings.append(finding)
            broken.add(entry.file.path)
    for folder in sorted({entry.file.partition_path for entry in files.live.values()}):
        metafile = posixpath.join(table.root, folder, _METAFILE)
        infos = table.filesystem.get_file_info([metafile, f"{metafile}.parquet", f"{metafile}.orc"])
        if all(info.type is pafs.FileType.NotFound for info in infos):
            findings.append(
                AuditFinding(
                    FindingKind.PARTITION_METAFILE,
                    f"table partition {folder or '(root)'} has no {_METAFILE}: its rows are gone for readers "
                    "that list storage, and for all once the metadata table is rebuilt",
                )
            )
    visible: list[str] = []
    for path in sorted(stored.keys() - files.named):
        finding, shown = _judge_unnamed(path, timeline, files)
        findings.append(finding)
        if shown:
            visible.append(path)
    return StorageCheck(tuple(findings), tuple(visible), frozenset(broken))


def check_uncommitted(table: TableFiles, timeline: AuditedTimeline) -> tuple[AuditFinding, ...]:
    """Checks a table without a commit. Raises Unavailable for files of pending instants: they may belong to the first
    transaction, or to a commit that somebody deleted.
    """
    instants: dict[str, list[str]] = defaultdict(list)
    findings: list[AuditFinding] = []
    for path in sorted(_list(table)):
        match = _BASE_FILE.match(posixpath.basename(path))
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
        raise Unavailable(
            f"{table.base_path}: nothing is committed, and {sum(map(len, instants.values())):,} files belong to "
            f"instants that did not complete ({', '.join(sorted(instants)[:3])}): audit again when the first "
            "transaction has; if it has already, its commit was taken off the timeline"
        )
    return tuple(findings)


def check_view(files: NamedFiles, shown: Iterable[str]) -> tuple[AuditFinding, ...]:
    """Against the base files that hudi-rs shows (through the metadata table where the table has one)."""
    paths = set(shown)
    expected = {entry.file.path: entry for entry in files.live.values()}
    unseen = [
        AuditFinding(
            FindingKind.FILE_UNSEEN,
            f"{path} of commit {expected[path].commit} holds {expected[path].file.writes:,} rows, "
            "but a reader is not shown it",
        )
        for path in sorted(expected.keys() - paths)
        if expected[path].file.writes
    ]
    unnamed = [
        AuditFinding(FindingKind.FILE_UNNAMED, f"{path} is shown to readers, but no commit names it as current")
        for path in sorted(paths - expected.keys())
    ]
    return (*unseen, *unnamed)


def _list(table: TableFiles) -> dict[str, int]:
    """Size of every Parquet file under the base path, Hudi's own folder left out."""
    selector = pafs.FileSelector(table.root, recursive=False)
    sizes: dict[str, int] = {}
    pending = table.filesystem.get_file_info(selector)
    while pending:
        info = pending.pop()
        if info.type is pafs.FileType.Directory and info.base_name != ".hoodie":
            pending.extend(table.filesystem.get_file_info(pafs.FileSelector(info.path)))
        elif info.type is pafs.FileType.File and _VISIBLE.match(info.base_name):
            sizes[posixpath.relpath(info.path, table.root)] = info.size
    return sizes


def _check_file(table: TableFiles, stored: dict[str, int], entry: NamedFile) -> AuditFinding | None:
    file, commit = entry.file, entry.commit
    path = posixpath.join(table.root, file.path)
    where = f"{file.path} of commit {commit}"
    if file.is_log:
        info = table.filesystem.get_file_info(path)
        size = None if info.type is pafs.FileType.NotFound else info.size
    else:
        size = stored.get(file.path)
    if size is None:
        return AuditFinding(FindingKind.FILE_MISSING, f"{where} is not on storage; it held {file.writes:,} rows")
    if size != file.size:
        return AuditFinding(FindingKind.FILE_SIZE, f"{where} has {size:,} bytes, its write stat says {file.size:,}")
    if file.is_log or not file.path.endswith(".parquet"):
        return None
    try:
        with table.filesystem.open_input_file(path) as source:
            rows = pq.ParquetFile(source).metadata.num_rows
    except (OSError, pa.ArrowException) as error:
        return AuditFinding(FindingKind.FILE_UNREADABLE, f"{where}: {str(error)[:200]}")
    if rows != file.writes:
        return AuditFinding(FindingKind.FILE_ROWS, f"{where} has {rows:,} rows, its write stat says {file.writes:,}")
    return None


def _judge_unnamed(path: str, timeline: AuditedTimeline, files: NamedFiles) -> tuple[AuditFinding, bool]:
    """Visible to a reader that lists storage, and adding rows? Otherwise the file is only worth a note."""
    match = _BASE_FILE.match(posixpath.basename(path))
    if not match:
        return AuditFinding(
            FindingKind.STRAY, f"{path} is not named as a Hudi base file: readers of the table pass it over"
        ), False
    group = (posixpath.dirname(path), match["file_id"])
    instant = match["instant"]
    if instant not in timeline.completed and (timeline.boundary is None or instant >= timeline.boundary):
        return AuditFinding(
            FindingKind.STRAY, f"{path} belongs to {instant}, which did not complete: readers pass it over"
        ), False
    if group in files.replaced and group not in files.live:
        return AuditFinding(FindingKind.STRAY, f"{path} belongs to a replaced file group: readers pass it over"), False
    current = files.live.get(group)
    if current is None:
        sentence = f"{path} is in no commit, yet a reader that lists storage takes it for part of the table"
        return AuditFinding(FindingKind.FILE_UNNAMED, sentence), True
    if posixpath.basename(current.file.path).rpartition("_")[2].removesuffix(".parquet") > instant:
        return AuditFinding(
            FindingKind.STRAY, f"{path} is older than {current.file.path} of its file group, which hides it"
        ), False
    sentence = f"{path} is in no commit, yet a reader that lists storage may take it in place of {current.file.path}"
    return AuditFinding(FindingKind.FILE_UNNAMED, sentence), False
