"""Deletes plans of table services and rollbacks that nobody can read: the store was full, or their writer died, in
mid-write.

Hudi writes a plan in place on a local disk and on HDFS. A plan that is cut short stops each commit and each service:
they read all pending plans. A rollback that loses its plan is planned again: its instant is pending still.

Guarantee: only a plan that nobody has begun is deleted, under the table lock, and only if its whole file was read and
is not Avro: no writer could carry it out. Voided by writers without the table lock, of which one may be writing it.
Raises what the store raises, and what py4j raises.
"""

from __future__ import annotations

import io
import posixpath
from collections.abc import Callable

import fastavro
import structlog

from sink.hudi.client import CLUSTERING, COMPACTION, HudiClient
from sink.hudi.instants import ActiveTimeline, Instant
from sink.storage.access import Access
from sink.storage.table_files import open_table

LOG = structlog.get_logger("sink.hudi")
_PLANS = frozenset({CLUSTERING, COMPACTION, "clean", "rollback"})


def unreadable_plans(base_path: str, access: Access, snapshot: ActiveTimeline) -> list[Instant]:
    """Returns the plans that nobody has begun, and nobody can read."""
    pending = [entry for entry in snapshot.instants if entry.action in _PLANS and entry.state == "REQUESTED"]
    if not pending:
        return []
    files = open_table(base_path, access)
    names = {entry: f"{entry.requested}.{entry.action}.requested" for entry in pending}
    return [
        entry for entry, name in names.items() if not is_avro(files.read(posixpath.join(files.timeline_path, name)))
    ]


def drop_unreadable_plans(
    hudi: HudiClient, access: Access, snapshot: ActiveTimeline, require_held: Callable[[], None] = lambda: None
) -> None:
    """Call it under the table lock, with a snapshot that was read under it."""
    for entry in unreadable_plans(hudi.base_path, access, snapshot):
        meta = hudi.meta_client()
        require_held()
        meta.getActiveTimeline().deleteInstantFileIfExists(
            hudi.instant(meta, "REQUESTED", entry.action, entry.requested)
        )
        LOG.warning("plan.dropped", action=entry.action, instant=entry.requested)


def is_avro(content: bytes) -> bool:
    """Whether the content of a file is that of an Avro file, to its end."""
    try:
        return bool(list(fastavro.reader(io.BytesIO(content))))
    except (ValueError, EOFError, IndexError, KeyError, TypeError, UnicodeDecodeError):
        return False
