"""Executors of a cluster write to S3, and keep no connection open after they read log files there."""

from __future__ import annotations

import psutil
import pytest

from tests.fleet import produce
from tests.integration.conftest import PARTITIONS, MakeFleet
from tests.integration.s3_kit import HUDIS_DEFAULTS, connections
from tests.integration.test_cluster import master  # noqa: F401
from tests.storage.s3_server import Store

pytestmark = [pytest.mark.integration, pytest.mark.thorough, pytest.mark.timeout(900)]

ROUND = 900


def test_executors_keep_no_connection_for_a_read(make_fleet: MakeFleet, master: str, s3: Store) -> None:  # noqa: F811
    fleet = make_fleet(
        ROUND,
        **s3.settings,
        **HUDIS_DEFAULTS,
        **{
            "target.base.path": f"s3a://{s3.make_bucket()}/orders",
            "partition.field.name": "kind",
            "spark.master": master,
            "spark.executor.memory": "600m",
            "spark.cores.max": 2,
        },
    )
    fleet.start("w1")
    connection_counts = []
    for round_number in range(1, 9):
        fleet.wait_landed(dict.fromkeys(range(PARTITIONS), round_number * ROUND // PARTITIONS))
        connection_counts.append([connections(executor, s3) for executor in executors()])
        produce(fleet.kafka, fleet.topic, ROUND, PARTITIONS, first=round_number * ROUND)
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), 9 * ROUND // PARTITIONS))
    assert all(len(counts) == 2 for counts in connection_counts), connection_counts
    assert max(connection_counts[-1]) <= max(connection_counts[1]) + 6, connection_counts
    fleet.assert_exactly_once(9 * ROUND)


def executors() -> list[psutil.Process]:
    processes = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in process.cmdline():
                processes.append(process)
        except psutil.NoSuchProcess:
            continue
    return processes
