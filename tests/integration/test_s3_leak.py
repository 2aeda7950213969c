"""A coordinator that commits to S3 for long holds no more connections, threads and files than after a few commits."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from tests.integration.s3_kit import connections, driver_on_s3, jvm_of, on_s3
from tests.storage.s3_server import Store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

WARM_COMMITS = 3


@pytest.mark.parametrize("commits", [100])
def test_commits_leave_no_connections_threads_or_files_behind(
    spark: SparkSession, zookeeper_client: KazooClient, zookeeper, s3: Store, tmp_path: Path, commits: int
) -> None:
    settings = on_s3(s3, tmp_path, zookeeper.address, **{"partition.field.name": "kind"})
    driver = driver_on_s3(spark, s3, settings, zookeeper_client)
    jvm, resources = jvm_of(spark), []
    for number in range(1, commits + 1):
        driver.land(number)
        resources.append((connections(jvm, s3), jvm.num_threads(), jvm.num_fds()))
    driver.table.stop_heartbeats()
    early_maxima = map(max, zip(*resources[:WARM_COMMITS], strict=True))
    for early_maximum, last_count in zip(early_maxima, resources[-1], strict=True):
        assert last_count <= early_maximum + 10, resources
    assert driver.count() == 10 * commits
