"""ZooKeeper and Spark for commands that write to a table while no worker of its sink runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kazoo.client import KazooClient

from coordination.zookeeper.keeper import Keeper
from sink.clients.zookeeper.session import connected
from sink.config import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def offline(settings: Settings, name: str, writes: bool) -> Iterator[tuple[SparkSession, KazooClient]]:
    """Yields them. Refuses a tree or a table of another version, and, for a command that `writes`, live workers. `name`
    is the command's, for Spark and its log."""
    # Imported here: Spark would slow every other command down.
    from sink.clients.spark.session import start_session
    from sink.operations.reset_checks import require_no_live_workers
    from sink.operations.reset_writer import live_workers
    from sink.operations.table_version import require_own_table

    with connected(settings.ensemble) as client:
        Keeper(client, settings.root_znode, lambda: None).require_own_version()
        require_own_table(settings)
        require_no_live_workers(live_workers(client, settings.root_znode) if writes else ())
        log = settings.log_dir / f"{name}-spark.log"
        spark = start_session(settings.session, f"sink-{settings.name}-{name}", log, rolls_log=False)
        try:
            # Records may be large, and their sizes are not known beforehand.
            spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 64)
            yield spark, client
        finally:
            spark.stop()
