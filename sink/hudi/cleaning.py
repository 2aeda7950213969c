"""Hudi's cleaning, step by step, so that the table lock is held to plan and to complete, and not while files go.

Guarantee: `plan` and `complete` do what Hudi does under its lock; `delete` does what Hudi does without it, and may be
repeated: a file that is gone counts as deleted. A plan that any process left is carried out by the next one, as
Hudi does. Written for Hudi 1.2: the step that deletes is called by reflection. Raises what py4j raises.
"""

from __future__ import annotations

from typing import Any

from sink.hudi.client import HudiClient

CLEAN = "clean"
_DELETE = ("org.apache.hudi.common.engine.HoodieEngineContext", "org.apache.hudi.avro.model.HoodieCleanerPlan")
"""The parameters of the method that deletes the files of a plan."""


def pending(hudi: HudiClient) -> list[str]:
    """Returns the instants of plans that are not complete, oldest first."""
    timeline = hudi.meta_client().getActiveTimeline().getCleanerTimeline().filterInflightsAndRequested()
    return [str(entry.requestedTime()) for entry in timeline.getInstants()]


def plan(hudi: HudiClient) -> str:
    """Plans a cleaning, if one is due. Returns its instant, or an empty text. The caller holds the table lock."""
    table = _table(hudi)
    planned = table.createCleanerPlan(hudi.engine_context, hudi.option())
    if not planned.isPresent():
        return ""
    instant = str(hudi.client.createNewInstantTime(False))
    meta = table.getMetaClient()
    meta.getActiveTimeline().saveToCleanRequested(hudi.instant(meta, "REQUESTED", CLEAN, instant), planned)
    return instant


def delete(hudi: HudiClient, instant: str) -> Any:
    """Deletes the files of a plan. Returns what `complete` takes."""
    table = _table(hudi)
    meta = table.getMetaClient()
    requested, inflight = (hudi.instant(meta, state, CLEAN, instant) for state in ("REQUESTED", "INFLIGHT"))
    cleaner_plan = hudi.java.common.util.CleanerUtils.getCleanerPlan(meta, requested)
    if not meta.getActiveTimeline().containsInstant(inflight):
        meta.getActiveTimeline().transitionCleanRequestedToInflight(requested)
    executor = hudi.java.table.action.clean.CleanActionExecutor(hudi.engine_context, hudi.config, table, instant)
    kinds = hudi.java_array(hudi.jvm.java.lang.Class, *map(hudi.java_class, _DELETE))
    deletion = executor.getClass().getDeclaredMethod("clean", kinds)
    deletion.setAccessible(True)
    stats = deletion.invoke(executor, hudi.java_array(hudi.jvm.java.lang.Object, hudi.engine_context, cleaner_plan))
    return hudi.java.common.util.CleanerUtils.convertCleanMetadata(
        instant, hudi.option(), stats, cleaner_plan.getExtraMetadata()
    )


def complete(hudi: HudiClient, instant: str, metadata: Any) -> None:
    """Completes a plan whose files are deleted, in the metadata table first. Does nothing if another writer has. The
    caller holds the table lock.
    """
    if instant not in pending(hudi):
        return
    table = _table(hudi)
    writer = table.getMetadataWriter(instant)
    if writer.isPresent():
        writer.get().update(metadata, instant)
        writer.get().close()
    meta = table.getMetaClient()
    inflight = hudi.instant(meta, "INFLIGHT", CLEAN, instant)
    meta.getActiveTimeline().transitionCleanInflightToComplete(False, inflight, hudi.option(metadata))


def _table(hudi: HudiClient) -> Any:
    return hudi.java.table.HoodieSparkTable.create(hudi.config, hudi.engine_context, hudi.meta_client())
