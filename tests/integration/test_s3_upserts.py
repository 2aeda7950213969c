"""Upserts on S3, on both types of table, write under an instant that another client has begun."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from tests.integration.s3_kit import with_store_access
from tests.integration.upsert_kit import (
    BUCKETS,
    BY_LOG,
    NO_METADATA,
    ON_READ,
    Upserts,
    lands_after_a_rollback,
    random_log,
    send,
)
from tests.storage.s3_server import Store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.mark.parametrize("table_type", [{}, {**ON_READ, **BUCKETS}], ids=["copy on write", "merge on read"])
def test_changes_give_what_the_log_says_after_an_attempt_was_rolled_back(
    spark: SparkSession,
    zookeeper_client: KazooClient,
    kafka,
    topic,
    s3: Store,
    tmp_path: Path,
    table_type: dict[str, str],
) -> None:
    name, log = topic(1), random_log(3, 1, 900, 120, ordered=False)
    send(kafka.address, name, log.changes(0))
    settings = {key.replace(".", "__"): value for key, value in s3.settings.items()}
    settings |= {"target__base__path": f"s3a://{s3.make_bucket()}/orders", **BY_LOG, **NO_METADATA, **table_type}
    upserts = Upserts(
        with_store_access(spark, s3), zookeeper_client, tmp_path / "table", kafka.address, name, **settings
    )
    lands_after_a_rollback(upserts, log, name)
