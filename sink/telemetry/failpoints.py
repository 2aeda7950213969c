"""Named points where a test can make a worker die, stop or wait. Without the environment variables they do nothing.

`SINK_FAILPOINTS` is a comma-separated list of `<point>=<action>`, `SINK_FAILPOINTS_DIR` a directory in which each
point leaves a file when it fires; a point fires once for all processes that share the directory. A file
`<point>.armed` there, with a process id and an action, arms the point in a running process. Points are
`<request>.before` and `<request>.after`, for instance `Complete.before`, or `Write:PREPARED.after`;
`Errors.written`, when the errors table has the files of bad records and not yet their commit, `Complete.published`,
when it has the commit too, and `Complete.guarded`, inside the table lock, after the checks and right before the commit;
for table services `Clustering.scheduled`, `Compaction.scheduled` and `Metadata.compaction.scheduled`, after the plan,
and `Clustering.written` and `Compaction.written`, before the completion;
for a replay of bad records `Replay.begun`, `Replay.written` and `Replay.committed`, after the instant was begun, before
it is completed, and before ZooKeeper knows of it, and for `sink reland` the same of `Reland`. Actions: `kill` (SIGKILL
this process), `stop` (SIGSTOP it), `stop-jvm` (SIGSTOP its JVM), `wait` (until `<point>.go` appears).
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
    """The points at which this process fires."""

    def __init__(self, actions: Mapping[str, str], directory: Path | None) -> None:
        self._actions = actions
        self._directory = directory
        """None: no point ever fires."""

    @classmethod
    def from_environment(cls) -> Failpoints:
        """Raises `ConfigError` for an action that does not exist."""
        actions = dict(pair.split("=", 1) for pair in os.environ.get(VARIABLE, "").split(",") if "=" in pair)
        unknown = sorted(set(actions.values()) - set(_ACTIONS))
        if unknown:
            raise ConfigError(f"{VARIABLE}: no action {', '.join(unknown)}. There are {', '.join(_ACTIONS)}.")
        directory = os.environ.get(DIRECTORY, "." if actions else "")
        return cls(actions, Path(directory) if directory else None)

    def reach_operation(self, operation: Operation, side: str) -> None:
        """Fires the operation's point. `side` is `before` or `after` its effect."""
        if self._directory is not None:
            purpose = getattr(operation, "purpose", "")
            self.reach(f"{type(operation).__name__}{':' if purpose else ''}{purpose}.{side}")

    def reach(self, point: str) -> None:
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
    try:
        file.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _kill(_: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(_: Path) -> None:
    """Stops all threads, this one first: a signal to the process could let this thread run on for a while."""
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
