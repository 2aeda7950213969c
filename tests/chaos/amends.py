"""An operator's repairs, for harm that no fleet gets over by itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sink.clients.child_process import child_environment
from tests.chaos.arena import Arena


@contextmanager
def halting(arena: Arena, goes_on_from: str) -> Iterator[None]:
    """For harm that halts the sink, and takes an operator who resets it: all that was sent is in the table by then."""
    with arena.workload.held():
        arena.fleet.wait_landed(arena.workload.ends)
        yield
        arena.fleet.wait("the sink halts", lambda view: view.halt is not None)
        reset(arena, "--to", goes_on_from)
        arena.workload.ends.clear()


def reset(arena: Arena, *options: str) -> None:
    """Stop all workers, wait until they are gone, reset."""
    for name in arena.names:
        arena.worker(name).stop()
    arena.await_nobody()
    command = [sys.executable, "-m", "sink.cli", "reset", "--config", str(arena.worker(arena.names[0]).config)]
    subprocess.run([*command, *options, "--yes"], check=True, stdout=subprocess.DEVNULL, env=child_environment({}))
