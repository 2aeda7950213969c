"""Serves a process's metrics on loopback, at a port of their own (`metrics.port`).

Guarantee: that of `sink.http.bounded_server`; the text is made at most once a second. Raises ConfigError if the port
cannot be used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tornado.netutil import bind_sockets

from coordination.errors import ConfigError
from sink.http.answers import CONTENT_TYPE, HttpResponse, MetricsText
from sink.http.bounded_server import Handler, ServerThread
from sink.telemetry.known_hosts import KnownHosts

LOOPBACK = "127.0.0.1"


class MetricsHandler(Handler):
    def initialize(self, text: MetricsText, **shared: Any) -> None:
        super().initialize(**shared)
        self.text = text

    async def get(self) -> None:
        plain, zipped = await asyncio.get_running_loop().run_in_executor(None, self.text.text)
        await self.answer(HttpResponse(200, plain, CONTENT_TYPE, zipped))

    head = get


class MetricsPort:
    """`start` binds and serves `/metrics` until `close`; port 0 serves nothing. The names of the server are loopback's,
    this host's and `named_hosts`."""

    def __init__(self, port: int, make_text: Callable[[], bytes], named_hosts: Sequence[str] = ()) -> None:
        self._port = port
        self._text = MetricsText(make_text)
        self._hosts = KnownHosts(named_hosts, LOOPBACK)
        self._server: ServerThread | None = None

    def start(self) -> None:
        if self._port == 0:
            return
        try:
            sockets = bind_sockets(self._port, LOOPBACK)
        except OSError as error:
            raise ConfigError(
                f"metrics.port: {self._port} cannot be used on {LOOPBACK} ({error.strerror}). Choose another one for"
                " each worker of a host, or 0 for none."
            ) from error
        route = (r"/metrics", MetricsHandler, {"text": self._text})
        self._server = ServerThread("metrics", sockets, [route], self._hosts)
        self._server.start()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
