"""Repeats the steps in which Hudi completes a commit or a rewrite, and checks the table lock before each of the two
writes.

Hudi writes the metadata table, which takes seconds on a loaded host or an object store, and then completes the instant
on the timeline. If the ZooKeeper session ends in between, another process may take the lock and complete the same
instant, a compaction with other files, and Hudi would complete it again. Guarantee: a write begins only if ZooKeeper
has just confirmed that this process holds the lock. What remains is the time between that confirmation and the end of
the write.

Written for Hudi 1.2 (`BaseHoodieWriteClient.commitStats`, `BaseHoodieTableServiceClient.commitCompaction` and
`commitClustering`). It leaves out the steps of settings that the sink refuses: commit callbacks, validators, schema
evolution on read, streaming writes to the metadata table, and inline table services. Raises what py4j raises, and what
`require_held` raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from sink.hudi.base_file_stats import JavaFunctions

if TYPE_CHECKING:
    from sink.hudi.java_objects import HudiObjects

_CLIENT = "org.apache.hudi.client.BaseHoodieWriteClient"
_SPARK_CLIENT = "org.apache.hudi.client.SparkRDDWriteClient"
_TABLE = "org.apache.hudi.table.HoodieTable"
_COMMIT_METADATA = "org.apache.hudi.common.model.HoodieCommitMetadata"
_OPTION = "org.apache.hudi.common.util.Option"
_META_CLIENT = "org.apache.hudi.common.table.HoodieTableMetaClient"
_STRING, _LIST = "java.lang.String", "java.util.List"
_SHOULD_LOCK = False
"""The caller holds the table lock."""


def complete_commit(
    hudi: HudiObjects, client: Any, instant: str, stats: Any, extra: Mapping[str, str], require_held: Callable[[], None]
) -> None:
    """Completes a pending instant: `client` is Hudi's write client, `stats` a Java list of write stats, `extra` the
    commit's extra metadata. If `require_held` raises, the instant stays pending, and the metadata table may already
    have its files, as when a process dies between the two writes.
    """
    table, action = hudi.table(), hudi.action
    call_hidden = partial(hudi.call_hidden, client)
    extra_metadata, schema = hudi.option(hudi.java_map(extra)), hudi.config.getWriteSchema()
    replaced_file_groups = hudi.java_map({})
    metadata = hudi.java.common.util.CommitUtils.buildMetadata(
        stats, replaced_file_groups, extra_metadata, hudi.operation, schema, action
    )
    inflight = hudi.instant(table.getMetaClient(), "INFLIGHT", action, instant)
    hudi.java.client.heartbeat.HeartbeatUtils.abortIfHeartbeatExpired(
        instant, table, client.getHeartbeatClient(), hudi.config
    )
    with _state_change(hudi, client, inflight, instant):
        # Checks for conflicts with commits that were completed since the instant began.
        call_hidden("preCommit", (_COMMIT_METADATA,), metadata, owner=_CLIENT)
        # Deletes files of failed task attempts: they have a marker and no write stat.
        table.finalizeWrite(hudi.engine_context, instant, stats)
        save = partial(table.getActiveTimeline().saveAsComplete, _SHOULD_LOCK, inflight, hudi.option(metadata))
        _write_both(hudi, client, table, instant, metadata, save, require_held)
        _add_indexed_columns(hudi, client, table, metadata)
    # Deletes the instant's markers, and stops its heartbeat.
    post_parameters = (_TABLE, _COMMIT_METADATA, _STRING, _OPTION)
    call_hidden("postCommit", post_parameters, table, metadata, instant, extra_metadata, owner=_CLIENT)
    call_hidden("emitCommitMetrics", (_STRING, _COMMIT_METADATA, _STRING), instant, metadata, action, owner=_CLIENT)


def complete_compaction(
    hudi: HudiObjects, client: Any, instant: str, stats: Any, written: Any, require_held: Callable[[], None]
) -> None:
    """Completes a compaction whose files are written: `written` is Hudi's write metadata. As `complete_commit`."""
    described = hudi.java.util.CommonClientUtils.stitchCompactionHoodieWriteStats(written, stats)
    metadata = described.getCommitMetadata().get()
    _complete_rewrite(hudi, client, "compaction", instant, stats, metadata, require_held)


