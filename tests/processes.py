"""The processes below one, as a test sees them: Spark starts and ends Python workers all the time."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil


def family(pid: int) -> dict[int, str]:
    """Process id and command line of the process and of all below it; one that ends meanwhile is left out."""
    found = {}
    parent = psutil.Process(pid)
    for process in (parent, *parent.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            found[process.pid] = " ".join(process.cmdline())
    return found


def python_workers() -> list[int]:
    """The Python workers of the Spark in this process: the daemon that tasks are forked from, and the tasks."""
    return [pid for pid, command in family(os.getpid()).items() if "-m sink.write.daemon" in command]


def peak_megabytes(pid: int) -> int:
    """The most memory that the process ever had resident; 0 when it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    kilobytes = status.partition("VmHWM:")[2].split()  # one that waits for its parent has no such line
    return int(kilobytes[0]) // 1024 if kilobytes else 0
