"""Ends every process of a family when the one that started them is gone, however it went.

Run as `python -m sink.clients.process_watchdog TAG` with a pipe as standard input. When the pipe ends (the starter
exited, or was killed with SIGKILL), every process whose environment carries `SINK_FAMILY=TAG` gets SIGKILL: children,
their JVMs, and what those forked, stopped ones too. The word `keep` on the pipe calls it off. The watchdog
has a session of its own, so that Ctrl-C reaches only the starter. Void when the watchdog itself is killed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import psutil

FAMILY = "SINK_FAMILY"
KEEP = b"keep"
GONE_SECONDS = 10.0


def family(tag: str) -> Iterator[psutil.Process]:
    """Living processes that carry the tag, but for the one that asks."""
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(FAMILY) == tag:
                yield process
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # ended meanwhile, or somebody else's


def end_family(tag: str) -> None:
    """SIGKILL until none is left: one that is about to fork may leave a child for the next round."""
    while found := list(family(tag)):
        for process in found:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(found, timeout=GONE_SECONDS)


def main() -> None:
    tag = sys.argv[1]
    said = b""
    while piece := os.read(0, 64):
        said += piece
    if said != KEEP:
        end_family(tag)


if __name__ == "__main__":
    main()
