"""Serves a worker's addresses and its page by HTTP.

Guarantee: that of `sink.http.bounded_server`. Raises ConfigError for an address or a certificate that cannot be used.
"""

from __future__ import annotations

import ssl
from typing import Any

import structlog
from tornado.netutil import bind_sockets

from coordination.errors import ConfigError
from sink.http import page
from sink.http.answers import Answers
from sink.http.bounded_server import Handler, Route, ServerThread
from sink.http.facts import WorkerFacts
from sink.http.specification import HttpSpecification
from sink.operations.control import VERBS
from sink.telemetry.known_hosts import KnownHosts

LOG = structlog.get_logger("sink.worker")


class QueryHandler(Handler):
    """Answers questions of one kind."""

    def initialize(self, answers: Answers, kind: str, **shared: Any) -> None:
        super().initialize(**shared)
        self.answers, self.kind = answers, kind

    async def get(self) -> None:
        await self.answer(await self.answers.query(self.kind, self.argument("sink")))

    head = get


class CommandHandler(Handler):
    def initialize(self, answers: Answers, verb: str, **shared: Any) -> None:
        super().initialize(**shared)
        self.answers, self.verb = answers, verb

    async def post(self) -> None:
        authorization = self.request.headers.get("Authorization", "")
        await self.answer(
            await self.answers.perform(self.verb, self.argument("sink"), self.argument("worker"), authorization)
        )


class PageHandler(Handler):
    async def get(self) -> None:
        self.set_header("Content-Security-Policy", page.POLICY)
        await self.answer(page.ANSWER)

    head = get


QUERIES = ("liveness", "readiness", "coordinator", "health", "status", "history", "overview", "table", "metrics")


def routes(answers: Answers) -> list[Route]:
    """Returns the worker's addresses."""
    return [
        (r"/", PageHandler, {}),
        *((f"/{kind}", QueryHandler, {"answers": answers, "kind": kind}) for kind in QUERIES),
        *((f"/{verb}", CommandHandler, {"answers": answers, "verb": verb}) for verb in VERBS),
    ]


class WorkerHttp:
    """`start` binds and serves until `close`."""

    def __init__(self, specification: HttpSpecification, facts: WorkerFacts) -> None:
        self._specification = specification
        self._answers = Answers(specification.token, facts)
        self._server: ServerThread | None = None

    @property
    def url(self) -> str:
        """The address of the page; empty if nothing is served."""
        if self._specification.address is None:
            return ""
        scheme = "http" if self._specification.certificate is None else "https"
        return f"{scheme}://{self._specification.listen}/"

    def start(self) -> None:
        specification = self._specification
        if specification.address is None:
            return
        tls_context = _tls_context(specification)
        host, port = specification.address
        try:
            sockets = bind_sockets(port, host)
        except OSError as error:
            sentence = f"http.listen {specification.listen} cannot be used ({error.strerror or error})"
            if specification.is_chosen:
                raise ConfigError(f"{sentence}. Choose another one for each worker of a host, or `none`.") from error
            LOG.warning("http.not_served", reason=f"{sentence}. Set http.listen to another one, or to `none`.")
            return
        self._server = ServerThread("http", sockets, routes(self._answers), known_hosts(specification), tls_context)
        self._server.start()
        LOG.info("http.served", url=self.url)

    def close(self) -> None:
        self._answers.close()
        if self._server is not None:
            self._server.close()


def known_hosts(specification: HttpSpecification) -> KnownHosts:
    """Returns the names that the server takes: all of them beyond loopback, unless `http.hosts` is set."""
    listen_host = specification.address[0] if specification.address else ""
    is_guarded = bool(specification.hosts) or specification.is_on_loopback
    return KnownHosts(specification.hosts, listen_host, is_guarded)


def _tls_context(specification: HttpSpecification) -> ssl.SSLContext | None:
    certificate, key = specification.certificate, specification.key
    if certificate is None or key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, "")
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            f"http.tls.*: {certificate} and {key} are not a certificate with its key in PEM, without a password"
            f" ({error})"
        ) from error
    return context
