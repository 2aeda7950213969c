"""Rows on HDFS are changed, on both types of table, after an attempt that was rolled back; and audited."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from sink.storage.access import failover_options, hdfs_access
from tests.integration.upsert_kit import BUCKETS, BY_LOG, ON_READ, Upserts, lands_after_a_rollback, random_log, send
from tests.storage.hdfs_cluster import SERVICE, HdfsCluster

pytestmark = [pytest.mark.integration, pytest.mark.thorough, pytest.mark.timeout(600)]


@pytest.mark.parametrize("kind", [{}, {**ON_READ, **BUCKETS}], ids=["copy on write", "merge on read"])
def test_changes_give_what_the_log_says(
    spark: SparkSession,
    zookeeper_client: KazooClient,
    kafka,
    topic,
    hdfs: HdfsCluster,
    tmp_path: Path,
    kind: dict[str, str],
) -> None:
    name, log = topic(1), random_log(3, 1, 900, 120, ordered=False)
    send(kafka.address, name, log.changes(0))
    settings = {"target.base.path": f"hdfs://{SERVICE}/{uuid.uuid4().hex}/orders", **hdfs.settings, **BY_LOG, **kind}
    keyword_settings = {key.replace(".", "__"): value for key, value in settings.items()}
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    for key, value in {**hdfs.settings, **failover_options(hdfs_access(hdfs.settings, {}))}.items():
        conf.set(key.removeprefix("spark.hadoop."), value)
    upserts = Upserts(spark, zookeeper_client, tmp_path / "table", kafka.address, name, **keyword_settings)
    lands_after_a_rollback(upserts, log, name)
