"""Whether Hudi's metadata table has to be served, by the names on its timeline.

Hudi serves it whenever a table is opened for writing: with some forty requests to a store, also when nothing is to be
done. Guarantee: yes where an instant is pending, for whoever left it may be dead, and the next commit would wait for it
for ever; and where so many commits have come since the last compaction. Else no. Raises what py4j raises.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError

from sink.clients.java_errors import causes

if TYPE_CHECKING:
    from sink.hudi.java_objects import HudiObjects

METADATA_TIMELINE = ".hoodie/metadata/.hoodie/timeline"
_COMPACT = "hoodie.metadata.compact.max.delta.commits"
_COMPACT_DEFAULT = "10"
_PENDING = re.compile(r"(\d+)(?:\.\w+)?\.(?:requested|inflight)")
_COMPLETED = re.compile(r"(\d+)_(\d+)\.(\w+)")


def compaction_interval(options: Mapping[str, str]) -> int:
    """After how many of its commits Hudi compacts the metadata table."""
    return int(options.get(_COMPACT, _COMPACT_DEFAULT))


def timeline_names(hudi: HudiObjects) -> list[str] | None:
    """The files of the metadata table's timeline, with one request; None where there is no such table."""
    try:
        entries = hudi.storage().listDirectEntries(hudi.path(METADATA_TIMELINE))
    except Py4JJavaError as error:
        if "java.io.FileNotFoundException" in causes(error):
            return None
        raise
    return [str(entry.getPath().getName()) for entry in entries]


def wants_service(hudi: HudiObjects, commits: int) -> bool:
    """A table that shall have none wants nothing; one that is gone wants to be made."""
    if not hudi.has_metadata_table:
        return False
    names = timeline_names(hudi)
    return names is None or is_due(names, commits)


def is_due(names: Collection[str], commits: int) -> bool:
    """`names` are the timeline's files, `commits` is after how many it shall be compacted."""
    return bool(pending(names)) or commits_since_compaction(names) >= commits


def pending(names: Collection[str]) -> set[str]:
    """Instants that were begun and are not complete."""
    return {match[1] for name in names if (match := _PENDING.fullmatch(name))} - completed(names)


def completed(names: Collection[str]) -> set[str]:
    return {match[1] for name in names if (match := _COMPLETED.fullmatch(name))}


def commits_since_compaction(names: Collection[str]) -> int:
    """Counts as Hudi does: a commit that was begun before a compaction and became complete after it was planned is not
    in it.
    """
    done = [match.groups() for name in names if (match := _COMPLETED.fullmatch(name))]
    compacted = max((begun for begun, _, action in done if action == "commit"), default="")
    return sum(1 for _, ended, action in done if action == "deltacommit" and ended > compacted)
