"""Whether Hudi's metadata table wants to be served before an instant is begun, by the names on its timeline.

Hudi serves it whenever a table is opened for writing: with some forty requests to a store, also when nothing is to be
done. Guarantee: yes where an instant is pending, for whoever left it may be dead, and the next commit would wait for it
for ever; and where so many commits have come since the last compaction that Hudi plans the next one. Else no. Raises
what py4j raises.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError

from sink.clients.java_errors import causes

if TYPE_CHECKING:
    from sink.hudi.java_objects import HudiObjects

_TIMELINE = ".hoodie/metadata/.hoodie/timeline"
_COMPACT = "hoodie.metadata.compact.max.delta.commits"
_COMPACT_DEFAULT = "10"
_PENDING = re.compile(r"(\d+)(?:\.\w+)?\.(?:requested|inflight)")
_COMPLETED = re.compile(r"(\d+)_\d+\.(\w+)")


def wants_service(hudi: HudiObjects) -> bool:
    """With one request. A table that shall have none wants nothing; one that is gone wants to be made."""
    if not hudi.has_metadata_table:
        return False
    try:
        names = [str(entry.getPath().getName()) for entry in hudi.storage().listDirectEntries(hudi.path(_TIMELINE))]
    except Py4JJavaError as error:
        if "java.io.FileNotFoundException" in causes(error):
            return True
        raise
    return is_due(names, int(hudi.options.get(_COMPACT, _COMPACT_DEFAULT)))


def is_due(names: Collection[str], commits: int) -> bool:
    """`names` are the timeline's files, `commits` is after how many Hudi compacts."""
    begun = {match[1] for name in names if (match := _PENDING.fullmatch(name))}
    completed = {match[1]: match[2] for name in names if (match := _COMPLETED.fullmatch(name))}
    if begun - set(completed):
        return True
    compacted = max((instant for instant, action in completed.items() if action == "commit"), default="")
    since = [instant for instant, action in completed.items() if action == "deltacommit" and instant > compacted]
    return len(since) >= commits
