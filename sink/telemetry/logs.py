"""Structured logs: one event per line, on standard error, without secrets.

`configure` routes structlog and the standard library through the same renderer: py4j and confluent-kafka at WARNING and
above, kazoo at ERROR. `identify` names worker and sink in the events of every thread, including threads of libraries.
`bound` adds values (epoch, transaction, ...) to every event in its scope. A `ContextThread` keeps the values of the
thread that starts it, a callable of `in_context` those of the thread that made it. Redaction covers every value,
including the message and the traceback, but no text that is written to standard error directly. Raises nothing: a value
that JSON cannot hold is logged as its `repr`; of an event that cannot be rendered, place and type of the error are.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, ParamSpec, TextIO, TypeVar

import structlog
from structlog.typing import Processor

from sink.telemetry.redaction import Redactor
from sink.telemetry.shown import shown

CONTEXT = ("worker", "sink", "epoch", "transaction")
RUNBOOK = "docs/runbook.md"
THIRD_PARTY_LEVEL = logging.WARNING
_P = ParamSpec("_P")
_R = TypeVar("_R")
_process_context: dict[str, str] = {}
"""Values for threads without a context of their own: those of kazoo, py4j and librdkafka."""


_redactors: list[Redactor] = []
"""The one redactor of this process, once logging is configured."""


def hide(secrets: Iterable[str]) -> None:
    """Keeps `secrets` out of the log from now on, such as those of a sink that was added at run time."""
    for redactor in _redactors:
        redactor.hide(secrets)


def configure(
    level: str = "info",
    form: str = "json",
    redactor: Redactor | None = None,
    stream: TextIO | None = None,
) -> None:
    """Sets up logging for this process; another call replaces it. `level` is that of the sink's own loggers. `form` is
    `json` or `console`.
    """
    _redactors[:] = [redactor or Redactor()]
    _process_context.clear()
    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _add_process_context,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        structlog.stdlib.add_logger_name,
        _redact,
        _add_runbook_page,
        _in_order,
        *([_one_line] if form == "console" else []),
    ]
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=processors,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _renderer(form)],
        )
    )
    logging.basicConfig(level=THIRD_PARTY_LEVEL, handlers=[handler], force=True)
    logging.captureWarnings(True)
    # Kazoo warns at every attempt to connect. sink/clients/zookeeper/session.py warns less often.
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    for name in ("sink", "coordination"):
        logging.getLogger(name).setLevel(level.upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *processors,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=_logger_factory,
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def identify(worker: str, sink: str | None) -> None:
    """Adds worker and sink to every event of this process, unless a thread has bound others. `sink` is None for a
    process with several sinks, whose threads bind their own.
    """
    names = {"worker": worker} if sink is None else {"worker": worker, "sink": sink}
    _process_context.update(names)
    structlog.contextvars.bind_contextvars(**names)


@contextmanager
def bound(**values: Any) -> Iterator[None]:
    """Adds `values` (sink, epoch, transaction, ...) to every event inside. None removes a value that was added so."""
    bound_values = {key: value for key, value in values.items() if value is not None}
    with structlog.contextvars.bound_contextvars(**bound_values):
        structlog.contextvars.unbind_contextvars(*(key for key in values if key not in bound_values))
        yield


def in_context(run: Callable[_P, _R]) -> Callable[_P, _R]:
    """Returns a callable that calls `run` with the values that this thread has now, on any thread. Calls that overlap
    raise RuntimeError.
    """
    context = copy_context()

    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return context.run(run, *args, **kwargs)

    return call


class ContextThread(threading.Thread):
    """A thread whose events carry the values of the thread that starts it."""

    def start(self) -> None:
        self.run = in_context(self.run)  # type: ignore[method-assign]
        super().start()


def _add_process_context(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {**_process_context, **event}


def _logger_factory(*args: Any) -> logging.Logger:
    return logging.getLogger(args[0] if args else "sink")


def _renderer(form: str) -> Processor:
    if form == "json":
        return structlog.processors.JSONRenderer(default=repr)
    return structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0, sort_keys=False)


def _redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    redactor = _redactors[0]
    for key, value in list(event.items()):
        if not key.startswith("_"):
            del event[key]
            event[redactor.text(key)] = redactor.value("" if key == "event" else key, value)
    return event


def runbook_page(event: str) -> str:
    """Returns the anchor in the documentation that explains the event."""
    return f"{RUNBOOK}#{re.sub('[._]', '-', event)}"


def _add_runbook_page(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Adds the runbook's page to the sink's warnings and errors: other events need no action."""
    name = event.get("event")
    if event.get("level") in _EXPLAINED and isinstance(name, str) and _EVENT.fullmatch(name):
        event.setdefault("runbook", runbook_page(name))
    return event


def _in_order(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if "exception" in event:
        event["traceback"] = event.pop("exception")
    leading = [key for key in ("timestamp", "level", "event", "logger", *CONTEXT) if key in event]
    return {key: event[key] for key in [*leading, *(key for key in event if key not in leading)]}


def _one_line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replaces line ends, which would break a line on a console, or forge another, and shows other controls. JSON
    escapes them all."""
    return {shown(key): _shown_value(value) for key, value in event.items()}


def _shown_value(value: Any) -> Any:
    # `repr`, by which the renderer writes everything but text, shows them too.
    return shown(_BREAKS.sub(" | ", value).strip()) if isinstance(value, str) else value


_EXPLAINED = frozenset({"warning", "error", "critical"})
_EVENT = re.compile(r"[a-z]+(\.[a-z_]+)+")

_BREAKS = re.compile(r"[\x0a-\x0d\x1c-\x1e\x85\u2028\u2029]+")


class _Handler(logging.StreamHandler[TextIO]):
    """Names an event that cannot be rendered instead of printing its arguments, which may hold a secret."""

    def handleError(self, record: logging.LogRecord) -> None:
        error_type = sys.exc_info()[0]
        if error_type is not None and not issubclass(error_type, OSError):
            reason = f"event at {record.pathname}:{record.lineno} could not be logged: {error_type.__name__}"
            self.stream.write(json.dumps({"level": "error", "event": reason}) + self.terminator)
