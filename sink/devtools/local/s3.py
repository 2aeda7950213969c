"""An S3 server (moto) as a child process on a loopback port, for the demo and for tests.

It keeps its data in memory and accepts any key and signature. Not for production. It is the extra `s3-server` of this
package. Raises ConfigError if that is not installed, and Unavailable.
"""

from __future__ import annotations

import importlib.util
import sys
import urllib.request
from pathlib import Path

from coordination.errors import ConfigError, Unavailable
from sink.devtools.local.servers import LOOPBACK, Server

_MODULES = ("moto", "flask", "flask_cors", "boto3")
_ANSWER_SECONDS = 10.0


class S3Server(Server):
    """moto's S3 server. Stopping it loses its data."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 0, "S3 (moto)")

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def make_bucket(self, name: str) -> None:
        request = urllib.request.Request(f"{self.url}/{name}", method="PUT")
        try:
            urllib.request.urlopen(request, timeout=_ANSWER_SECONDS).close()
        except OSError as error:
            raise Unavailable(f"{self.name} at {self.url} did not make the bucket {name}: {error}") from error

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(self.port)]

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/moto-api/", timeout=2.0) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def require_installed() -> None:
    """Raises ConfigError with what to install."""
    if not all(importlib.util.find_spec(module) for module in _MODULES):
        raise ConfigError("--storage s3 needs an S3 server. Run pip install '.[s3-server]'.")
