"""A child process that asks Kafka, because librdkafka may abort its process.

librdkafka aborts its process when an assertion fails (docs/decisions/0034). Guarantee: a question is answered or raises
Unavailable in time. If the child ends or hangs, one warning is logged, and the next question starts another child. The
child ends with its parent, also after SIGKILL. The settings go through a socket, so that neither the command line nor
the environment shows them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from typing import Any

import structlog

from coordination.errors import SinkError, Unavailable
from sink.clients.host.child_environment import child_environment

LOG = structlog.get_logger("sink.worker")
GRACE_SECONDS = 5.0
"""Seconds after the child's own time-out until it counts as hung."""


class KafkaChild:
    """Runs `module`, whose main calls `serve`. Not thread-safe."""

    def __init__(self, module: str, settings: Any, timeout: float) -> None:
        """The child gets `settings` first. `timeout` is the time-out of an answer in seconds."""
        self._module = module
        self._settings = settings
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None

    @property
    def pid(self) -> int:
        """The child's process id; 0 if there is none."""
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Starts the child before the first question, without waiting for it. Raises Unavailable."""
        if self._process is not None:
            return
        parent_end, child_end = Pipe()
        command = [sys.executable, "-m", self._module, str(child_end.fileno())]
        try:
            with child_end:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, pass_fds=[child_end.fileno()], env=child_environment({})
                )
            self._connection = parent_end
            parent_end.send(self._settings)
        except OSError as error:
            parent_end.close()
            self.close()
            raise Unavailable(f"the process that asks Kafka cannot be started: {error}") from error

    def ask(self, question: Any) -> Any:
        """Returns the child's answer, or raises the error that it sent."""
        self.start()
        answer = self._ask(question)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        """Ends the child. A later question starts another one."""
        connection, self._connection = self._connection, None
        process, self._process = self._process, None
        if connection is not None:
            connection.close()
        if process is not None:
            process.kill()
            process.wait()

    def _ask(self, question: Any) -> Any:
        assert self._connection is not None
        try:
            self._connection.send(question)
            if self._connection.poll(self._timeout + GRACE_SECONDS):
                return self._connection.recv()
            reason = "gave no answer"
        except (EOFError, OSError):
            reason = f"ended {self._ending()}"
        # A late answer could be mistaken for the next one: use a new connection.
        self.close()
        LOG.warning("kafka.process_ended", reason=reason, action="the next question starts another")
        raise Unavailable(f"the process that asks Kafka {reason}. The sink starts another one.")

    def _ending(self) -> str:
        assert self._process is not None
        try:
            status = self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return "its connection"
        return f"by signal {signal.Signals(-status).name}" if status < 0 else f"with status {status}"


def serve(prepare: Callable[[Any], Callable[[Any], Any]]) -> None:
    """Runs the child: `prepare` takes the settings and returns the function that answers a question."""
    # Only the parent handles Ctrl-C; it still needs answers while it drains.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    questions: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, questions), daemon=True).start()
    answer_question = prepare(questions.get())
    while True:
        connection.send(_answer(answer_question, questions.get()))


def _receive(connection: Connection[Any, Any], questions: SimpleQueue[Any]) -> None:
    """Queues questions, and ends this process at once when the parent ends."""
    try:
        while True:
            questions.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)


def _answer(answer_question: Callable[[Any], Any], question: Any) -> Any:
    try:
        return answer_question(question)
    except SinkError as error:
        return error
    except Exception as error:  # noqa: BLE001 (a defect, which the parent has to see)
        return RuntimeError(repr(error))
