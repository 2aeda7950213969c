"""Writes the files of a compaction or clustering that is planned, and completes the plan.

Guarantee: that of `sink.hudi.client`, and the files carry column ranges as those of transactions do
(`sink.hudi.footers`). Written for Hudi 1.2. Raises what py4j raises, and what the store raises.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from sink.hudi.client import HudiClient
from sink.hudi.completion import complete_clustering, complete_compaction


class WrittenPlan:
    """A plan whose files are written, and which is not complete. `write_plan` makes it."""

    def __init__(self, hudi: HudiClient, service: str, instant: str, written: Any, stats: Sequence[str]) -> None:
        """`written` is Hudi's write metadata, with the write `stats`, given as JSON."""
        self._hudi, self._service, self._instant = hudi, service, instant
        self._written, self._stats = written, stats
        self.paths = [str(json.loads(stat)["path"]) for stat in stats]
        """The files, relative to the table."""

    def name_columns(self, meta: Any) -> None:
        """Has the commit name the table's columns as they are now. Readers take them from the newest instant, and Hudi
        would name those of when it began to write.
        """
        java = self._hudi.java
        commit, resolver = self._written.getCommitMetadata().get(), java.common.table.TableSchemaResolver(meta)
        if (columns := self._hudi.table_schema(meta)) is not None:
            commit.addMetadata("schema", columns)
        internal = resolver.getTableInternalSchemaFromCommitMetadata()
        if internal.isPresent():
            serializer = java.internal.schema.utils.SerDeHelper
            commit.addMetadata(serializer.LATEST_SCHEMA, serializer.toJson(internal.get()))

    def complete(self, require_held: Callable[[], None]) -> None:
        """Completes the plan: see `sink.hudi.completion`."""
        hudi = self._hudi
        complete = complete_compaction if self._service == "Compaction" else complete_clustering
        complete(hudi, hudi.client, self._instant, hudi.write_stats(self._stats), self._written, require_held)


def write_plan(hudi: HudiClient, service: str, instant: str) -> WrittenPlan:
    """Writes the files of a plan that is only requested. A compaction's heartbeat goes on until its completion: other
    Hudi writers leave the plan alone meanwhile.
    """
    if service == "Clustering":
        # Hudi writes the files when somebody asks for their statuses, and keeps those.
        written = hudi.client.cluster(instant, False)
        stats = hudi.stats_of(written.getWriteStatuses())
    else:
        # Hudi's `compact` would roll back what another process has written for the plan meanwhile.
        table = hudi.table()
        with hudi.beating(instant):
            written = table.compact(hudi.engine_context, instant)
            stats = hudi.stats_of(hudi.java.data.HoodieJavaRDD.getJavaRDD(written.getWriteStatuses()))
    return WrittenPlan(hudi, service, instant, written, stats)
