"""The Python that Spark starts for the tasks of a worker."""

from __future__ import annotations

import sys

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def test_the_python_of_a_task_looks_into_no_archive(spark: SparkSession) -> None:
    """Python would read each archive again at every task."""

    def import_paths(_: int) -> tuple[str, list[str], list[str]]:
        import sys

        main = getattr(sys.modules["__main__"], "__file__", "")
        return str(main), list(sys.path), list(sys.path_importer_cache)

    for main, path, cache in spark.sparkContext.parallelize(range(4), 4).map(import_paths).collect():
        assert main.endswith("daemon.py")
        assert path
        assert [entry for entry in path + cache if ".zip" in entry or ".jar" in entry] == []


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 cannot leave its directory out: use 3.11 or newer")
def test_the_python_of_a_task_imports_nothing_from_the_directory_where_the_worker_is(spark: SparkSession) -> None:
    def is_safe(_: int) -> bool:
        import sys

        return bool(sys.flags.safe_path)

    assert spark.sparkContext.parallelize(range(2), 2).map(is_safe).collect() == [True, True]
