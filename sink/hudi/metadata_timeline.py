"""Tells whether Hudi's metadata table needs services, by the names on its timeline.

Hudi runs them whenever a writer opens the table: with some forty requests to a store, even if none is due.
Guarantee: they are needed where an instant is pending (the writer that left it may be dead, and the next commit would
wait for ever), and after a number of commits since the last compaction; else they are not. Raises what py4j raises.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError

from sink.clients.java.errors import causes

if TYPE_CHECKING:
    from sink.hudi.java_objects import HudiObjects

METADATA_TABLE = ".hoodie/metadata"
METADATA_TIMELINE = f"{METADATA_TABLE}/.hoodie/timeline"
_COMPACT = "hoodie.metadata.compact.max.delta.commits"
_COMPACT_DEFAULT = "10"
_PENDING = re.compile(r"(\d+)(?:\.\w+)?\.(?:requested|inflight)")
_COMPLETED = re.compile(r"(\d+)_(\d+)\.(\w+)")
_LOG_FILE = re.compile(r"(?P<written>.*/\..+_(?P<instant>\d+)\.log\.\d+)_[\d-]+")


def compaction_interval(options: Mapping[str, str]) -> int:
    """Returns after how many of its commits Hudi compacts the metadata table."""
    return int(options.get(_COMPACT, _COMPACT_DEFAULT))


def timeline_names(hudi: HudiObjects) -> list[str] | None:
    """Lists the files of the metadata table's timeline with one request; None where there is no such table."""
    try:
        entries = hudi.storage().listDirectEntries(hudi.path(METADATA_TIMELINE))
    except Py4JJavaError as error:
        if "java.io.FileNotFoundException" in causes(error):
            return None
        raise
    return [str(entry.getPath().getName()) for entry in entries]


def wants_service(hudi: HudiObjects, commits: int, names: Collection[str] | None) -> bool:
    """Whether services are due. A table without a metadata table needs none; one that has lost it, and has no `names`,
    has it made again.
    """
    return hudi.has_metadata_table and (names is None or is_due(names, commits))


def is_due(names: Collection[str], commits: int) -> bool:
    """Whether a compaction is due. `names` are the timeline's files; `commits` is the number of commits between two."""
    return bool(pending(names)) or commits_since_compaction(names) >= commits


def pending(names: Collection[str]) -> set[str]:
    """Returns instants that were begun and are not complete."""
    return {match[1] for name in names if (match := _PENDING.fullmatch(name))} - completed(names)


def completed(names: Collection[str]) -> set[str]:
    return {match[1] for name in names if (match := _COMPLETED.fullmatch(name))}


def completed_twice(names: Collection[str]) -> set[str]:
    """Returns instants with more than one completion: two processes wrote them."""
    times = Counter(match[1] for name in names if (match := _COMPLETED.fullmatch(name)))
    return {instant for instant, count in times.items() if count > 1}


def completed_commits(names: Collection[str]) -> set[str]:
    """Returns the instants of complete commits, compactions included."""
    matches = (match for name in names if (match := _COMPLETED.fullmatch(name)))
    return {match[1] for match in matches if match[3] in ("deltacommit", "commit")}


def log_files(paths: Iterable[str], instants: Collection[str]) -> dict[str, list[str]]:
    """Returns those of these files that are log files of the instants, by instant."""
    found: dict[str, list[str]] = {}
    for path in sorted(paths):
        if (match := _LOG_FILE.fullmatch(path)) and match["instant"] in instants:
            found.setdefault(match["instant"], []).append(path)
    return found


def written_twice(log_files: Iterable[str]) -> bool:
    """Whether two of the log files have the same number in their file group and instant: two processes wrote them."""
    written = [match["written"] for path in log_files if (match := _LOG_FILE.fullmatch(path))]
    return len(written) > len(set(written))


def newest_commit(names: Collection[str]) -> str:
    """Returns when the newest commit was completed, which is not a compaction; empty without one."""
    commits = (match[2] for name in names if (match := _COMPLETED.fullmatch(name)) and match[3] == "deltacommit")
    return max(commits, default="")


def commits_since_compaction(names: Collection[str]) -> int:
    """Counts as Hudi does: without a commit that was begun before a compaction and became complete after the compaction
    was planned.
    """
    completions = [match.groups() for name in names if (match := _COMPLETED.fullmatch(name))]
    compacted = max((begun for begun, _, action in completions if action == "commit"), default="")
    return sum(1 for _, ended, action in completions if action == "deltacommit" and ended > compacted)
