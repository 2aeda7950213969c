"""A real Schema Registry for tests, and an HTTP server whose answers a test chooses.

The registry is Apicurio's, with Confluent's API and its data in memory: 140 MB from the Maven repository, kept beside
the other downloads. `TEST_REGISTRY=url` uses a running one.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import ssl
import tarfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sink.clients.java.installation import BROKER_VERSIONS, cache_home, download_into, locked
from sink.devtools.local.servers import LOOPBACK, Server

VERSION = "2.6.13.Final"
"""This version runs on Java 17; 3.3 needs 21."""
API = "/apis/ccompat/v7"
DOCUMENT = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="hudi-keeper-sink" module="registry"/>
<dependencies>
<dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}" transitive="false" conf="*->default">
<artifact name="apicurio-registry-app" type="jar" ext="jar"/>
<artifact name="apicurio-registry-app" type="jar" ext="tar.gz" m:classifier="all"/>
</dependency>
</dependencies>
</ivy-module>
"""


def registry_directory() -> Path:
    """Returns the directory of the unpacked registry, downloaded if missing. Raises Unavailable, ConfigError."""
    name = f"registry-{hashlib.sha256(DOCUMENT.encode()).hexdigest()[:12]}"
    home = cache_home() / "jars"
    directory, download, unpacked = home / name, home / f".{name}.download", home / f".{name}.unpacked"
    if not directory.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        with locked(home / f".{name}.lock", "fetching the same jars"):
            if not directory.is_dir():
                if not download.is_dir():
                    download_into("registry", DOCUMENT, download)
                shutil.rmtree(unpacked, ignore_errors=True)
                with tarfile.open(next(download.glob("*.tar.gz"))) as archive:
                    # An attribute, because Python 3.11.2, which Debian 12 has, does not know the argument.
                    archive.extraction_filter = getattr(tarfile, "data_filter", None)
                    archive.extractall(unpacked)
                unpacked.rename(directory)
                shutil.rmtree(download)
    return directory


class RegistryServer(Server):
    """`url` is for clients of Confluent's API. Stopping it loses everything."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 0, "Schema Registry")

    @property
    def url(self) -> str:
        return f"http://{self.address}{API}"

    def _command(self) -> list[str]:
        jars = list(registry_directory().glob("*-runner.jar"))
        options = (f"-Dquarkus.http.host={LOOPBACK}", f"-Dquarkus.http.port={self.port}")
        return self._java("256m", jars, *options, "io.quarkus.runner.GeneratedMain", versions=BROKER_VERSIONS)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=2.0) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@dataclass(frozen=True)
class RegistryRequest:
    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True)
class RegistryResponse:
    """An answer; the server sends `body` as JSON unless it is text."""

    status: int
    body: Any = ""


Answer = Callable[[RegistryRequest], RegistryResponse]


@dataclass
class StubRegistry:
    """A server on loopback that answers each GET with `answer`, and keeps the requests."""

    answer: Answer
    port: int = 0
    tls: ssl.SSLContext | None = None
    requests: list[RegistryRequest] = field(default_factory=list)

    def __enter__(self) -> StubRegistry:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                request = RegistryRequest(self.path, dict(self.headers))
                stub.requests.append(request)
                response = stub.answer(request)
                body = (response.body if isinstance(response.body, str) else json.dumps(response.body)).encode()
                self.send_response(response.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Logs nothing: tests read `requests`."""

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """Ignores clients that have gone, and clients without a certificate."""

            def get_request(self) -> Any:
                connection, address = super().get_request()
                if stub.tls is not None:
                    # The first read does the handshake, in the thread of the connection.
                    connection = stub.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                return connection, address

        self._server = Quiet((LOOPBACK, self.port), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{LOOPBACK}:{self.port}"

    def count(self, path: str) -> int:
        return sum(request.path.partition("?")[0] == path for request in self.requests)


def forward(upstream: str) -> Answer:
    """Returns an `Answer` that asks the registry at `upstream`: a `StubRegistry` is then a reverse proxy."""

    def answer(request: RegistryRequest) -> RegistryResponse:
        try:
            with urllib.request.urlopen(f"{upstream}{request.path}", timeout=30) as response:
                return RegistryResponse(response.status, response.read().decode())
        except urllib.error.HTTPError as error:
            return RegistryResponse(error.code, error.read().decode())

    return answer


if __name__ == "__main__":
    print(f"registry: {registry_directory()}", flush=True)
