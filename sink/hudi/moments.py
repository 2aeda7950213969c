"""Whether the table may be changed at this moment. Pure, but for the clock of the JVM and plans of restores."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from py4j.protocol import Py4JJavaError

from coordination.errors import Corrupt, Unavailable
from sink.clients.java.errors import causes
from sink.hudi.client import HudiClient
from sink.hudi.instants import REPLACE, RESTORE, WRITES, ActiveTimeline, Instant
from sink.hudi.service_outcome import ServiceBlocked

_RESTORES = "sink.restores"
_DIGITS = 17
"""Those of a time with milliseconds. Hudi once named instants without."""
_CLOCKS_DIFFER_SECONDS = 1.0
"""Seconds that the newest request or completion may be ahead, and is waited for."""
_ENDED_BY_ALL = (RESTORE, "clean")
"""Actions that a service waits for, or that each cleaning carries out first."""


def require_moment(hudi: HudiClient, snapshot: ActiveTimeline) -> None:
    """Raises Unavailable while a restore is pending, which would keep what is completed now although it goes back
    behind it, and while this host's clock is behind the newest request or completion: readers that follow the timeline
    would miss what is completed now, and Hudi would take it for part of a file slice that a pending compaction has
    read already. The caller holds the table lock. Raises what py4j raises.
    """
    _require_no_restore(hudi, snapshot.pending_restores)
    now = hudi.instant_now()
    if now <= snapshot.newest_moment and (behind := age(now, snapshot.newest_moment)) < _CLOCKS_DIFFER_SECONDS:
        # A rewrite that has taken hours does not fail for this.
        time.sleep(behind + 0.001)
        now = hudi.instant_now()
    if now <= snapshot.newest_moment:
        raise Unavailable(
            f"{hudi.base_path}: the timeline has {snapshot.newest_moment}, and it is {now} here: the clock of this"
            " host, or the time zone of its JVM, is behind that of another worker. Set it right."
        )


def known_restores(snapshot: ActiveTimeline) -> dict[str, str]:
    """Returns what an instant that is begun now says of the restores on the timeline."""
    return {_RESTORES: ",".join(sorted(snapshot.restores))}


def is_restored_since(hudi: HudiClient, meta: Any, snapshot: ActiveTimeline, instant: str) -> bool:
    """Whether the table was restored since the instant was begun. Raises what py4j raises."""
    if not snapshot.restores:
        return False
    return snapshot.has_other_restores(restores_known_to(hudi, meta, instant) or ())


def _unknown_restores(hudi: HudiClient, snapshot: ActiveTimeline) -> frozenset[str]:
    """Returns the restores of which a pending transaction of a sink does not know: it may have been begun before them.
    Raises what py4j raises.
    """
    unknown: frozenset[str] = frozenset()
    if snapshot.restores:
        meta = hudi.meta_client()
        for entry in snapshot.instants:
            if entry.action == hudi.action and not entry.done:
                known = restores_known_to(hudi, meta, entry.requested)
                unknown |= frozenset() if known is None else snapshot.restores - known
    return unknown


def restores_known_to(hudi: HudiClient, meta: Any, instant: str) -> frozenset[str] | None:
    """Returns the restores that were on the timeline when an instant of a sink was begun; None for another writer's,
    and for one that is being archived. Raises what py4j raises.
    """
    try:
        restores = hudi.begun_with(meta, instant).get(_RESTORES)
    except Py4JJavaError as error:
        if "java.io.FileNotFoundException" in causes(error):
            return None
        raise
    return None if restores is None else frozenset(restores.split(",")) - {""}


def require_not_restored_past(
    hudi: HudiClient, meta: Any, active: ActiveTimeline, instants: Collection[Instant], archived: Instant
) -> None:
    """Raises Corrupt if the table was restored to a moment before an archived commit: Hudi leaves that commit, and
    removes earlier ones that are active. `instants` are those of the active timeline and the archive. Raises what py4j
    raises.
    """
    for restore, target in _restored_past(hudi, meta, active, instants, [archived]).items():
        raise Corrupt(
            f"{hudi.base_path}: restore {restore} went back to {target}, and left the later commit"
            f" {archived.requested}, which was archived: rows of commits in between may be missing."
            " Restore it from a backup, or begin a new table."
        )


def restores_that_stay(
    hudi: HudiClient, active: ActiveTimeline, archive: Callable[[], list[Instant]]
) -> frozenset[str]:
    """Returns the complete restores that are not to be archived: a pending transaction may have been begun before them,
    or they left archived commits (`archive` reads those), for which sinks refuse the table. Raises what py4j raises.
    """
    if not active.restores:
        return frozenset()
    archived = archive()
    writes = [entry for entry in archived if entry.action in WRITES]
    past = _restored_past(hudi, hudi.meta_client(), active, (*active.instants, *archived), writes)
    return _unknown_restores(hudi, active).union(past)


def _restored_past(
    hudi: HudiClient,
    meta: Any,
    active: ActiveTimeline,
    instants: Collection[Instant],
    archived: Collection[Instant],
) -> dict[str, str]:
    """Returns the complete active restores to a moment before one of these archived commits, each with the commit that
    it went back to, which `instants` have, active or archived.
    """
    past: dict[str, str] = {}
    for restore in active.instants:
        if restore.action != RESTORE or not restore.done:
            continue
        plan = hudi.instant(meta, "REQUESTED", RESTORE, restore.requested)
        target = meta.getActiveTimeline().readRestorePlan(plan).getSavepointToRestoreTimestamp() or ""
        writes = (entry for entry in instants if entry.requested == target and entry.action in WRITES)
        moment = max((entry.completed for entry in writes if entry.completed), default=target)
        if target and any(
            entry.requested <= restore.requested and (entry.completed or "") > moment for entry in archived
        ):
            past[restore.requested] = target
    return past


def require_no_restore(hudi: HudiClient) -> None:
    """Raises Unavailable while a restore is pending. Reads the table's timeline. The caller holds the table lock."""
    pending = hudi.meta_client().getActiveTimeline().getRestoreTimeline().filterInflightsAndRequested()
    _require_no_restore(hudi, [str(entry.requestedTime()) for entry in pending.getInstants()])


