"""Hudi's commit, in its own steps and their order, with the table lock asked for before each of its two writes.

Hudi's `commitStats` writes the metadata table, which takes seconds on a loaded host or an object store, and then the
timeline. A process whose session ends in between completes what its successor has completed already. Guarantee: each of
the two is begun only by a process that holds the lock then; one request to ZooKeeper and the writing of one file are
left of the gap. Written for Hudi 1.2 (`BaseHoodieWriteClient.commitStats`), without what the sink refuses among Hudi's
settings: callbacks, schemas on read, streaming writes of the metadata table, and services in line. Raises what py4j
raises, and what `require_held` raises.
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
_METADATA = "org.apache.hudi.common.model.HoodieCommitMetadata"
_OPTION = "org.apache.hudi.common.util.Option"
_META = "org.apache.hudi.common.table.HoodieTableMetaClient"
_TEXT, _LIST = "java.lang.String", "java.util.List"


def complete_commit(
    hudi: HudiObjects, client: Any, instant: str, stats: Any, extra: Mapping[str, str], require_held: Callable[[], None]
) -> None:
    """Completes an instant with Java's write stats, through Java's write client. If `require_held` raises, the instant
    is pending, and the metadata table may have it, as after the death of a process there."""
    table, action = hudi.table(), hudi.action
    hidden = partial(hudi.call_hidden, client)
    extra_metadata, schema = hudi.option(hudi.java_map(extra)), hudi.config.getWriteSchema()
    metadata = hudi.java.common.util.CommitUtils.buildMetadata(
        stats, hudi.java_map({}), extra_metadata, hudi.operation, schema, action
    )
    inflight = hudi.instant(table.getMetaClient(), "INFLIGHT", action, instant)
    hudi.java.client.heartbeat.HeartbeatUtils.abortIfHeartbeatExpired(
        instant, table, client.getHeartbeatClient(), hudi.config
    )
    with _changing(hudi, client, inflight, instant):
        hidden("preCommit", (_METADATA,), metadata, owner=_CLIENT)
        table.finalizeWrite(hudi.engine_context, instant, stats)
        nothing = hudi.java_list(())
        parameters = ("boolean", _TABLE, _TEXT, _LIST, _METADATA)
        require_held()
        hidden("writeToMetadataTable", parameters, False, table, instant, nothing, metadata, owner=_SPARK_CLIENT)
        require_held()
        table.getActiveTimeline().saveAsComplete(False, inflight, hudi.option(metadata))
        _note_indexed_columns(hudi, client, table, metadata)
    hidden("postCommit", (_TABLE, _METADATA, _TEXT, _OPTION), table, metadata, instant, extra_metadata, owner=_CLIENT)
    hidden("emitCommitMetrics", (_TEXT, _METADATA, _TEXT), instant, metadata, action, owner=_CLIENT)


@contextmanager
def _changing(hudi: HudiObjects, client: Any, inflight: Any, instant: str) -> Iterator[None]:
    """Holds Hudi's lock, which is this process's own, for an instant. Hudi binds it to the Java thread: each thread of
    Python has its own."""
    transactions, owner = client.getTransactionManager(), hudi.option(inflight)
    field = hudi.java_class(_CLIENT).getDeclaredField("lastCompletedTxnAndMetadata")
    field.setAccessible(True)
    last = field.get(client)
    transactions.beginStateChange(owner, hudi.option(last.get().getLeft() if last.isPresent() else None))
    try:
        yield
    finally:
        transactions.endStateChange(owner)
        client.releaseResources(instant)


def _note_indexed_columns(hudi: HudiObjects, client: Any, table: Any, metadata: Any) -> None:
    """Has the definition of the index of column statistics name the columns that this commit adds."""
    functions = JavaFunctions(hudi)
    update = hudi.hidden_method(_SPARK_CLIENT, "updateColumnsToIndexWithColStats", (_META, _LIST))
    note = functions.function2(functions.handle(update).bindTo(client))
    utilities = hudi.java.client.HoodieColumnStatsIndexUtils
    utilities.updateColsToIndex(table, hudi.config, metadata, hudi.action, note)
