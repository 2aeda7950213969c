"""Named points where a test makes this process die, stop or wait. Does nothing without the environment variables.

`SINK_FAILPOINTS` is a comma-separated list of `<point>=<action>`. `SINK_FAILPOINTS_DIR` is a directory, in which each
point leaves a file when it fires; a point fires once for all processes that share the directory. To arm a point in a
running process, move a file `<point>.armed` there that contains the process id and an action.

Actions: `kill` (SIGKILL this process), `stop` (SIGSTOP it), `stop-jvm` (SIGSTOP its JVM), `wait` (until a file
`<point>.go` exists).

Points:

- every request of a machine: `<request>.before` and `<request>.after`, such as `Begin.before`, `Write:PREPARED.after`;
- a commit: `Errors.written` (bad records are in files of the errors table, not committed), `Complete.published` (they
  are committed), `Complete.guarded` (inside the table lock, after the checks, before the commit);
- a table service: `Clustering.scheduled`, `Compaction.scheduled`, `Metadata.compaction.scheduled`, `Cleaning.scheduled`
  (the plan is on the timeline); `Clustering.written`, `Compaction.written`, `Cleaning.deleted` (not yet completed);
- `sink errors replay`: `Replay.begun` (the instant is begun), `Replay.written` (not yet completed), `Replay.committed`
  (completed, not yet in ZooKeeper); `sink reland`: the same with `Reland`.
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
from coordination.state.messages import Operation

VARIABLE = "SINK_FAILPOINTS"
DIRECTORY = "SINK_FAILPOINTS_DIR"
ARMED = ".armed"
_POLL_SECONDS = 0.02


class Failpoints:
    """The failpoints of this process and their actions."""

    def __init__(self, actions: Mapping[str, str], directory: Path | None) -> None:
        self._actions = actions
        self._directory = directory
        """Holds the points' files; None if no point may fire."""

    @classmethod
    def from_environment(cls) -> Failpoints:
        """Reads the environment; the directory is `.` by default. Raises ConfigError for an unknown action."""
        pairs = [pair.partition("=") for pair in os.environ.get(VARIABLE, "").split(",") if pair]
        actions = {point: action for point, _, action in pairs}
        unknown = sorted(set(actions.values()) - set(_ACTIONS))
        if unknown:
            raise ConfigError(f"{VARIABLE}: no action {', '.join(map(repr, unknown))}. Use {', '.join(_ACTIONS)}.")
        directory = os.environ.get(DIRECTORY, "." if actions else "")
        return cls(actions, Path(directory) if directory else None)

    def reach_operation(self, operation: Operation, side: str) -> None:
        """Fires the operation's point. `side` is `before` or `after` its effect."""
        if self._directory is not None:
            purpose = getattr(operation, "purpose", "")
            self.reach(f"{type(operation).__name__}{':' if purpose else ''}{purpose}.{side}")

    def reach(self, point: str) -> None:
        """Fires the point if it is armed in this process and has not fired yet."""
        if self._directory is None:
            return
        action = self._actions.get(point) or _armed_action(self._directory / f"{point}{ARMED}")
        if action is not None and _claim(self._directory / point):
            _ACTIONS[action](self._directory / f"{point}.go")


def _armed_action(file: Path) -> str | None:
    try:
        process, action = file.read_text().split()
    except FileNotFoundError:
        return None
    return action if int(process) == os.getpid() else None


def _claim(file: Path) -> bool:
    """Creates the file; returns False if it exists, because the point has fired before, maybe in another process."""
    try:
        file.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _kill(_: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(_: Path) -> None:
    """Stops the process. The signal goes to this thread, because another receiver could let this one run on briefly."""
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
