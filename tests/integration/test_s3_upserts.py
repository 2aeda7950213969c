"""Rows on S3 are changed: a write under an instant that another one has begun, on both types of table."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from sink.audit import audit
from tests.integration.s3_kit import reaching
from tests.integration.sinktable import slices_of
from tests.integration.table_kit import SINK
from tests.integration.upsert_kit import BY_LOG, NO_METADATA, ON_READ, Upserts, expected, plain, random_log, send
from tests.storage.s3_server import Store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.mark.parametrize("kind", [{}, ON_READ], ids=["copy on write", "merge on read"])
def test_changes_give_what_the_log_says_after_an_attempt_was_rolled_back(
    spark: SparkSession,
    zookeeper_client: KazooClient,
    kafka,
    topic,
    s3: Store,
    tmp_path: Path,
    kind: dict[str, str],
) -> None:
    name, log = topic(1), random_log(3, 1, 900, 120, ordered=False)
    send(kafka.address, name, log.changes(0))
    given = {key.replace(".", "__"): value for key, value in s3.settings.items()}
    given |= {"target__base__path": f"s3a://{s3.make_bucket()}/orders", **BY_LOG, **NO_METADATA, **kind}
    one = Upserts(reaching(spark, s3), zookeeper_client, tmp_path / "table", kafka.address, name, **given)
    one.land((0, 0, 300))
    failed = one.begin()
    one.write(failed, (0, 300, 600))
    one.table.roll_back(failed)
    one.land((0, 300, 600))
    one.land((0, 600, 900))
    one.table.stop_heartbeats()
    assert one.rows() == plain(expected(log, slices_of(name, (0, 0, 900)), ordered=False))
    report = audit(one.settings.base_path, SINK, storage=one.settings.storage)
    assert report.held, report.to_json()
