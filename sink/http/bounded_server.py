"""Serves routes by HTTP in one thread, within bounds for every client.

Guarantee: no request stops the process. A client has 10 s for headers and for a body, 16 KiB for each, and 20 s to take
an answer. There are at most 64 connections; a new one ends the oldest idle one. The thread takes at most half a core. A
defect in an answer ends that answer. A `Host` that is none of the server's names is refused. Raises nothing.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from socket import socket
from typing import Any, ClassVar, cast

import structlog
from tornado.http1connection import HTTP1Connection, HTTP1ServerConnection
from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream, StreamClosedError
from tornado.web import Application, HTTPError, RequestHandler

from sink.http.answers import HttpResponse, UnknownSink, refusal
from sink.telemetry.known_hosts import KnownHosts, WrongHost
from sink.telemetry.logs import ContextThread

LOG = structlog.get_logger("sink.worker")
MOST_BYTES = 16 * 1024
CLIENT_SECONDS = 10.0
MOST_CONNECTIONS = 64
JOIN_SECONDS = 2.0
SEND_SECONDS = 20.0
"""The time that a client has to read an answer."""
_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
CPU_SHARE = 0.5
"""The share of one core that the server's thread may take, if a request takes less than 0.1 s of CPU."""
MOST_FAILURES, MOST_OF_A_FAILURE = 20, 300
"""Different failures of the loop that are logged, and the characters of each."""
BURST_SECONDS = 0.5
"""CPU seconds that may be used before it sleeps."""
LONGEST_PAUSE_SECONDS = 0.1
"""The longest sleep for one request: longer ones would hold the answers of all others."""


class Connections:
    """`open` has all connections, oldest first; `busy` has those that wait for an answer. One thread uses it."""

    def __init__(self) -> None:
        self.open: dict[IOStream, None] = {}
        self.busy: set[IOStream] = set()
        self._wall, self._used = time.monotonic(), time.thread_time()
        self._budget = BURST_SECONDS

    def throttle(self) -> None:
        """Sleeps if the thread has used more than its share. Call it for each connection and each request."""
        wall, used = time.monotonic(), time.thread_time()
        self._budget = min(BURST_SECONDS, self._budget + (wall - self._wall) * CPU_SHARE) - (used - self._used)
        self._wall, self._used = wall, used
        if self._budget < 0:
            time.sleep(min(LONGEST_PAUSE_SECONDS, -self._budget / CPU_SHARE))


class Handler(RequestHandler):
    """Gives one answer. Refuses a method that the address does not have with 405."""

    SUPPORTED_METHODS: ClassVar[tuple[str, ...]] = ("GET", "HEAD", "POST")  # type: ignore[misc]

    limits: Connections
    hosts: KnownHosts

    def initialize(self, *_: Any, **shared: Any) -> None:
        self.limits, self.hosts = shared["limits"], shared["hosts"]

    def prepare(self) -> None:
        self.limits.throttle()
        stream = self._stream()
        if stream is not None:
            self.limits.busy.add(stream)
        own_address = stream.socket.getsockname()[0] if stream is not None and not stream.closed() else ""
        self.hosts.require(self.request.host, own_address)

    def on_finish(self) -> None:
        if (stream := self._stream()) is not None:
            self.limits.busy.discard(stream)

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        for name, value in _HEADERS.items():
            self.set_header(name, value)

    def argument(self, name: str) -> str:
        return self.get_query_argument(name, "", strip=True)

    async def answer(self, answer: HttpResponse) -> None:
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
            await asyncio.wait_for(self.finish(body), SEND_SECONDS)
        except (StreamClosedError, asyncio.TimeoutError):
            if stream is not None:
                stream.close()

    def compute_etag(self) -> None:
        """Sets no ETag: every answer is of its moment."""

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, UnknownSink):
            status_code, sentence = 404, str(error)
        elif isinstance(error, WrongHost):
            status_code, sentence = 421, str(error)
        else:
            sentence = self._reason
        self.set_status(status_code)
        self.set_header("Content-Type", "application/json")
        self.finish(refusal(status_code, sentence).body)

    def log_exception(self, _type: Any, value: Any, _traceback: Any) -> None:
        """Logs defects, but not broken requests of clients."""
        if not isinstance(value, HTTPError | UnknownSink | WrongHost | StreamClosedError | asyncio.CancelledError):
            LOG.error("http.answer_failed", path=self.request.path[:100], reason=repr(value)[:300])

    def _stream(self) -> IOStream | None:
        connection = self.request.connection
        return connection.stream if isinstance(connection, HTTP1Connection) else None


