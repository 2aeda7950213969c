"""One contract for every store: Python handles the table's files, and Hudi's JVM sees the same files."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sink.storage.access import Access, access_of, failover_options, hadoop_options, hdfs_access
from sink.storage.files import Storage, open_storage
from tests.storage.hdfs_cluster import SERVICE
from tests.storage.s3_server import Store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ODD_PATH = "day=2024-11-03 a%20b/küche #1.parquet"
STORES = ["local", "s3", pytest.param("hdfs", marks=pytest.mark.thorough)]
"""A cluster of HDFS takes half a minute to start."""


@pytest.fixture(params=STORES)
def location(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Access]:
    """The base path of a table that does not exist yet, and the access to its store."""
    if request.param == "local":
        return str(tmp_path / "table"), access_of({})
    if request.param == "s3":
        store: Store = request.getfixturevalue("s3")
        s3_settings = {name.removeprefix("storage.s3."): value for name, value in store.settings.items()}
        return f"s3a://{store.make_bucket()}/table", access_of({}, s3_settings)
    cluster = request.getfixturevalue("hdfs")
    return f"hdfs://{SERVICE}/{uuid.uuid4().hex}/table", Access(hdfs=hdfs_access(cluster.settings, {}))


@pytest.fixture
def storage(location: tuple[str, Access]) -> Storage:
    return open_storage(*location)


def write(storage: Storage, path: str, content: bytes) -> None:
    with storage.create(path) as stream:
        stream.write(content)


def read(storage: Storage, path: str) -> bytes:
    with storage.files.open_input_stream(storage.locate(path)) as stream:
        content: bytes = stream.read()
    return content


@pytest.mark.parametrize("path", ["a.parquet", ".hoodie/timeline/1.inflight", ODD_PATH])
def test_a_file_is_there_with_what_was_written(storage: Storage, path: str) -> None:
    assert not storage.exists(path)
    write(storage, path, b"x" * 300_000 + b"end")
    assert storage.exists(path)
    assert storage.size(path) == 300_003
    assert read(storage, path)[-4:] == b"xend"


def test_an_empty_file_is_there(storage: Storage) -> None:
    write(storage, "marker", b"")
    assert (storage.exists("marker"), storage.size("marker"), read(storage, "marker")) == (True, 0, b"")


def test_a_second_write_replaces_the_first(storage: Storage) -> None:
    write(storage, "file", b"first and longer")
    write(storage, "file", b"second")
    assert read(storage, "file") == b"second"


def test_a_listing_names_files_and_directories_of_one_level(storage: Storage) -> None:
    assert storage.names("") == []
    for path in ("a/1", "a/2", "a/b/3", "c"):
        write(storage, path, b"1")
    assert sorted(storage.names("a")) == ["1", "2", "b"]
    assert sorted(storage.names("")) == ["a", "c"]
    assert storage.names("nothing") == []


def test_what_is_deleted_is_gone_and_what_is_not_there_is_said(storage: Storage) -> None:
    write(storage, "a/file", b"1")
    storage.delete("a/file")
    assert not storage.exists("a/file")
    with pytest.raises(FileNotFoundError):
        read(storage, "a/file")


def test_parquet_is_read_from_its_end(storage: Storage) -> None:
    rows = pa.table({"id": range(200_000), "name": [f"name {number}" for number in range(200_000)]})
    with storage.create("rows.parquet") as stream:
        pq.write_table(rows, stream, row_group_size=50_000)
        size = stream.tell()
    assert storage.size("rows.parquet") == size
    with storage.files.open_input_file(storage.locate("rows.parquet")) as source:
        assert pq.ParquetFile(source).read_row_group(3, ["id"])["id"][-1].as_py() == 199_999


@pytest.fixture
def java(spark: SparkSession, location: tuple[str, Access]) -> tuple[Any, Callable[[str], Any]]:
    """Hudi's view of the same store, and a function that makes Hudi's path of a relative one."""
    base_path, access = location
    jvm = spark.sparkContext._jvm
    conf = jvm.org.apache.hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
    hdfs_settings = {f"spark.hadoop.{name}": value for name, value in access.hdfs.settings.items()}
    for name, value in {**hdfs_settings, **failover_options(access.hdfs), **hadoop_options(access)}.items():
        conf.set(name.removeprefix("spark.hadoop."), value)
    hudi = jvm.org.apache.hudi
    hudi_storage = hudi.storage.HoodieStorageUtils.getStorage(
        base_path, hudi.hadoop.fs.HadoopFSUtils.getStorageConf(conf)
    )
    return hudi_storage, lambda path: hudi.storage.StoragePath(f"{base_path}/{path}")


def test_hudi_and_python_mean_the_same_file(storage: Storage, java: tuple[Any, Callable[[str], Any]]) -> None:
    hudi_storage, path = java
    write(storage, ODD_PATH, b"python")
    assert hudi_storage.exists(path(ODD_PATH))
    assert int(hudi_storage.getPathInfo(path(ODD_PATH)).getLength()) == len(b"python")
    hudi_storage.create(path("java/file"), True).close()
    assert storage.exists("java/file")
    hudi_storage.deleteFile(path(ODD_PATH))
    assert not storage.exists(ODD_PATH)


def test_hudi_makes_a_file_once(storage: Storage, java: tuple[Any, Callable[[str], Any]]) -> None:
    hudi_storage, path = java
    assert hudi_storage.createNewFile(path("once"))
    assert not hudi_storage.createNewFile(path("once"))
    write(storage, "by python", b"1")
    assert not hudi_storage.createNewFile(path("by python"))
    assert read(storage, "by python") == b"1"


def test_hudi_renames_what_python_wrote(storage: Storage, java: tuple[Any, Callable[[str], Any]]) -> None:
    hudi_storage, path = java
    write(storage, "before", b"1")
    assert hudi_storage.rename(path("before"), path("after"))
    assert (storage.exists("before"), read(storage, "after")) == (False, b"1")
