"""Hudi's cleaning, step by step, so that the table lock is held to plan and to complete, and not while files go.

Guarantee: `plan` and `complete` do what Hudi does under its lock; `delete` does what Hudi does without it, and may be
repeated: a file that is gone counts as deleted. A plan that any process left is carried out by the next one, as
Hudi does, or dropped if it is obsolete. Dropping is safe at any time: nothing on the timeline refers to a cleaning that
is not complete, the metadata table has at most noted files as gone that are, and the next plan begins where the last
complete one ended, so that it names the remaining files again. No directory of a table partition goes, although its
files all do: Hudi would take with it what a transaction writes there meanwhile, and in the metadata table what comes
later would bring back the files that are gone. Written for Hudi 1.2: the step that deletes is called by
reflection. Raises what py4j raises.
"""

from __future__ import annotations

from contextlib import closing, nullcontext
from typing import Any

from sink.hudi.client import HudiClient
from sink.hudi.instants import ActiveTimeline
from sink.hudi.service_moment import Moment

CLEAN = "clean"
_TIMELINE = ".hoodie/timeline"
_DELETE = ("org.apache.hudi.common.engine.HoodieEngineContext", "org.apache.hudi.avro.model.HoodieCleanerPlan")
"""The parameters of the method that deletes the files of a plan."""


def pending(hudi: HudiClient) -> list[str]:
    """Returns the instants of plans that are not complete, oldest first."""
    timeline = hudi.meta_client().getActiveTimeline().getCleanerTimeline().filterInflightsAndRequested()
    return [str(entry.requestedTime()) for entry in timeline.getInstants()]


def plan(hudi: HudiClient) -> str:
    """Plans a cleaning, if one is due. Returns its instant, or an empty text. The caller holds the table lock."""
    table = hudi.table()
    planned = table.createCleanerPlan(hudi.engine_context, hudi.option())
    if not planned.isPresent():
        return ""
    # Another writer may carry the plan out.
    planned.get().setPartitionsToBeDeleted(hudi.java_list(()))
    instant = str(hudi.client.createNewInstantTime(False))
    meta = table.getMetaClient()
    meta.getActiveTimeline().saveToCleanRequested(hudi.instant(meta, "REQUESTED", CLEAN, instant), planned)
    return instant


def obsolete(hudi: HudiClient, instant: str, snapshot: ActiveTimeline) -> str:
    """Returns why a plan must not be carried out, or an empty text. The caller holds the table lock, and has read
    `snapshot` under it. A savepoint that is made while files are deleted needs no look: Hudi makes none of a commit
    that a pending plan does not retain.
    """
    if not _is_written(hudi, instant):
        return "its writer died before it had written the plan"
    if snapshot.has_later_restore(instant):
        return "the table was restored since, to files that the plan may name"
    retained = _read_plan(hudi, instant).getEarliestInstantToRetain()
    later = [
        entry.requested
        for entry in snapshot.savepoints
        if (entry.completed or "") > instant and (retained is None or entry.requested < str(retained.getTimestamp()))
    ]
    return f"a savepoint of {', '.join(later)} was made since: the plan may name its files" if later else ""


def drop(hudi: HudiClient, instant: str, moment: Moment) -> None:
    """Deletes a plan that is not complete."""
    meta = hudi.meta_client()
    moment.require_held()
    # The plan goes last: Hudi cannot read a cleaning that has begun and has no plan.
    for state in ("INFLIGHT", "REQUESTED"):
        meta.getActiveTimeline().deleteInstantFileIfExists(hudi.instant(meta, state, CLEAN, instant))


def delete(hudi: HudiClient, instant: str) -> Any:
    """Deletes the files of a plan. Returns what `complete` takes."""
    table = hudi.table()
    meta = table.getMetaClient()
    requested, inflight = (hudi.instant(meta, state, CLEAN, instant) for state in ("REQUESTED", "INFLIGHT"))
    cleaner_plan = _read_plan(hudi, instant, meta)
    # The plan may be another writer's.
    cleaner_plan.setPartitionsToBeDeleted(hudi.java_list(()))
    if not meta.getActiveTimeline().containsInstant(inflight):
        meta.getActiveTimeline().transitionCleanRequestedToInflight(requested)
    executor = hudi.java.table.action.clean.CleanActionExecutor(hudi.engine_context, hudi.config, table, instant)
    stats = hudi.call_hidden(executor, "clean", _DELETE, hudi.engine_context, cleaner_plan)
    metadata = hudi.java.common.util.CleanerUtils.convertCleanMetadata(
        instant, hudi.option(), stats, cleaner_plan.getExtraMetadata()
    )
    if not stats:
        # A plan without files only notes how far the table is clean.
        metadata.setEarliestCommitToRetain(cleaner_plan.getEarliestInstantToRetain().getTimestamp())
        metadata.setLastCompletedCommitTimestamp(cleaner_plan.getLastCompletedCommitTimestamp())
    return metadata


def complete(hudi: HudiClient, instant: str, metadata: Any, moment: Moment) -> None:
    """Completes a plan whose files are deleted, in the metadata table first. Does nothing if another writer has."""
    if instant not in pending(hudi):
        return
    table = hudi.table()
    meta = table.getMetaClient()
    inflight = hudi.instant(meta, "INFLIGHT", CLEAN, instant)
    writer = table.getMetadataWriter(instant).orElse(None)
    with nullcontext() if writer is None else closing(writer):
        moment.require_held()
        if writer is not None:
            writer.update(metadata, instant)
    moment.require_held()
    meta.getActiveTimeline().transitionCleanInflightToComplete(False, inflight, hudi.option(metadata))


def _read_plan(hudi: HudiClient, instant: str, meta: Any = None) -> Any:
    meta = meta or hudi.meta_client()
    return hudi.java.common.util.CleanerUtils.getCleanerPlan(meta, hudi.instant(meta, "REQUESTED", CLEAN, instant))


def _is_written(hudi: HudiClient, instant: str) -> bool:
    storage, path = hudi.storage(), hudi.path(f"{_TIMELINE}/{instant}.{CLEAN}.requested")
    return bool(storage.exists(path)) and storage.getPathInfo(path).getLength() > 0
