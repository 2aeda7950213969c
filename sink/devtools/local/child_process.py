"""A child process that can be killed and paused with all its descendants, and does not outlive this process.

Each child leads a session of its own. `kill`, `pause` and `resume` reach all processes of the session: also a JVM and
Spark's Python workers. They miss a descendant that starts a session of its own. A watchdog process kills all children
and all descendants when this process ends, also by SIGKILL: it finds them by a tag in their environment. Raises
Unavailable if a child does not start, or does not end or stop in time.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
from typing_extensions import Self

from coordination.errors import Unavailable
from sink.clients.host.child_environment import FAMILY, child_environment
from sink.devtools.local.process_watchdog import KEEP, kill_tagged_processes

_SIGNAL_SECONDS = 10.0
"""The longest that processes may take to end after SIGKILL, or to stop after SIGSTOP."""
_POLL_SECONDS = 0.02
_TAIL_LINES = 5
_CAUSE = re.compile(r"^Caused by: |(^|\s)(ERROR|FATAL)\s|^\w*Error: ")
"""A line of Java's or Python's that names an error."""


class ProcessGroup:
    """All children of this Python process, and the watchdog that ends them when this process ends."""

    def __init__(self) -> None:
        self._tag = ""
        self._owner = 0
        self._watchdog: subprocess.Popen[bytes] | None = None

    def tag(self) -> str:
        """Returns the tag that belongs into the environment of every child. Starts the watchdog if this process has
        none yet; a fork does not use its parent's.
        """
        if self._watchdog is None or self._owner != os.getpid():
            self._tag, self._owner = uuid.uuid4().hex, os.getpid()
            self._watchdog = subprocess.Popen(
                [sys.executable, "-m", "sink.devtools.local.process_watchdog", self._tag],
                stdin=subprocess.PIPE,
                env=child_environment({}),
                start_new_session=True,
            )
            atexit.register(self.end)
        return self._tag

    def detach(self) -> str:
        """Ends the watchdog, so that the children outlive this process. Returns their tag, by which
        `kill_tagged_processes` finds them.
        """
        if self._watchdog is not None:
            self._watchdog.communicate(KEEP)
            self._watchdog = None
        return self._tag

    def end(self) -> None:
        """Kills all children and their descendants, and ends the watchdog. Does nothing in a fork."""
        if self._watchdog is not None and self._owner == os.getpid():
            kill_tagged_processes(self._tag)
            self.detach()


CHILDREN = ProcessGroup()


class Child:
    """A child process with all its descendants. Its output is appended to the file `log`. `environment` is added to
    that of `child_environment`.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        self._arguments = command
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        """Where the output of the newest run begins in the log, in bytes."""

    def start(self) -> Self:
        """Starts the child, again if it has ended. Does nothing while it runs."""
        if self.running:
            return self
        self.log.parent.mkdir(parents=True, exist_ok=True)
        environment = child_environment({**self._environment, FAMILY: CHILDREN.tag()})
        try:
            with self.log.open("ab") as log:
                self._log_start = log.tell()
                self._process = subprocess.Popen(
                    self._arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise Unavailable(f"{self.name} cannot be started: {error}. Check its command.") from error
        return self

    @property
    def pid(self) -> int:
        """The child's process id, also after it ended; 0 before the first start."""
        return self._process.pid if self._process else 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_status(self) -> int | None:
        """The exit status; None while the child runs. A negative number is the signal that ended it."""
        return self._process.poll() if self._process else None

    def wait(self, seconds: float) -> int:
        """Waits until the child ends. Returns its exit status. Raises Unavailable if it does not end in time."""
        if self._process is None:
            raise Unavailable(f"{self.name} was never started. Start it first.")
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise Unavailable(
                f"{self.name} (pid {self.pid}) still runs after {seconds:.0f} s. See {self.log}."
            ) from error

    def terminate(self) -> None:
        """Sends SIGTERM to the child alone, which has to end its descendants. Does not wait."""
        self._send(signal.SIGTERM, [self.pid])

    def stop(self, seconds: float = 30.0) -> None:
        """Resumes the child, sends it SIGTERM, and kills what is left once it has ended, or after `seconds`."""
        if self.running:
            self.resume()
            self.terminate()
            with contextlib.suppress(Unavailable):  # killed below
                self.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """Sends SIGKILL to the child and its descendants. Returns when they have ended."""
        if self._process is None:
            return
        deadline = time.monotonic() + _SIGNAL_SECONDS
        while members := self._members():
            self._send(signal.SIGKILL, members)
            self._process.poll()
            if time.monotonic() > deadline:
                raise Unavailable(f"{self.name}: processes {members} do not end on SIGKILL. Check this machine's I/O.")
            time.sleep(_POLL_SECONDS)  # not psutil's wait: it would take the exit status from `subprocess`
        self._process.wait(_SIGNAL_SECONDS)

    def pause(self) -> None:
        """Sends SIGSTOP to the child and its descendants. Returns when none of their threads runs: the signal does not
        wait for that, and a server could still answer.
        """
        members = self._members()
        self._send(signal.SIGSTOP, members)
        deadline = time.monotonic() + _SIGNAL_SECONDS
        while running := [pid for pid in members if _runs(pid)]:
            if time.monotonic() > deadline:
                raise Unavailable(f"{self.name}: processes {running} do not stop on SIGSTOP. Check this machine's I/O.")
            time.sleep(_POLL_SECONDS)

    def resume(self) -> None:
        """Sends SIGCONT to the child and its descendants."""
        self._send(signal.SIGCONT, self._members())

    def tail(self) -> str:
        """Returns one line for an error message: the last line of this run's log that names an error, else the last
        few lines.
        """
        if not self.log.is_file():
            return "nothing logged"
        output = self.log.read_bytes()[self._log_start :].decode(errors="replace")
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        causes = [line for line in lines if _CAUSE.search(line)]
        return " | ".join(causes[-1:] or lines[-_TAIL_LINES:]) or "nothing logged"

    def _members(self) -> list[int]:
        """Returns the ids of the living processes of the child's session, the child's own included."""
        return [pid for pid in psutil.pids() if self.pid and _session(pid) == self.pid and _lives(pid)]

    def _send(self, number: signal.Signals, pids: Sequence[int]) -> None:
        for pid in pids:
            if pid == self.pid and not self.running:
                continue  # `running` has collected the exit status: another process may have this id by now
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue  # ended meanwhile


def _session(pid: int) -> int:
    """Returns the session's id, which is its leader's process id; -1 for a process that has ended."""
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return -1


def _lives(pid: int) -> bool:
    """Returns whether the process exists and is not a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _runs(pid: int) -> bool:
    """Returns whether any thread of the process runs."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # the thread has ended meanwhile
            # The state follows the name, which is in brackets: T and t are stopped, Z and X have ended.
            if stat.read_text().rpartition(")")[2].split()[0] not in "TtZX":
                return True
    return False
