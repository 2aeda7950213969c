"""Spark's Python daemon with the imports done that tasks of the sink need: they are forked from it, and begin at once.

Spark ends a task's Python that has been idle for a minute, so that without this every transaction of a quiet sink would
begin with those imports, in as many processes as there are cores. Started by Spark alone, where its
workers import this package from the same place as the driver does.
"""

from __future__ import annotations

import sys


def _without_archives() -> None:
    """PySpark's worker has every importer look again at its place, at each task: for an archive that reads its whole
    directory, 84 % of what a small task took. Spark puts two there, of which nothing is imported that is not installed.
    """
    sys.path[:] = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]
    for entry in [entry for entry in sys.path_importer_cache if ".zip" in entry or ".jar" in entry]:
        del sys.path_importer_cache[entry]


if __name__ == "__main__":
    _without_archives()

    from pyspark.daemon import manager
    from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version

    import sink.write.slice_task  # noqa: F401

    # What these import to compare versions takes as long as all the rest.
    require_minimum_pandas_version()
    require_minimum_pyarrow_version()
    manager()  # type: ignore[no-untyped-call]
