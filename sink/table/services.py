"""Cleaning and archiving by Hudi's own services, off the commit path, on one worker at a time.

Guarantee: Hudi takes the table lock itself, through ZooKeeper, as any other writer would. A pending instant
is never rolled back here, however old its heartbeat is, for it may be PREPARED. Before archiving, files are
removed that a late task left under an instant that was rolled back: what is older than the active timeline
counts as committed to a reader without the metadata table. What the user set for cleaning and archiving
holds. Raises what py4j raises; nothing that happens here can fail a commit.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import SparkSession

from sink.config import Settings
from sink.schema import TableSchema
from sink.table.gateway import Hudi
from sink.table.options import service_options
from sink.table.timeline import Snapshot, Timeline

TEMP = ".hoodie/.temp"
TIMELINE = ".hoodie/timeline"
_MARKER = ".marker."


def run_services(spark: SparkSession, settings: Settings, schema: TableSchema) -> None:
    hudi = Hudi(spark, settings.base_path, schema.avro(settings.table_name), service_options(settings))
    try:
        hudi.client.clean()
        sweep(hudi, Timeline(hudi, settings.name))
        hudi.client.archive()
    finally:
        hudi.close()


def sweep(hudi: Hudi, timeline: Timeline) -> None:
    """Removes files of instants whose rollback is complete: those the rollback removed and a late task made
    again, and those that a late task has marked since.
    """
    storage = hudi.storage()
    for name in _revived(hudi, timeline.snapshot()):
        storage.deleteFile(hudi.path(f"{TIMELINE}/{name}"))
    now = timeline.snapshot()
    for path in timeline.removed_files(now):
        if storage.exists(hudi.path(path)):
            storage.deleteFile(hudi.path(path))
    for instant in hudi.names(TEMP):
        if instant in now.rolled_back and not now.of(instant):
            directory = f"{TEMP}/{instant}"
            for path in _marked(hudi, directory):
                storage.deleteFile(hudi.path(path))
            storage.deleteDirectory(hudi.path(directory))


def _revived(hudi: Hudi, now: Snapshot) -> list[str]:
    """Inflight files that a late writer has made again of instants that were rolled back, without the requested ones
    that came before them: Hudi's writer notes there what it is going to write.
    """
    pending = {each.requested for each in now.instants if each.requested in now.rolled_back and not each.done}
    names = hudi.names(TIMELINE) if pending else []
    begun = {name.partition(".")[0] for name in names if name.endswith(".requested")}
    return [name for name in names if name.endswith(".inflight") and name.partition(".")[0] in pending - begun]


def _marked(hudi: Hudi, directory: str) -> Iterator[str]:
    """Data files that have a marker, relative to the table."""
    for marker in hudi.files_below(directory):
        if _MARKER in marker:
            yield marker.rpartition(_MARKER)[0]
