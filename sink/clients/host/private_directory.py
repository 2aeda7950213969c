"""Directories for temporary files of this process and its JVM that no other user can read or enter.

Spark, Hadoop and libraries of Java write blocks of data, broadcasts with secrets and native code below the system's
temporary directory, readable by everybody, some under names that another user can take first. Guarantee: each
directory is new, belongs to this user and has mode 0700. It is removed when the process ends, or, after a crash, when
the next process makes one at the same place. A process of the same user, and root, void this. Raises ConfigError.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

from coordination.errors import ConfigError

PREFIX = "sink-private-"
_LOCK = "lock"

_held_locks: list[IO[bytes]] = []


def private_directory(parent: str = "") -> Path:
    """Returns this process's directory in `parent`, by default in the system's temporary directory."""
    return _directory_in(Path(parent or tempfile.gettempdir()))


@cache
def _directory_in(place: Path) -> Path:
    _remove_leftovers(place)
    try:
        directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place)).absolute()
        lock = (directory / _LOCK).open("wb")
    except OSError as error:
        raise ConfigError(
            f"{place}: no directory for temporary files can be made there ({error.strerror}). Set TMPDIR or"
            " spark.local.dir to a writable directory."
        ) from None
    fcntl.flock(lock, fcntl.LOCK_EX)
    _held_locks.append(lock)
    atexit.register(_remove, directory, os.getpid())
    return directory


def private_directories(parents: Iterable[str]) -> list[Path]:
    """Returns a directory in each of `parents` that is writable, else in the first; without `parents` the default."""
    named = [parent for parent in map(str.strip, parents) if parent]
    writable = [parent for parent in named if os.access(parent, os.W_OK | os.X_OK)]
    return [private_directory(parent) for parent in writable or named[:1] or [""]]


def _remove(directory: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(directory, ignore_errors=True)


def _remove_leftovers(place: Path) -> None:
    """Removes directories of processes that have ended. Each holds a lock on its directory as long as it runs."""
    for directory in place.glob(f"{PREFIX}*"):
        with suppress(OSError):
            status = directory.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            with (directory / _LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
