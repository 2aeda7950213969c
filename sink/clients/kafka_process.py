"""Asks the Kafka brokers in a process of its own, so that librdkafka can end that process only.

librdkafka ends its whole process when one of its assertions fails, and its admin API has one that an answer of a
broker can violate (docs/decisions/0034). Guarantee: a view, and every error of one, is that of
`sink.clients.kafka.Log`. If the process ends or hangs during a view, the view raises Unavailable, the end is logged
once, and the next view starts another process. The process ends with its parent, also when that is killed. The settings
go through a socket: neither the command line nor the environment shows them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from typing import Any

import structlog

from coordination.errors import SinkError, Unavailable
from coordination.state.model import LogView
from sink.clients.child_process import child_environment
from sink.clients.kafka import TIMEOUT_SECONDS, KafkaSettings, Log

LOG = structlog.get_logger("sink.worker")
GRACE_SECONDS = 5.0
"""Seconds that a view may take beyond its own bound before the process counts as hung."""

_Question = tuple[tuple[str, ...] | None, str | None]
"""The topics of a view, None for a list of topics; and the pattern."""


class LogProcess:
    """A `Log` in a child process. Views of several threads come one after the other."""

    def __init__(self, settings: KafkaSettings | Mapping[str, str], timeout: float = TIMEOUT_SECONDS) -> None:
        """`timeout` bounds one view, in seconds."""
        self._native = dict(settings if isinstance(settings, Mapping) else settings.kafka_native)
        self._timeout = timeout
        self._viewing = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None

    @property
    def pid(self) -> int:
        """The child's process id; 0 if there is none."""
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Starts the child ahead of the first view. Does not wait for it. Raises Unavailable."""
        if self._process is not None:
            return
        ours, theirs = Pipe()
        command = [sys.executable, "-m", "sink.clients.kafka_process", str(theirs.fileno())]
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=child_environment({})
                )
            self._connection = ours
            ours.send((self._native, self._timeout))
        except OSError as error:
            ours.close()
            self.close()
            raise Unavailable(f"the process that asks Kafka cannot be started: {error}") from error

    def view(self, topics: Sequence[str], pattern: str | None = None) -> LogView:
        """As `Log.view`."""
        answer = self._answer((tuple(topics), pattern))
        assert isinstance(answer, LogView)
        return answer

    def topics(self, pattern: str | None = None) -> tuple[str, ...]:
        """As `Log.topics`."""
        answer = self._answer((None, pattern))
        assert isinstance(answer, tuple)
        return answer

    def close(self) -> None:
        """Ends the child. A later view starts another one."""
        connection, self._connection = self._connection, None
        process, self._process = self._process, None
        if connection is not None:
            connection.close()
        if process is not None:
            process.kill()
            process.wait()

    def _answer(self, question: _Question) -> Any:
        with self._viewing:
            self.start()
            answer = self._ask(question)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _ask(self, question: _Question) -> Any:
        assert self._connection is not None
        try:
            self._connection.send(question)
            if self._connection.poll(self._timeout + GRACE_SECONDS):
                return self._connection.recv()
            reason = "gave no answer"
        except (EOFError, OSError):
            reason = f"ended {self._ending()}"
        # Without its answer, the connection cannot be used for another view.
        self.close()
        LOG.warning("kafka.process_ended", reason=reason, action="the next view starts another")
        raise Unavailable(f"the process that asks Kafka {reason}; it is started again")

    def _ending(self) -> str:
        assert self._process is not None
        try:
            status = self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return "its connection"
        return f"by signal {signal.Signals(-status).name}" if status < 0 else f"with status {status}"


def main() -> None:
    # Ctrl-C is meant for the parent, which still needs answers while it drains.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    received: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, received), daemon=True).start()
    native, timeout = received.get()
    log = Log(native, timeout)
    while True:
        connection.send(_answer(log, received.get()))


def _receive(connection: Connection[Any, Any], received: SimpleQueue[Any]) -> None:
    """Ends this process when the parent is gone, whatever it is doing."""
    try:
        while True:
            received.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)


def _answer(log: Log, question: _Question) -> LogView | tuple[str, ...] | Exception:
    topics, pattern = question
    try:
        return log.topics(pattern) if topics is None else log.view(topics, pattern)
    except SinkError as error:
        return error
    except Exception as error:  # noqa: BLE001 (a defect, which the parent has to see)
        return RuntimeError(repr(error))


if __name__ == "__main__":
    main()
