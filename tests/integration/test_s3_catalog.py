"""Spark SQL finds a table on S3 by its name alone, through a metastore that reaches S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.catalog_kit import Reader
from tests.integration.conftest import METADATA, PARTITIONS, MakeFleet
from tests.integration.s3_kit import spark_settings, table_location
from tests.integration.test_catalog import recorded
from tests.metastore import MetastoreServer
from tests.storage.s3_server import Store
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.thorough, pytest.mark.timeout(600)]


@pytest.fixture
def metastore(s3: Store, tmp_path: Path) -> Iterator[MetastoreServer]:
    storage = {name.removeprefix("spark.hadoop."): value for name, value in spark_settings(s3).items()}
    with MetastoreServer(tmp_path / "metastore", storage=storage) as server:
        yield server


def test_a_table_on_s3_is_read_by_its_name_and_of_the_partitions_only_those_that_are_asked_for(
    make_fleet: MakeFleet, metastore: MetastoreServer, s3: Store, tmp_path: Path
) -> None:
    location = table_location(s3)
    catalog = {"catalog.metastore.uris": metastore.uri, "catalog.interval.ms": 1000, "partition.field.name": "kind"}
    fleet = make_fleet(records=900, **METADATA, **location, **catalog)
    fleet.start("w1")
    view = fleet.wait_landed(dict.fromkeys(range(PARTITIONS), 300))
    eventually("the table is registered", lambda: recorded(fleet).committed >= view.ledger.committed, 120, fleet.logs)
    reader = Reader(metastore.uri, tmp_path / "reader", spark_settings(s3))
    assert reader.rows("select count(*), sum(id) from orders") == [[900, sum(range(900))]]
    bucket = location["target.base.path"].split("/")[2]
    for key in s3.keys(bucket, "orders/kind=view/"):
        if key.endswith(".parquet"):
            s3.client.put_object(Bucket=bucket, Key=key, Body=b"broken")
    reader.rows("refresh table orders")
    assert reader.rows("select count(*) from orders where kind = 'buy'") == [[300]]
    with pytest.raises(RuntimeError, match="parquet"):
        reader.rows("select sum(amount) from orders")
    reader.close()
