"""Tables on an S3 server, written in the test's Spark session, and the connections that its JVM keeps open."""

from __future__ import annotations

from pathlib import Path

import psutil
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from sink.config import Settings
from sink.storage.access import access_of, hadoop_options
from tests.integration.table_kit import Driver, table_settings
from tests.storage.s3_server import Store

HUDIS_DEFAULTS = {"hoodie.metadata.enable": "true", "hoodie.metadata.index.column.stats.enable": "true"}


def table_location(store: Store) -> dict[str, str]:
    """Settings of a table in a bucket of its own."""
    return {**store.settings, "target.base.path": f"s3a://{store.make_bucket()}/orders"}


def on_s3(store: Store, directory: Path, zookeeper: str, **more: str) -> Settings:
    """Settings of a table in a bucket of its own, with Hudi's defaults."""
    return table_settings(directory / "s3", zookeeper, **{**table_location(store), **HUDIS_DEFAULTS, **more})


def with_store_access(spark: SparkSession, store: Store) -> SparkSession:
    """Returns the session, which then reaches the store like one that a user's settings started."""
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    for name, value in spark_settings(store).items():
        conf.set(name.removeprefix("spark.hadoop."), value)
    return spark


def spark_settings(store: Store) -> dict[str, str]:
    """Spark's settings, as the sink makes them for itself."""
    s3_settings = {name.removeprefix("storage.s3."): value for name, value in store.settings.items()}
    return hadoop_options(access_of({}, s3_settings))


def driver_on_s3(spark: SparkSession, store: Store, sink_settings: Settings, client: KazooClient) -> Driver:
    driver = Driver(with_store_access(spark, store), sink_settings, client)
    driver.table.ensure()
    return driver


def jvm_of(spark: SparkSession) -> psutil.Process:
    return psutil.Process(int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()))


def connections(process: psutil.Process, store: Store) -> int:
    """Counts connections to the store, also those whose other end has gone."""
    port = int(store.url.rpartition(":")[2])
    return sum(1 for connection in process.net_connections("tcp") if connection.raddr and connection.raddr.port == port)
