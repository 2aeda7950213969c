"""Spark's Python daemon with the imports done that tasks of the sink need: they are forked from it, and begin at once.

Spark ends a task's Python that has been idle for a minute, so that without this every transaction of a quiet sink would
begin with those imports, in as many processes as there are cores. Started by Spark alone, where its
workers import this package from the same place as the driver does.
"""

from __future__ import annotations

from pyspark.daemon import manager
from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version

import sink.write.slice_task  # noqa: F401

if __name__ == "__main__":
    # What these import to compare versions takes as long as all the rest.
    require_minimum_pandas_version()
    require_minimum_pyarrow_version()
    manager()  # type: ignore[no-untyped-call]
