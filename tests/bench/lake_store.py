"""An S3 server for benchmarks, behind a proxy that makes every request take longer.

MinIO's where its program is given or on the path, else moto's, which is Python and uses a core of its own; or the
running one that `SINK_TEST_S3` names. Raises `Unavailable`.
"""

from __future__ import annotations

import argparse
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from sink.local.servers import LOOPBACK, Server, free_ports
from tests.storage.s3_proxy import S3Proxy
from tests.storage.s3_server import ACCESS_KEY, SECRET_KEY, Store, a_store


class MinioServer(Server):
    """Keeps its data below the directory."""

    def __init__(self, directory: Path, program: str) -> None:
        super().__init__(directory, 0, "S3 (MinIO)")
        self._program = program

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def _command(self) -> list[str]:
        keys = [f"MINIO_ROOT_USER={ACCESS_KEY}", f"MINIO_ROOT_PASSWORD={SECRET_KEY}"]
        console = f"{LOOPBACK}:{free_ports(1)[0]}"
        place = str(self.directory / "data")
        return ["env", *keys, self._program, "server", "--address", self.address, "--console-address", console, place]

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/minio/health/live", timeout=2.0) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


@dataclass(frozen=True)
class LakeStore:
    """`store` is reached by way of the proxy. `pids`: the server and the proxy, as far as they were started here."""

    name: str
    store: Store
    proxy: S3Proxy
    pids: tuple[int, ...]

    def base_path(self) -> str:
        """A table in a bucket of its own."""
        return f"s3a://{self.store.make_bucket()}/orders"

    @property
    def settings(self) -> Mapping[str, str]:
        return self.store.settings

    def cpu(self) -> tuple[float, ...]:
        """CPU seconds so far of each of `pids`."""
        return tuple(sum(psutil.Process(pid).cpu_times()[:2]) for pid in self.pids)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--delay-ms", type=float, default=20.0, help="added to each request (default: %(default)s)")
    parser.add_argument("--minio", default=shutil.which("minio") or "", help="MinIO's program (default: on the path)")


@contextmanager
def open_store(directory: Path, minio: str, delay_ms: float) -> Iterator[LakeStore]:
    with _server(directory, minio) as (name, store, pid), S3Proxy(directory / "proxy", store.url) as proxy:
        proxy.delay(delay_ms / 1000)
        pids = (pid, proxy.pid) if pid else (proxy.pid,)
        yield LakeStore(name, replace(store, url=proxy.url), proxy, pids)


@contextmanager
def _server(directory: Path, minio: str) -> Iterator[tuple[str, Store, int]]:
    if minio:
        with MinioServer(directory / "minio", minio) as server:
            yield server.name, Store(server.url), server.pid
    else:
        with a_store(directory / "moto") as store:
            yield "S3 (moto, or by SINK_TEST_S3)", store, 0
