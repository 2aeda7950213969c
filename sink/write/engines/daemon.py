"""Spark's Python daemon, with the sink's modules imported: the tasks' processes are forked from it and start at once.

Spark ends a Python worker that was idle for a minute. Without this daemon every transaction of a quiet sink would
import the modules again, in one process for each core. Only Spark starts it, with a local master.

It forks for this user's connections only: PySpark's daemon forks before it asks for its secret.

Tasks have a lower priority than the JVM, which commits: the backlog of one sink would keep the small commits of others
waiting. Where a service manager forbids that, they keep the JVM's.
"""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from types import SimpleNamespace

NICENESS = 10


def _without_archives() -> None:
    """Removes archives from `sys.path`. PySpark's worker invalidates all import caches before each task, and an archive
    then reads its whole directory again: 84 % of the time of a small task. Spark adds two archives, and everything in
    them is installed, too."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]
    for entry in [entry for entry in sys.path_importer_cache if ".zip" in entry or ".jar" in entry]:
        del sys.path_importer_cache[entry]


if __name__ == "__main__":
    with suppress(PermissionError):
        os.nice(NICENESS)
    _without_archives()

    from pyspark import daemon
    from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version

    import sink.write.engines.slice_task  # noqa: F401
    from sink.clients.java.loopback_peers import OwnPeersSocket

    # These import modules that compare versions, which takes as long as all other imports.
    require_minimum_pandas_version()
    require_minimum_pyarrow_version()
    # The daemon takes no listening socket, so that it gets another class of them.
    vars(daemon)["socket"] = SimpleNamespace(**{**vars(socket), "socket": OwnPeersSocket})
    daemon.manager()  # type: ignore[no-untyped-call]
