"""The processes below a process: Spark starts and ends Python workers all the time."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil


def process_commands(pid: int) -> dict[int, str]:
    """Returns command lines by process id, of the process and of all below it, except those that end meanwhile."""
    commands = {}
    parent = psutil.Process(pid)
    for process in (parent, *parent.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            commands[process.pid] = " ".join(process.cmdline())
    return commands


def python_workers() -> list[int]:
    """Returns process ids of this process's Spark: the Python daemon that tasks are forked from, and the tasks."""
    return [pid for pid, command in process_commands(os.getpid()).items() if "-m sink.write.engines.daemon" in command]


def peak_megabytes(pid: int) -> int:
    """Returns the most memory that the process ever had resident; 0 when it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    kilobytes = status.partition("VmHWM:")[2].split()  # a zombie has no such line
    return int(kilobytes[0]) // 1024 if kilobytes else 0