def complete_clustering(
    hudi: HudiObjects, client: Any, instant: str, stats: Any, written: Any, require_held: Callable[[], None]
) -> None:
    """Completes a clustering whose files are written, as `complete_compaction`."""
    metadata = written.getCommitMetadata().get()
    for stat in stats:
        metadata.addWriteStat(stat.getPartitionPath(), stat)
    written.setWriteStats(stats)
    # Another holder of the lock may have dropped the plan.
    require_held()
    plan = hudi.java.common.util.ClusteringUtils.getPendingClusteringPlan(hudi.meta_client(), instant)
    replaced = hudi.java.util.CommonClientUtils.getPartitionToReplacedFileIds(plan, written, hudi.config)
    metadata.setPartitionToReplaceFileIds(replaced)
    _complete_rewrite(hudi, client, "clustering", instant, stats, metadata, require_held)


def _complete_rewrite(
    hudi: HudiObjects,
    client: Any,
    action: str,
    instant: str,
    stats: Any,
    metadata: Any,
    require_held: Callable[[], None],
) -> None:
    table = hudi.table()
    timeline, inflight = table.getActiveTimeline(), hudi.instant(table.getMetaClient(), "INFLIGHT", action, instant)
    transitions = {
        "compaction": timeline.transitionCompactionInflightToComplete,
        "clustering": timeline.transitionClusterInflightToComplete,
    }
    with _state_change(hudi, client, inflight, instant):
        table.finalizeWrite(hudi.engine_context, instant, stats)
        save = partial(transitions[action], _SHOULD_LOCK, inflight, metadata)
        _write_both(hudi, client, table, instant, metadata, save, require_held)
    markers = hudi.java.table.marker.WriteMarkersFactory.get(hudi.config.getMarkersType(), table, instant)
    markers.quietDeleteMarkerDir(hudi.engine_context, hudi.config.getMarkersDeleteParallelism())
    client.getHeartbeatClient().stop(instant)


def _write_both(
    hudi: HudiObjects,
    client: Any,
    table: Any,
    instant: str,
    metadata: Any,
    save: Callable[[], object],
    require_held: Callable[[], None],
) -> None:
    """Writes the metadata table, and completes the instant on the timeline by `save`."""
    require_held()
    _write_to_metadata_table(hudi, client, table, instant, metadata)
    require_held()
    save()


def _write_to_metadata_table(hudi: HudiObjects, client: Any, table: Any, instant: str, metadata: Any) -> None:
    # The settings disable streaming writes: there are none to skip, and no partial stats of theirs.
    skip_streaming_writes, partial_stats = False, hudi.java_list(())
    parameters = ("boolean", _TABLE, _STRING, _LIST, _COMMIT_METADATA)
    arguments = (skip_streaming_writes, table, instant, partial_stats, metadata)
    hudi.call_hidden(client, "writeToMetadataTable", parameters, *arguments, owner=_SPARK_CLIENT)


@contextmanager
def _state_change(hudi: HudiObjects, client: Any, inflight: Any, instant: str) -> Iterator[None]:
    """Holds Hudi's lock from `preCommit` to the completion, as `commitStats` does. For this client it is an in-process
    lock, bound to the Java thread of this Python thread. The caller holds the table lock, in ZooKeeper.
    """
    transactions, owner = client.getTransactionManager(), hudi.option(inflight)
    field = hudi.java_class(_CLIENT).getDeclaredField("lastCompletedTxnAndMetadata")
    field.setAccessible(True)
    last = field.get(client)
    # The newest commit that was complete when the instant began. `preCommit` looks for conflicts with later ones.
    baseline = hudi.option(last.get().getLeft() if last.isPresent() else None)
    transactions.beginStateChange(owner, baseline)
    try:
        yield
    finally:
        transactions.endStateChange(owner)
        client.releaseResources(instant)


def _add_indexed_columns(hudi: HudiObjects, client: Any, table: Any, metadata: Any) -> None:
    """Adds the columns that this commit adds to the definition of the column statistics index."""
    functions = JavaFunctions(hudi)
    update = hudi.hidden_method(_SPARK_CLIENT, "updateColumnsToIndexWithColStats", (_META_CLIENT, _LIST))
    # Hudi passes this method of its client as a function.
    java_update = functions.function2(functions.handle(update).bindTo(client))
    utilities = hudi.java.client.HoodieColumnStatsIndexUtils
    utilities.updateColsToIndex(table, hudi.config, metadata, hudi.action, java_update)
