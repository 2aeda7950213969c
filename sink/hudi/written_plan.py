"""Writes the files of a compaction or clustering that is planned, and completes the plan.

Guarantee: that of `sink.hudi.client`, and the files carry column ranges as those of transactions do
(`sink.hudi.footers`). Written for Hudi 1.2. Raises what py4j raises, and what the store raises.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from sink.hudi.client import HudiClient

_COMPLETE_CLUSTERING = (
    "org.apache.hudi.table.action.HoodieWriteMetadata",
    "org.apache.hudi.table.HoodieTable",
    "java.lang.String",
)
"""The parameters of Hudi's `commitClustering`."""


class WrittenPlan:
    """A plan whose files are written, and which is not complete. `write_plan` makes it."""

    def __init__(self, hudi: HudiClient, service: str, instant: str, written: Any, stats: Sequence[str]) -> None:
        """`written` is Hudi's write metadata, with the write `stats`, given as JSON."""
        self._hudi, self._service, self._instant, self._written = hudi, service, instant, written
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

    def complete(self, require_alone: Callable[[], None]) -> None:
        """Completes the plan. Hudi adds the files to the metadata table before it looks whether the plan is still
        there: `require_alone`, called last, raises if another process may have gone on.
        """
        hudi, client = self._hudi, self._hudi.client
        if self._service == "Compaction":
            require_alone()
            client.commitCompaction(self._instant, self._written, hudi.option())
            return
        table = hudi.table()
        services = client.getTableServiceClient()
        # Hudi 1.2 has no public method that completes a clustering which another call has written.
        owner = str(services.getClass().getSuperclass().getName())
        arguments = self._written, table, self._instant
        require_alone()
        hudi.call_hidden(services, "commitClustering", _COMPLETE_CLUSTERING, *arguments, owner=owner)


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
            compacted = table.compact(hudi.engine_context, instant)
            statuses = hudi.java.data.HoodieJavaRDD.getJavaRDD(compacted.getWriteStatuses())
            stats = hudi.stats_of(statuses)
        written = compacted.clone(statuses)
    written.setWriteStatuses(_statuses(hudi, stats))
    return WrittenPlan(hudi, service, instant, written, stats)


def _statuses(hudi: HudiClient, stats: Sequence[str]) -> Any:
    """Returns write statuses in a Java RDD, from which Hudi takes the write stats when it completes a plan."""
    statuses = hudi.jvm.java.util.ArrayList()
    for stat in hudi.write_stats(stats):
        status = hudi.java.client.WriteStatus(False, 0.0)
        status.setStat(stat)
        status.setFileId(stat.getFileId())
        status.setPartitionPath(stat.getPartitionPath())
        status.setTotalRecords(stat.getNumWrites())
        statuses.add(status)
    data = hudi.java.data.HoodieJavaRDD
    return data.getJavaRDD(data.of(statuses, hudi.engine_context, 1))
