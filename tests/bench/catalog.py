"""A PostgreSQL server for the catalogue of a peer that needs one: a file does not serve several writers at once.

Raises `Unavailable` when the server's programs are not there, or do not start.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coordination.errors import Unavailable
from sink.devtools.local.child_process import Child
from sink.devtools.local.servers import LOOPBACK, free_ports

DRIVER = "org.postgresql:postgresql:42.7.7"
OWNER = "nobody"
"""The user that runs PostgreSQL when root runs the bench: PostgreSQL refuses root."""
START_SECONDS = 60.0


@contextmanager
def postgres(log: Path, schema: str) -> Iterator[str]:
    """Yields the JDBC address of a new database with this schema."""
    missing = [name for name in ("initdb", "postgres", "psql") if not shutil.which(name)]
    if missing:
        raise Unavailable(f"not on the path: {', '.join(missing)}. Install PostgreSQL for the peer's catalogue.")
    as_owner: list[str] = []
    if root := os.geteuid() == 0:
        as_owner = ["setpriv", f"--reuid={OWNER}", f"--regid={pwd.getpwnam(OWNER).pw_gid}", "--clear-groups"]
    # Outside the bench's directory, which `OWNER` may be unable to enter.
    directory = tempfile.mkdtemp(prefix="sink-catalog-")
    if root:
        shutil.chown(directory, OWNER)
    port = str(free_ports(1)[0])
    child = Child(
        "postgres", [*as_owner, "postgres", "-D", f"{directory}/data", "-h", LOOPBACK, "-p", port, "-k", ""], log
    )
    psql = ["psql", "-h", LOOPBACK, "-p", port, "-U", "bench", "-v", "ON_ERROR_STOP=1", "-q", "-c"]
    try:
        _run([*as_owner, "initdb", "-D", f"{directory}/data", "-U", "bench", "-A", "trust", "-E", "UTF8"], directory)
        child.start()
        _await(child, [*psql, "SELECT 1", "postgres"])
        _run([*psql, schema, "postgres"], directory)
        yield f"jdbc:postgresql://{LOOPBACK}:{port}/postgres"
    finally:
        child.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _await(child: Child, query: list[str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while subprocess.run(query, capture_output=True, check=False).returncode:
        if not child.running or time.monotonic() > deadline:
            raise Unavailable(f"PostgreSQL did not start: {child.tail()} (log: {child.log})")
        time.sleep(0.1)


def _run(command: list[str], directory: str) -> None:
    completed = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if completed.returncode:
        raise Unavailable(f"{command[0]} failed: {completed.stderr.strip()}")