Route = tuple[str, type[Handler], dict[str, Any]]
"""A path, what answers there, and what that is given."""


class NotFoundHandler(Handler):
    def prepare(self) -> None:
        super().prepare()
        raise HTTPError(404, reason="Not Found")


class BoundedServer(HTTPServer):
    """Closes the oldest idle connection for a new one if there are too many."""

    limits: Connections

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        self.limits.throttle()
        if len(self.limits.open) >= MOST_CONNECTIONS:
            oldest = next((connection for connection in self.limits.open if connection not in self.limits.busy), stream)
            oldest.close()
            if oldest is stream:
                return
            # `on_close` comes later: a burst of connections would find the same oldest one.
            del self.limits.open[oldest]
        self.limits.open[stream] = None
        super().handle_stream(stream, address)

    def on_close(self, server_conn: object) -> None:
        stream = cast(HTTP1ServerConnection, server_conn).stream
        self.limits.open.pop(stream, None)
        self.limits.busy.discard(stream)
        super().on_close(server_conn)


class ServerThread:
    """Serves `routes` at bound `sockets`, from `start` to `close`. `name` is the thread's, and its log's."""

    def __init__(
        self,
        name: str,
        sockets: Sequence[socket],
        routes: Sequence[Route],
        hosts: KnownHosts,
        tls_context: ssl.SSLContext | None = None,
    ) -> None:
        self._sockets, self._routes, self._hosts, self._tls_context = sockets, routes, hosts, tls_context
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._began = threading.Event()
        self._thread = ContextThread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._began.wait(JOIN_SECONDS)
        if self._loop is None or self._ended is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._ended.set)
        except RuntimeError:
            return  # the loop has ended by itself
        self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:  # a defect: the worker goes on without its addresses
            LOG.exception("http.failed")

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self._began.set()
        # Tornado would log the requests of strangers.
        for name in ("tornado.access", "tornado.general", "tornado.application"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        limits = Connections()
        failures: set[str] = set()

        def failed(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            """Says each failure of the loop once: strangers can cause many, and so can a lack of descriptors."""
            failure = repr(context.get("exception") or context["message"])[:MOST_OF_A_FAILURE]
            if failure not in failures and len(failures) < MOST_FAILURES:
                failures.add(failure)
                LOG.warning("http.loop_failed", reason=failure)
            limits.throttle()

        self._loop.set_exception_handler(failed)
        shared = {"limits": limits, "hosts": self._hosts}
        application = Application(
            [(path, handler, {**shared, **options}) for path, handler, options in self._routes],
            default_handler_class=NotFoundHandler,
            default_handler_args=shared,
            log_function=lambda _handler: None,
        )
        server = BoundedServer(
            application,
            ssl_options=self._tls_context,
            idle_connection_timeout=CLIENT_SECONDS,
            body_timeout=CLIENT_SECONDS,
            max_header_size=MOST_BYTES,
            max_body_size=MOST_BYTES,
            max_buffer_size=4 * MOST_BYTES,
        )
        server.limits = limits
        server.add_sockets(self._sockets)
        await self._ended.wait()
        server.stop()
        await asyncio.wait_for(server.close_all_connections(), JOIN_SECONDS)