def _require_no_restore(hudi: HudiClient, pending: Collection[str]) -> None:
    if pending:
        raise Unavailable(
            f"{hudi.base_path}: restore {', '.join(pending)} of the table is pending: the sink goes on when it is"
            " complete. Finish it with the program that planned it."
        )


def abandoned(hudi: HudiClient, snapshot: ActiveTimeline, seconds: float) -> dict[str, str]:
    """Returns the pending instants that are older than so many seconds, oldest first, with their actions. Raises what
    py4j raises.
    """
    now = hudi.instant_now()
    return {
        entry.requested: entry.action
        for entry in sorted(snapshot.instants)
        if not entry.done and entry.action not in _ENDED_BY_ALL and age(entry.requested, now) > seconds
    }


def require_ended(hudi: HudiClient, instants: Mapping[str, str], own: Collection[str]) -> None:
    """Raises ServiceBlocked for the oldest of these pending instants that another writer has begun."""
    for instant, action in instants.items():
        if instant not in own:
            since = age(instant, hudi.instant_now())
            raise ServiceBlocked(
                f"{hudi.base_path}: {action} {instant} of another writer has been pending for {since:.0f} s: Hudi"
                " archives nothing after it, and compacts none of its files. Finish it, or roll it back, with the"
                " program that began it.",
                time.time() - since,
            )


def require_none_replaces(hudi: HudiClient, snapshot: ActiveTimeline) -> None:
    """Raises ServiceBlocked while another writer replaces file groups (deletes or overwrites table partitions): its
    commit names the file groups that it saw when it began, and not those into which a rewrite moves their rows. The
    caller holds the table lock.
    """
    for entry in sorted(snapshot.instants):
        # Hudi calls a clustering a replacecommit only once it is complete.
        if entry.action == REPLACE and not entry.done:
            since = age(entry.requested, hudi.instant_now())
            raise ServiceBlocked(
                f"{hudi.base_path}: another writer replaces file groups of the table since {since:.0f} s"
                f" ({entry.action} {entry.requested}): nothing is rewritten until it is complete. If that writer is"
                " dead, roll its instant back with its program.",
                time.time() - since,
            )


def require_none_moves_rows(hudi: HudiClient, snapshot: ActiveTimeline) -> None:
    """Raises ServiceBlocked while a writer other than a sink has begun to change rows. If a clustering replaced
    a row's file group now, that writer would miss the row that it moves to another table partition, and leave it. A
    sink finds that out by itself (`sink.hudi.conflicts`). One whose heartbeat has expired can never complete its
    instant. The caller holds the table lock. Raises what py4j raises.
    """
    meta = hudi.meta_client()
    for entry in sorted(snapshot.instants):
        if entry.action != hudi.action or entry.done:
            continue
        is_of_a_sink = restores_known_to(hudi, meta, entry.requested) is not None
        if not is_of_a_sink and not hudi.heartbeats.isHeartbeatExpired(entry.requested):
            since = age(entry.requested, hudi.instant_now())
            raise ServiceBlocked(
                f"{hudi.base_path}: another writer changes rows of the table since {since:.0f} s ({entry.action}"
                f" {entry.requested}): nothing is clustered until it is complete, or its heartbeat has expired.",
                time.time() - since,
            )


def age(instant: str, now: str) -> float:
    """Returns the seconds between two instants; NaN for one that is not a time."""
    texts = (each.ljust(_DIGITS, "0")[:_DIGITS] for each in (instant, now))
    try:
        began, ended = (datetime.strptime(text, "%Y%m%d%H%M%S%f") for text in texts)
    except ValueError:
        return math.nan
    return (ended - began).total_seconds()
