"""Hadoop's file system for S3 asks less below a table's `.hoodie`, and says the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sink.storage.lean_s3 import ask_less, forget, read_once
from tests.integration.s3_kit import reaching
from tests.storage.s3_proxy import S3Proxy
from tests.storage.s3_server import Store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PROPERTIES = ".hoodie/hoodie.properties"
FILES = (
    PROPERTIES,
    ".hoodie/.index_defs/index.json",
    ".hoodie/.temp/1/day=1/a.parquet.marker.CREATE",
    ".hoodie/metadata/files/.files-0000-0_1.log.1_0-1-1",
    "day=1/a.parquet",
)
COMPLETED = ".hoodie/timeline/20260101000000000_20260101000000001.commit"
LOG = ".hoodie/metadata/files/.files-0000-0_20260101000000000.log.1_0-1-1"
DIRECTORIES = (".hoodie", ".hoodie/.temp/1", ".hoodie/.temp/1/day=1", "day=1")
ABSENT = (
    ".hoodie/.temp/2",
    ".hoodie/.temp/1/day=2",
    ".hoodie/.temp/1/day=1/b.parquet.marker.CREATE",
    ".hoodie/metadata/files/.files-0000-0_1.log.2_0-1-1",
    ".hoodie/timeline/1.commit.requested",
)


class Bucket:
    """A table in a bucket of its own, as the JVM sees it and as another writer does."""

    def __init__(self, spark: SparkSession, store: Store, proxy: S3Proxy) -> None:
        self.proxy = proxy
        self.spark = reaching(spark, Store(proxy.url))
        self._bucket, self._client = store.make_bucket(), store.client
        self.base_path = f"s3a://{self._bucket}/orders"
        self.files = ask_less(self.spark, self.base_path)

    def put(self, name: str, content: str) -> None:
        self._client.put_object(Bucket=self._bucket, Key=f"orders/{name}", Body=content.encode())

    def path(self, name: str) -> Any:
        return self.spark.sparkContext._jvm.org.apache.hadoop.fs.Path(f"{self.base_path}/{name}")

    def read(self, name: str) -> str:
        """By whatever file system Hadoop has for the bucket."""
        jvm: Any = self.spark.sparkContext._jvm
        files = self.path(name).getFileSystem(self.spark.sparkContext._jsc.hadoopConfiguration())
        stream = files.open(self.path(name))
        try:
            return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, content: str) -> None:
        stream = self.files.create(self.path(name), True)
        stream.write(content.encode())
        stream.close()

    def locked(self) -> Any:
        return read_once(self.spark, self.base_path)

    def requests(self) -> int:
        count = len(self.proxy.requests())
        self.proxy.forget()
        return count


@pytest.fixture
def bucket(spark: SparkSession, s3: Store, tmp_path: Path) -> Iterator[Bucket]:
    with S3Proxy(tmp_path / "proxy", s3.url) as proxy:
        yield Bucket(spark, s3, proxy)


def test_under_the_lock_a_tables_properties_are_read_once(bucket: Bucket) -> None:
    bucket.put(PROPERTIES, "a=1")
    with bucket.locked():
        assert bucket.read(PROPERTIES) == "a=1"
        assert bucket.requests() > 0
        assert [bucket.read(PROPERTIES) for _ in range(3)] == ["a=1"] * 3
        assert bucket.requests() == 0


def test_what_others_changed_meanwhile_is_seen_with_the_next_lock(bucket: Bucket) -> None:
    bucket.put(PROPERTIES, "a=1")
    with bucket.locked():
        bucket.read(PROPERTIES)
    bucket.put(PROPERTIES, "a=2")
    assert bucket.read(PROPERTIES) == "a=2"
    with bucket.locked():
        assert bucket.read(PROPERTIES) == "a=2"


def test_what_this_jvm_changes_is_seen_at_once(bucket: Bucket) -> None:
    bucket.put(PROPERTIES, "a=1")
    with bucket.locked():
        bucket.read(PROPERTIES)
        bucket.write(PROPERTIES, "a=2")
        assert bucket.read(PROPERTIES) == "a=2"
        bucket.files.rename(bucket.path(PROPERTIES), bucket.path(f"{PROPERTIES}.backup"))
        bucket.write(PROPERTIES, "a=3")
        assert bucket.read(PROPERTIES) == "a=3"


def test_a_directory_that_is_deleted_takes_what_was_read_of_it_along(bucket: Bucket) -> None:
    name = f".hoodie/metadata/{PROPERTIES}"
    bucket.put(name, "a=1")
    with bucket.locked():
        bucket.read(name)
        bucket.files.delete(bucket.path(".hoodie/metadata"), True)
        bucket.write(name, "a=2")
        assert bucket.read(name) == "a=2"


def test_the_properties_of_another_table_are_not_kept(bucket: Bucket) -> None:
    bucket.put(PROPERTIES, "a=1")
    with bucket.locked(), read_once(bucket.spark, f"{bucket.base_path}/inner"):
        bucket.read(PROPERTIES)
    with read_once(bucket.spark, f"{bucket.base_path}-2"):
        bucket.read(PROPERTIES)
        bucket.put(PROPERTIES, "a=2")
        assert bucket.read(PROPERTIES) == "a=2"


@pytest.mark.parametrize("name", [COMPLETED, LOG])
def test_what_this_jvm_has_written_once_it_reads_under_the_lock_without_asking(bucket: Bucket, name: str) -> None:
    bucket.write(name, "content")
    bucket.requests()
    with bucket.locked():
        assert bucket.read(name) == "content"
        assert bucket.requests() == 0
    assert bucket.read(name) == "content"
    assert bucket.requests() > 0


@pytest.mark.parametrize("name", [COMPLETED, LOG])
def test_what_was_written_once_is_read_again_when_another_writer_was_there(bucket: Bucket, name: str) -> None:
    bucket.write(name, "content")
    bucket.put(name, "another's")
    forget(bucket.spark, bucket.base_path)
    with bucket.locked():
        assert bucket.read(name) == "another's"


def test_what_is_written_again_or_deleted_is_not_remembered(bucket: Bucket) -> None:
    bucket.write(LOG, "content")
    bucket.write(LOG, "more content")
    with bucket.locked():
        assert bucket.read(LOG) == "more content"
        bucket.files.delete(bucket.path(".hoodie/metadata"), True)
        with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
            bucket.read(LOG)


def test_large_files_are_read_from_the_store(bucket: Bucket) -> None:
    bucket.write(LOG, "a" * 300_000)
    with bucket.locked():
        assert len(bucket.read(LOG)) == 300_000
        bucket.requests()
        assert len(bucket.read(LOG)) == 300_000
        assert bucket.requests() > 0


def test_no_more_is_kept_than_a_few_megabytes(bucket: Bucket) -> None:
    names = [f"{LOG}-{number}" for number in range(40)]
    for name in names:
        bucket.write(name, name.ljust(250_000))
    bucket.requests()
    with bucket.locked():
        assert bucket.read(names[-1]).strip() == names[-1]
        assert bucket.requests() == 0
        assert bucket.read(names[0]).strip() == names[0]
        assert bucket.requests() > 0


@pytest.mark.parametrize("name", [*FILES, *DIRECTORIES, *ABSENT])
def test_what_is_there_is_there_for_both(bucket: Bucket, name: str) -> None:
    for file in FILES:
        bucket.put(file, "content")
    assert bool(bucket.files.exists(bucket.path(name))) is (name not in ABSENT)


def test_the_last_marker_takes_its_directory_along(bucket: Bucket) -> None:
    marker = bucket.path(".hoodie/.temp/1/day=1/a.parquet.marker.CREATE")
    bucket.put(".hoodie/.temp/1/day=1/a.parquet.marker.CREATE", "")
    bucket.files.delete(marker, False)
    assert not bucket.files.exists(bucket.path(".hoodie/.temp/1"))
    assert not bucket.files.delete(bucket.path(".hoodie/.temp/1"), True)


def test_content_is_read_from_any_place(bucket: Bucket) -> None:
    bucket.put(PROPERTIES, "0123456789")
    jvm = bucket.spark.sparkContext._jvm
    with bucket.locked():
        bucket.read(PROPERTIES)
        stream = bucket.files.open(bucket.path(PROPERTIES))
        stream.seek(4)
        assert (chr(stream.read()), stream.getPos(), stream.available()) == ("4", 5, 5)
        into = jvm.java.nio.ByteBuffer.allocate(3).array()
        assert stream.read(20, into, 0, 3) == -1
        with pytest.raises(Py4JJavaError, match="EOFException"):
            stream.readFully(8, into, 0, 3)
        with pytest.raises(Py4JJavaError, match="EOFException"):
            stream.seek(11)
        stream.close()
