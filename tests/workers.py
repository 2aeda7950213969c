"""Worker processes whose parts get signals. Raises `Unavailable` for a process that does not exist."""

from __future__ import annotations

import signal
from enum import Enum

import psutil

from coordination.errors import Unavailable
from sink.devtools.local import workers


class Part(Enum):
    """The processes of a worker that get a signal."""

    PYTHON = "PYTHON"
    JVM = "JVM"
    GROUP = "GROUP"


class WorkerProcess(workers.LocalWorker):
    @property
    def jvm_pid(self) -> int | None:
        """The process id of the JVM of the worker's Spark driver; None if there is none now."""
        for pid in self._members():
            try:
                if "org.apache.spark.deploy.SparkSubmit" in psutil.Process(pid).cmdline():
                    return pid
            except psutil.NoSuchProcess:
                continue
        return None

    def signal(self, number: signal.Signals, part: Part = Part.GROUP) -> None:
        """Sends a signal to the part. Raises `Unavailable` if there is no such process."""
        if part is Part.GROUP:
            self._send(number, self._members())
            return
        pid = self.pid if part is Part.PYTHON else self.jvm_pid
        if not pid:
            raise Unavailable(f"{self.name} has no {part.value} process")
        self._send(number, [pid])

    def kill_part(self, part: Part) -> None:
        self.signal(signal.SIGKILL, part)

    def pause_part(self, part: Part) -> None:
        self.signal(signal.SIGSTOP, part)
