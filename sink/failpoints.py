"""Named places where a test can make a worker die, stop or wait; nothing at all unless the environment asks.

`SINK_FAILPOINTS` is a comma-separated list of `<point>=<action>`, `SINK_FAILPOINTS_DIR` a directory in which each
point leaves a file when it fires; a point fires once for all processes that share the directory. Points are
`<request>.before` and `<request>.after`, for instance `Complete.before`, or `Write:PREPARED.after`;
`Complete.published`, when the bad records are in the errors table, and
`Complete.guarded`, inside the table lock, behind the checks and right before the commit; of a replay of bad records
`Replay.written` and `Replay.committed`, before they are marked. Actions: `kill`
(SIGKILL this process), `stop` (SIGSTOP it), `stop-jvm` (SIGSTOP its JVM), `wait` (until `<point>.go` appears).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from coordination.errors import ConfigError
from coordination.messages import Operation

VARIABLE = "SINK_FAILPOINTS"
DIRECTORY = "SINK_FAILPOINTS_DIR"
_POLL_SECONDS = 0.02


class Failpoints:
    """The points that this process was asked to fire at."""

    def __init__(self, actions: Mapping[str, str], directory: Path) -> None:
        self._actions = actions
        self._directory = directory

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Failpoints:
        """Raises `ConfigError` for an action that does not exist."""
        actions = dict(pair.split("=", 1) for pair in environ.get(VARIABLE, "").split(",") if "=" in pair)
        unknown = sorted(set(actions.values()) - set(_ACTIONS))
        if unknown:
            raise ConfigError(f"{VARIABLE}: no action {', '.join(unknown)}; there are {', '.join(_ACTIONS)}")
        return cls(actions, Path(environ.get(DIRECTORY, ".")))

    def reach(self, operation: Operation, side: str) -> None:
        """`side` is `before` or `after` the operation's effect."""
        if self._actions:
            purpose = getattr(operation, "purpose", "")
            self.at(f"{type(operation).__name__}{':' if purpose else ''}{purpose}.{side}")

    def at(self, point: str) -> None:
        action = self._actions.get(point)
        if action is not None and self._claim(point):
            _ACTIONS[action](self._directory / f"{point}.go")

    def _claim(self, point: str) -> bool:
        try:
            (self._directory / point).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def _kill(_: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(_: Path) -> None:
    """All threads stop, but this one first: sent to the process, the signal could let this one run on for a while."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def _stop_jvm(_: Path) -> None:
    for child in psutil.Process().children(recursive=True):
        if "java" in child.name():
            child.suspend()
            while child.status() != psutil.STATUS_STOPPED:
                time.sleep(_POLL_SECONDS)


def _wait(go: Path) -> None:
    while not go.exists():
        time.sleep(_POLL_SECONDS)


_ACTIONS: Mapping[str, Callable[[Path], None]] = {
    "kill": _kill,
    "stop": _stop,
    "stop-jvm": _stop_jvm,
    "wait": _wait,
}
