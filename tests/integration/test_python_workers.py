"""The Python that Spark starts for the tasks of a worker."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def test_the_python_of_a_task_looks_into_no_archive(spark: SparkSession) -> None:
    """Each of them would be read again at every task."""

    def places(_: int) -> tuple[str, list[str], list[str]]:
        import sys

        main = getattr(sys.modules["__main__"], "__file__", "")
        return str(main), list(sys.path), list(sys.path_importer_cache)

    for main, path, cache in spark.sparkContext.parallelize(range(4), 4).map(places).collect():
        assert main.endswith("daemon.py")
        assert path
        assert [place for place in path + cache if ".zip" in place or ".jar" in place] == []
