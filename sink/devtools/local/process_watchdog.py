"""Kills all descendants of a process when that process ends, also after SIGKILL.

The process runs `python -m sink.devtools.local.process_watchdog TAG` with a pipe as standard input. When the pipe ends,
every process with `SINK_FAMILY=TAG` in its environment gets SIGKILL: children, their JVMs and their descendants, also
stopped ones. The word `keep` on the pipe cancels that. The watchdog has its own session, so that Ctrl-C does not reach
it. Killing the watchdog itself voids the guarantee.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import psutil

from sink.clients.host.child_environment import FAMILY

KEEP = b"keep"
GONE_SECONDS = 10.0
LOOKS = 2
PAUSE_SECONDS = 0.05
"""Seconds between two looks: far longer than a process that executes another program is without an environment."""


def tagged_processes(tag: str) -> Iterator[psutil.Process]:
    """Yields the living processes with the tag, except this one."""
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(FAMILY) == tag:
                yield process
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # the process has ended, or belongs to another user


def kill_tagged_processes(tag: str) -> None:
    """Sends SIGKILL until two looks in a row find no process. A process that is about to fork may leave a child for the
    next look, and a process that executes another program has no environment for a moment."""
    looks = 0
    while looks < LOOKS:
        if looks:
            time.sleep(PAUSE_SECONDS)
        processes = list(tagged_processes(tag))
        looks = 0 if processes else looks + 1
        for process in processes:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(processes, timeout=GONE_SECONDS)


def main() -> None:
    tag = sys.argv[1]
    received = b""
    while chunk := os.read(0, 64):
        received += chunk
    if received != KEEP:
        kill_tagged_processes(tag)


if __name__ == "__main__":
    main()
