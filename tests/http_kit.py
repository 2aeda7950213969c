"""A client of a worker's HTTP addresses, for tests."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sink.devtools.local.servers import free_ports
from tests.waiting import eventually

PATIENCE = 30.0


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Client:
    host: str
    port: int
    secured: ssl.SSLContext | None = None

    def ask(self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> Reply:
        if self.secured is None:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        else:
            connection = http.client.HTTPSConnection(self.host, self.port, timeout=PATIENCE, context=self.secured)
        try:
            connection.request(method, path, headers=dict(headers or {}))
            answer = connection.getresponse()
            return Reply(answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()})
        finally:
            connection.close()

    def status_of(self, path: str) -> int:
        """Returns the status; 0 if the request fails, as without a listener."""
        try:
            return self.ask(path).status
        except OSError:
            return 0

    def wait(self, path: str, status: int, seconds: float = 120) -> Reply:
        eventually(f"{path} answers {status}", lambda: self.status_of(path) == status, seconds)
        return self.ask(path)


def client_on_free_port() -> Client:
    """Returns a client of a port that was free a moment ago."""
    return Client("127.0.0.1", free_ports(1)[0])
