"""An operator's repairs, for harm that a fleet cannot repair by itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

from sink.clients.host.child_environment import child_environment
from tests.chaos.arena import Arena


@contextmanager
def halting(arena: Arena, reset_to: str) -> Iterator[None]:
    """Surrounds harm that halts the sink. Everything sent has landed before; afterwards an operator resets the sink. To
    `latest` where the log no longer has what has landed."""
    with arena.workload.paused():
        arena.fleet.wait_landed(arena.workload.end_offsets)
        yield
        arena.fleet.wait("the sink halts", lambda view: view.halt is not None)
        reset(arena, "--to", reset_to)
        if reset_to == "latest":
            arena.log_changed_at = f"{datetime.now(timezone.utc):%Y%m%d%H%M%S}000"
        arena.workload.end_offsets.clear()


def reset(arena: Arena, *options: str) -> None:
    """Stops all workers, waits until their sessions have ended, and resets the sink."""
    for name in arena.names:
        arena.worker(name).stop()
    arena.await_no_workers()
    command = [sys.executable, "-m", "sink.cli", "reset", "--config", str(arena.worker(arena.names[0]).config)]
    subprocess.run([*command, *options, "--yes"], check=True, stdout=subprocess.DEVNULL, env=child_environment({}))
