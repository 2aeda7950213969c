"""A PostgreSQL server of its own, for the catalogue of a peer that has to have one: a file is too little for
several writers at once.

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
from sink.clients.child_process import Child
from sink.devtools.local.servers import LOOPBACK, free_ports

DRIVER = "org.postgresql:postgresql:42.7.7"
OWNER = "nobody"
"""The user that runs PostgreSQL when root runs the bench: PostgreSQL refuses root."""
START_SECONDS = 60.0


@contextmanager
def postgres(log: Path, schema: str) -> Iterator[str]:
    """A JDBC address of an empty database with this schema."""
    missing = [name for name in ("initdb", "postgres", "psql") if not shutil.which(name)]
    if missing:
        raise Unavailable(f"not on the path: {', '.join(missing)}. Install PostgreSQL for the peer's catalogue.")
    as_owner: list[str] = []
    if root := os.geteuid() == 0:
        as_owner = ["setpriv", f"--reuid={OWNER}", f"--regid={pwd.getpwnam(OWNER).pw_gid}", "--clear-groups"]
    # Not in the bench's own directory, which the owner may be unable to enter.
    place = tempfile.mkdtemp(prefix="sink-catalog-")
    if root:
        shutil.chown(place, OWNER)
    port = str(free_ports(1)[0])
    child = Child("postgres", [*as_owner, "postgres", "-D", f"{place}/data", "-h", LOOPBACK, "-p", port, "-k", ""], log)
    ask = ["psql", "-h", LOOPBACK, "-p", port, "-U", "bench", "-v", "ON_ERROR_STOP=1", "-q", "-c"]
    try:
        _run([*as_owner, "initdb", "-D", f"{place}/data", "-U", "bench", "-A", "trust", "-E", "UTF8"], place)
        child.start()
        _await(child, [*ask, "SELECT 1", "postgres"])
        _run([*ask, schema, "postgres"], place)
        yield f"jdbc:postgresql://{LOOPBACK}:{port}/postgres"
    finally:
        child.stop()
        shutil.rmtree(place, ignore_errors=True)


def _await(child: Child, question: list[str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while subprocess.run(question, capture_output=True, check=False).returncode:
        if not child.running or time.monotonic() > deadline:
            raise Unavailable(f"PostgreSQL did not start: {child.tail()} (log: {child.log})")
        time.sleep(0.1)


def _run(command: list[str], place: str) -> None:
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{command[0]} failed: {done.stderr.strip()}")
