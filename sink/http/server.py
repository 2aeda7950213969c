"""Serves a worker's addresses and its page by HTTP, in one thread.

Guarantee: no request stops the worker. A client has 10 s for headers and for a body, 16 KiB for each, and 20 s to take
an answer. There are at most 64 connections; a new one ends the oldest idle one. The thread takes at most half a core. A
defect in an answer ends that answer. Raises ConfigError for an address or a certificate that cannot be used.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
import time
from collections.abc import Mapping
from socket import socket
from typing import Any, ClassVar, cast

import structlog
from tornado.http1connection import HTTP1Connection, HTTP1ServerConnection
from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream, StreamClosedError
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

from coordination.errors import ConfigError
from sink.config import ProcessSettings
from sink.http import page
from sink.http.answers import Answer, Answers, UnknownSink, refusal
from sink.http.facts import WorkerFacts
from sink.operations.control import VERBS
from sink.telemetry.known_hosts import KnownHosts, WrongHost
from sink.telemetry.logs import ContextThread

LOG = structlog.get_logger("sink.worker")
MOST_BYTES = 16 * 1024
CLIENT_SECONDS = 10.0
MOST_CONNECTIONS = 64
JOIN_SECONDS = 2.0
TAKE_SECONDS = 20.0
"""The time that a client has to read an answer."""
_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
SHARE = 0.5
"""The share of one core that the server's thread may take."""
BURST_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 0.1


class Limits:
    """`open` has all connections, oldest first; `busy` has those that wait for an answer. One thread uses it."""

    def __init__(self) -> None:
        self.open: dict[IOStream, None] = {}
        self.busy: set[IOStream] = set()
        self._wall, self._used = time.monotonic(), time.thread_time()
        self._budget = BURST_SECONDS

    def throttle(self) -> None:
        """Sleeps if the thread has used more than its share. Call it for each connection and each request."""
        wall, used = time.monotonic(), time.thread_time()
        self._budget = min(BURST_SECONDS, self._budget + (wall - self._wall) * SHARE) - (used - self._used)
        self._wall, self._used = wall, used
        if self._budget < 0:
            time.sleep(min(LONGEST_PAUSE_SECONDS, -self._budget / SHARE))


class Handler(RequestHandler):
    """Gives one answer. Refuses a method that the address does not have with 405."""

    SUPPORTED_METHODS: ClassVar[tuple[str, ...]] = ("GET", "HEAD", "POST")  # type: ignore[misc]

    def initialize(self, answers: Answers, limits: Limits, hosts: KnownHosts, **route_options: str) -> None:
        self.answers, self.limits, self.hosts, self.route_options = answers, limits, hosts, route_options

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


class WorkerHttp:
    """`start` binds and serves until `close`."""

    def __init__(self, settings: ProcessSettings, facts: WorkerFacts) -> None:
        self._settings = settings
        self._answers = Answers(settings, facts)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address of the page; empty if nothing is served."""
        if self._settings.http_address is None:
            return ""
        scheme = "http" if self._settings.http_certificate is None else "https"
        return f"{scheme}://{self._settings.http_listen}/"

    def start(self) -> None:
        address = self._settings.http_address
        if address is None:
            return
        tls_context = _tls_context(self._settings)
        host, port = address
        try:
            sockets = bind_sockets(port, host)
        except OSError as error:
            sentence = f"http.listen {self._settings.http_listen} cannot be used ({error.strerror or error})"
            if "http_listen" in self._settings.model_fields_set:
                raise ConfigError(f"{sentence}; choose another one for each worker of a host, or `none`") from error
            LOG.warning("http.not_served", reason=f"{sentence}; set http.listen to another one, or to `none`")
            return
        self._thread = ContextThread(target=self._run, args=(sockets, tls_context), name="http", daemon=True)
        self._thread.start()
        LOG.info("http.served", url=self.url)

    def close(self) -> None:
        self._answers.close()
        loop, ended, thread = self._loop, self._ended, self._thread
        if loop is not None and ended is not None and thread is not None:
            try:
                loop.call_soon_threadsafe(ended.set)
            except RuntimeError:
                return  # the loop has ended by itself
            thread.join(JOIN_SECONDS)

    def _run(self, sockets: list[socket], tls_context: ssl.SSLContext | None) -> None:
        try:
            asyncio.run(self._serve(sockets, tls_context))
        except Exception:  # a defect: the worker goes on without its addresses
            LOG.exception("http.failed")

    async def _serve(self, sockets: list[socket], tls_context: ssl.SSLContext | None) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        # Tornado would log the requests of strangers.
        for name in ("tornado.access", "tornado.general", "tornado.application"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        limits = Limits()
        self._loop.set_exception_handler(lambda _loop, _context: limits.throttle())
        handler_arguments = {"answers": self._answers, "limits": limits, "hosts": known_hosts(self._settings)}
        application = Application(
            [(path, handler, {**handler_arguments, **options}) for path, handler, options in ROUTES],
            default_handler_class=NotFoundHandler,
            default_handler_args=handler_arguments,
            log_function=lambda _handler: None,
        )
        server = BoundedServer(
            application,
            ssl_options=tls_context,
            idle_connection_timeout=CLIENT_SECONDS,
            body_timeout=CLIENT_SECONDS,
            max_header_size=MOST_BYTES,
            max_body_size=MOST_BYTES,
            max_buffer_size=4 * MOST_BYTES,
        )
        server.limits = limits
        server.add_sockets(sockets)
        await self._ended.wait()
        server.stop()
        await asyncio.wait_for(server.close_all_connections(), JOIN_SECONDS)


class BoundedServer(HTTPServer):
    """Closes the oldest idle connection for a new one if there are too many."""

    limits: Limits

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        self.limits.throttle()
        if len(self._connections) >= MOST_CONNECTIONS:
            oldest = next((connection for connection in self.limits.open if connection not in self.limits.busy), stream)
            oldest.close()
            if oldest is stream:
                return
        self.limits.open[stream] = None
        super().handle_stream(stream, address)

    def on_close(self, server_conn: object) -> None:
        stream = cast(HTTP1ServerConnection, server_conn).stream
        self.limits.open.pop(stream, None)
        self.limits.busy.discard(stream)
        super().on_close(server_conn)


def known_hosts(settings: ProcessSettings) -> KnownHosts:
    """Returns the names that the server takes: all of them beyond loopback, unless `http.hosts` is set."""
    listen_host = settings.http_address[0] if settings.http_address else ""
    is_guarded = bool(settings.http_hosts) or settings.http_is_on_loopback
    return KnownHosts(settings.http_hosts, listen_host, is_guarded)


def _tls_context(settings: ProcessSettings) -> ssl.SSLContext | None:
    certificate, key = settings.http_certificate, settings.http_key
    if certificate is None or key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, "")
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            f"http.tls.*: {certificate} and {key} are no certificate with its key in PEM, without a password ({error})"
        ) from error
    return context
