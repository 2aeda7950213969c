"""Whether this process sees the table in which an instant was begun.

Guarantee: a worker on a file system writes no file below a path where its coordinator's instant is not: another disk
that is mounted there, or none. Voided where two stores hold an instant of the same name. Raises Unavailable.
"""

from __future__ import annotations

from coordination.errors import Unavailable
from sink.storage.store import Store


def require_begun(store: Store, merges_on_read: bool, instant: str) -> bool:
    """Raises Unavailable if Python reaches the table and does not see the pending instant there. Returns whether the
    next instant has to be looked for, too: an object store stays what it is, and a look is a request.
    """
    if not store.is_reachable():
        return False
    storage = store.open()
    action = ".deltacommit" if merges_on_read else ""
    if not storage.exists(f".hoodie/timeline/{instant}{action}.inflight"):
        raise Unavailable(
            f"{store.base_path}: instant {instant} is not pending there: it was rolled back meanwhile, or this"
            " worker has another storage at that path than its coordinator. Give every worker the same storage."
        )
    return storage.has_directories
