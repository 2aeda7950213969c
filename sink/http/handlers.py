"""The addresses, their answers, and the headers that every answer has."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

import structlog
from tornado.http1connection import HTTP1Connection
from tornado.iostream import IOStream, StreamClosedError
from tornado.web import HTTPError, RequestHandler

from sink.http import page
from sink.http.answers import Answer, Answers, UnknownSink, refusal
from sink.http.limits import Limits
from sink.operations.control import VERBS

LOG = structlog.get_logger("sink.worker")
TAKE_SECONDS = 20.0
"""The time that a client has to read an answer."""
_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Handler(RequestHandler):
    """Gives one answer. Refuses a method that the address does not have with 405."""

    SUPPORTED_METHODS: ClassVar[tuple[str, ...]] = ("GET", "HEAD", "POST")  # type: ignore[misc]

    def initialize(self, answers: Answers, limits: Limits, **route_options: str) -> None:
        self.answers, self.limits, self.route_options = answers, limits, route_options

    def prepare(self) -> None:
        self.limits.throttle()
        if (stream := self._stream()) is not None:
            self.limits.busy.add(stream)

    def on_finish(self) -> None:
        if (stream := self._stream()) is not None:
            self.limits.busy.discard(stream)

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        for name, value in _HEADERS.items():
            self.set_header(name, value)

    def argument(self, name: str) -> str:
        return self.get_query_argument(name, "", strip=True)

    async def answer(self, answer: Answer) -> None:
        """Sends the answer. Closes the connection of a client that does not read it in time."""
        body = answer.body
        self.set_status(answer.status)
        self.set_header("Content-Type", answer.content_type)
        self.set_header("Vary", "Accept-Encoding")
        if answer.status == 401:
            self.set_header("WWW-Authenticate", "Bearer")
        if answer.zipped is not None and "gzip" in self.request.headers.get("Accept-Encoding", ""):
            self.set_header("Content-Encoding", "gzip")
            body = answer.zipped
        stream = self._stream()
        if stream is not None:
            self.limits.busy.discard(stream)
        try:
            await asyncio.wait_for(self.finish(body), TAKE_SECONDS)
        except (StreamClosedError, asyncio.TimeoutError):
            if stream is not None:
                stream.close()

    def compute_etag(self) -> None:
        """Sets no ETag: every answer is of its moment."""

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, UnknownSink):
            status_code, sentence = 404, str(error)
        else:
            sentence = self._reason
        self.set_status(status_code)
        self.set_header("Content-Type", "application/json")
        self.finish(refusal(status_code, sentence).body)

    def log_exception(self, _type: Any, value: Any, _traceback: Any) -> None:
        """Logs defects, but not broken requests of clients."""
        if not isinstance(value, HTTPError | UnknownSink | StreamClosedError | asyncio.CancelledError):
            LOG.error("http.answer_failed", path=self.request.path[:100], reason=repr(value)[:300])

    def _stream(self) -> IOStream | None:
        connection = self.request.connection
        return connection.stream if isinstance(connection, HTTP1Connection) else None


class NotFoundHandler(Handler):
    def prepare(self) -> None:
        super().prepare()
        raise HTTPError(404, reason="Not Found")


class QueryHandler(Handler):
    """Answers questions; `route_options["kind"]` is the kind of question."""

    async def get(self) -> None:
        await self.answer(await self.answers.query(self.route_options["kind"], self.argument("sink")))

    head = get


class CommandHandler(Handler):
    async def post(self) -> None:
        authorization = self.request.headers.get("Authorization", "")
        verb = self.route_options["verb"]
        await self.answer(
            await self.answers.perform(verb, self.argument("sink"), self.argument("worker"), authorization)
        )


class PageHandler(Handler):
    async def get(self) -> None:
        self.set_header("Content-Security-Policy", page.POLICY)
        await self.answer(page.ANSWER)

    head = get


QUERIES = ("liveness", "readiness", "coordinator", "health", "status", "history", "overview", "table", "metrics")
ROUTES: tuple[tuple[str, type[Handler], dict[str, str]], ...] = (
    (r"/", PageHandler, {}),
    *((f"/{kind}", QueryHandler, {"kind": kind}) for kind in QUERIES),
    *((f"/{verb}", CommandHandler, {"verb": verb}) for verb in VERBS),
)
