"""A child process that can be stopped, killed and paused with all its descendants, and never outlives this process.

Each child leads its own session. Its descendants (a JVM, Spark's Python workers) stay in the session, and get every
signal, too. A watchdog process ends all children when this process ends, also after SIGKILL. A descendant that starts a
new session voids this: `kill` does not find it, but the watchdog does. Raises `Unavailable` if a child does not start.
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

GONE_SECONDS = 10.0
POLL_SECONDS = 0.02
TAIL_LINES = 5
CAUSE = re.compile(r"^Caused by: |(^|\s)(ERROR|FATAL)\s|^\w*Error: ")


class ProcessGroup:
    """All children of this Python process, and the watchdog that ends them when this process ends."""

    def __init__(self) -> None:
        self._tag = ""
        self._owner = 0
        self._watchdog: subprocess.Popen[bytes] | None = None

    def tag(self) -> str:
        """Returns the tag in the environment of every child. Starts the watchdog first; a fork starts its own."""
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
        """Lets the children live on after this process. Returns their tag."""
        if self._watchdog is not None:
            self._watchdog.communicate(KEEP)
            self._watchdog = None
        return self._tag

    def end(self) -> None:
        """Kills every child now."""
        if self._watchdog is not None and self._owner == os.getpid():
            kill_tagged_processes(self._tag)
            self.detach()


CHILDREN = ProcessGroup()


class Child:
    """A child process with all its descendants. Its output is appended to `log`."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        self._arguments = command
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._logged = 0

    def start(self) -> Self:
        if self.running:
            return self
        self.log.parent.mkdir(parents=True, exist_ok=True)
        environment = child_environment({**self._environment, FAMILY: CHILDREN.tag()})
        try:
            with self.log.open("ab") as log:
                self._logged = log.tell()
                self._process = subprocess.Popen(
                    self._arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise Unavailable(f"{self.name} cannot be started: {error}") from error
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
        """Waits until the child ends. Raises `Unavailable` if it does not end in time."""
        if self._process is None:
            raise Unavailable(f"{self.name} was never started")
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise Unavailable(
                f"{self.name} (pid {self.pid}) still runs after {seconds:.0f} s. See {self.log}."
            ) from error

    def terminate(self) -> None:
        """Sends SIGTERM to the child only, like a service manager. Does not wait."""
        self._send(signal.SIGTERM, [self.pid])

    def stop(self, seconds: float = 30.0) -> None:
        """Sends SIGTERM, and after `seconds` SIGKILL to the remaining processes."""
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
        deadline = time.monotonic() + GONE_SECONDS
        while members := self._members():
            self._send(signal.SIGKILL, members)
            self._process.poll()
            if time.monotonic() > deadline:
                raise Unavailable(f"{self.name}: processes {members} do not end on SIGKILL")
            time.sleep(POLL_SECONDS)  # not psutil's wait: it would take the exit status from `subprocess`
        self._process.wait(GONE_SECONDS)

    def pause(self) -> None:
        """Stops the child and its descendants. Returns when none of their threads runs: the signal alone does not wait,
        and a server could still answer."""
        members = self._members()
        self._send(signal.SIGSTOP, members)
        deadline = time.monotonic() + GONE_SECONDS
        while running := [pid for pid in members if _runs(pid)]:
            if time.monotonic() > deadline:
                raise Unavailable(f"{self.name}: processes {running} do not stop on SIGSTOP")
            time.sleep(POLL_SECONDS)

    def resume(self) -> None:
        self._send(signal.SIGCONT, self._members())

    def tail(self) -> str:
        """Returns the end of this run's log for an error message: the last error, else the last lines."""
        if not self.log.is_file():
            return "nothing logged"
        output = self.log.read_bytes()[self._logged :].decode(errors="replace")
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        causes = [line for line in lines if CAUSE.search(line)]
        return " | ".join(causes[-1:] or lines[-TAIL_LINES:]) or "nothing logged"

    def _members(self) -> list[int]:
        """Returns the living processes of the child's session."""
        return [pid for pid in psutil.pids() if self.pid and _session(pid) == self.pid and _lives(pid)]

    def _send(self, number: signal.Signals, pids: Sequence[int]) -> None:
        for pid in pids:
            if pid == self.pid and not self.running:
                continue
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue  # ended meanwhile


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return -1


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _runs(pid: int) -> bool:
    """Returns whether any thread of the process runs."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # the thread has ended meanwhile
            if stat.read_text().rpartition(")")[2].split()[0] not in "TtZX":
                return True
    return False
