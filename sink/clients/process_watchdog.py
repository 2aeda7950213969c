"""Ends every process of a family when the one that started them is gone, however it went.

Run as `python -m sink.clients.process_watchdog TAG` with a pipe as standard input. When the pipe ends (the starter
exited, or was killed with SIGKILL), every process whose environment carries `SINK_FAMILY=TAG` gets SIGKILL: children,
their JVMs, and what those forked, stopped ones too. The word `keep` on the pipe calls it off. The watchdog
has a session of its own, so that Ctrl-C reaches only the starter. Void when the watchdog itself is killed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import psutil

FAMILY = "SINK_FAMILY"
KEEP = b"keep"
GONE_SECONDS = 10.0
LOOKS = 2
PAUSE_SECONDS = 0.05
"""Between two looks: far longer than the execution of another program takes to set up its environment."""


def family(tag: str) -> Iterator[psutil.Process]:
    """Living processes that carry the tag, but for the one that asks."""
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(FAMILY) == tag:
                yield process
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # ended meanwhile, or somebody else's


def end_family(tag: str) -> None:
    """Sends SIGKILL until two looks in a row find no process. A process that is about to fork may leave a child for the
    next look, and a process that executes another program has no environment for a moment."""
    looks = 0
    while looks < LOOKS:
        if looks:
            time.sleep(PAUSE_SECONDS)
        processes = list(family(tag))
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
    while piece := os.read(0, 64):
        received += piece
    if received != KEEP:
        end_family(tag)


if __name__ == "__main__":
    main()
