"""The sink aborts a multipart upload that a killed writer has left below the table, after a day."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from sink.hudi.uploads import abort_uploads
from tests.integration.s3_kit import driver_on_s3, on_s3
from tests.storage.s3_proxy import S3Proxy
from tests.storage.s3_server import Store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def test_old_uploads_below_the_table_are_aborted_and_no_others(
    spark: SparkSession, zookeeper_client: KazooClient, zookeeper, s3: Store, tmp_path: Path
) -> None:
    settings = on_s3(s3, tmp_path, zookeeper.address)
    driver = driver_on_s3(spark, s3, settings, zookeeper_client)
    bucket = settings.base_path.partition("://")[2].partition("/")[0]
    for key in ("orders/a.parquet", "orders/.hoodie/b", "orders_errors/c.parquet", "other/d"):
        s3.client.create_multipart_upload(Bucket=bucket, Key=key)
    hudi = driver.table._hudi
    # moto dates each upload to 2010.
    assert abort_uploads(hudi, older_than=1e10) == 0
    assert len(uploads(s3, bucket)) == 4
    assert abort_uploads(hudi, older_than=-60) == 2
    assert uploads(s3, bucket) == ["orders_errors/c.parquet", "other/d"]
    assert all(not result.reason for result in driver.table.services())


def test_a_server_without_lists_of_uploads_fails_no_service(
    spark: SparkSession, zookeeper_client: KazooClient, zookeeper, s3: Store, tmp_path: Path
) -> None:
    with S3Proxy(tmp_path / "proxy", s3.url) as proxy:
        proxy.miss("uploads")
        store = Store(proxy.url, s3.access_key, s3.secret_key)
        settings = on_s3(store, tmp_path, zookeeper.address)
        driver = driver_on_s3(spark, store, settings, zookeeper_client)
        proxy.forget()
        assert abort_uploads(driver.table._hudi) == 0
        assert {request.status for request in proxy.requests()} == {501}
        assert all(not result.reason for result in driver.table.services())


def uploads(store: Store, bucket: str) -> list[str]:
    return sorted(upload["Key"] for upload in store.client.list_multipart_uploads(Bucket=bucket).get("Uploads", ()))
