"""A small disk that refuses writes: full, or read-only. Mounting it needs root."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import eventually

CHUNK = bytes(65536)


@contextmanager
def small_disk(directory: Path, size: str) -> Iterator[Path]:
    """Makes the directory, a file system of its own while the context lasts. Skips the test that may not mount one."""
    directory.mkdir()
    if not mount_small(directory, size):
        pytest.skip("mounting a small file system needs root: sudo make test-all")
    try:
        yield directory
    finally:
        unmount(directory)


def mount_small(directory: Path, size: str) -> bool:
    """Mounts an empty file system of that size, which the caller unmounts. Returns whether that succeeded."""
    return _mount("-t", "tmpfs", "-o", f"size={size}", "sink-test", str(directory))


def unmount(directory: Path) -> None:
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


class FullDisk:
    """Fills the disk from `begin` to `end`."""

    error = "No space left on device"

    def __init__(self, disk: Path) -> None:
        self._filler = disk / "filler"

    def begin(self) -> None:
        with self._filler.open("wb", buffering=0) as file:
            try:
                while file.write(CHUNK):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def end(self) -> None:
        self._filler.unlink()


class ReadOnlyDisk:
    """Remounts the disk read-only from `begin` to `end`. `begin` raises AssertionError after so many seconds."""

    error = "Read-only file system"

    def __init__(self, disk: Path, seconds: float = 60.0) -> None:
        self._disk = str(disk)
        self._seconds = seconds

    def begin(self) -> None:
        # The kernel refuses while a file is open for writing.
        eventually("the disk is read-only", lambda: _mount("-o", "remount,ro", self._disk), self._seconds)

    def end(self) -> None:
        if not _mount("-o", "remount,rw", self._disk):
            raise OSError(f"{self._disk} cannot be made writable again")


def _mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0
