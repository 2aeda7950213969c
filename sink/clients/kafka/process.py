"""Asks the Kafka brokers for views in a process of its own.

Guarantee: views and their errors are those of `sink.clients.kafka.log.Log`. The process tries each view once, so that
topics that do not settle keep it from no other sink. If the process ends or hangs during a view, the view raises
Unavailable, and the next one starts another process (`sink.clients.kafka.child`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from coordination.state.model import LogView
from sink.clients.kafka.child import KafkaChild, serve
from sink.clients.kafka.log import TIMEOUT_SECONDS, Log

_Question = tuple[tuple[str, ...] | None, str | None, tuple[str, ...]]
"""The topics of a view, None for a list of topics; the pattern; and the optional topics."""


class LogProcess(KafkaChild):
    """A `Log` in a child process. Not thread-safe: see `sink.clients.kafka.shared_log`."""

    def __init__(self, native: Mapping[str, str], timeout: float = TIMEOUT_SECONDS) -> None:
        """`native` are librdkafka's settings. `timeout` bounds one question, in seconds."""
        super().__init__(__name__, (dict(native), timeout), timeout)

    def view_once(self, topics: Sequence[str], pattern: str | None = None, optional: Sequence[str] = ()) -> LogView:
        """Takes a view, like `Log.view_once`."""
        view = self.ask((tuple(topics), pattern, tuple(optional)))
        assert isinstance(view, LogView)
        return view

    def topics(self, pattern: str | None = None) -> tuple[str, ...]:
        """Lists topics, like `Log.topics`."""
        names = self.ask((None, pattern, ()))
        assert isinstance(names, tuple)
        return names


def _prepare(settings: tuple[Mapping[str, str], float]) -> Callable[[_Question], LogView | tuple[str, ...]]:
    log = Log(*settings)

    def answer(question: _Question) -> LogView | tuple[str, ...]:
        topics, pattern, optional = question
        return log.topics(pattern) if topics is None else log.view_once(topics, pattern, optional)

    return answer


if __name__ == "__main__":
    serve(_prepare)
