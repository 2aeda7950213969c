"""An S3 server for benchmarks, behind a proxy that makes every request take longer, and when commits appeared on it.

The server is MinIO where its program is given or on the path. Else it is moto, which is Python and uses a core of its
own, or the running server that `TEST_S3` names. Raises `Unavailable`.
"""

from __future__ import annotations

import argparse
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from typing_extensions import Self

from sink.storage.access import Access, access_of
from tests.looking import Poller
from tests.storage.s3_proxy import Request, S3Proxy
from tests.storage.s3_server import MinioServer, Store, a_store

LOOK_SECONDS = 2.0
_COMPLETED = re.compile(r"orders/\.hoodie/timeline/(\d{17})_\d{17}\.(?:commit|deltacommit)")
_WALL = time.time() - time.monotonic()


@dataclass(frozen=True)
class LakeStore:
    """`store` is reached through the proxy, `direct` is not. `pids`: of the server and the proxy, where the bench
    started them."""

    name: str
    store: Store
    direct: Store
    proxy: S3Proxy
    pids: tuple[int, ...]
    delay: float

    def base_path(self) -> str:
        """Makes a bucket, and returns the path of a table in it."""
        return f"s3a://{self.store.make_bucket()}/orders"

    @property
    def settings(self) -> Mapping[str, str]:
        return self.store.settings

    def table_settings(self) -> Mapping[str, str]:
        """Returns the settings with the path of a table in a new bucket."""
        return {**self.settings, "target.base.path": self.base_path()}

    @property
    def access(self) -> Access:
        s3_options = {name.removeprefix("storage.s3."): value for name, value in self.settings.items()}
        return access_of({}, s3_options)


class StoreWatch(Poller):
    """Notes when each completed instant of a table was put on the store, as `freshness.Watch` does for a disk."""

    def __init__(self, store: LakeStore) -> None:
        super().__init__(LOOK_SECONDS)
        self.seen: dict[str, float] = {}
        self._store = store

    def __enter__(self) -> Self:
        self._store.proxy.forget()
        return super().__enter__()

    def _poll(self) -> None:
        """The proxy notes a request once it is answered. The request began when the proxy says, and took at least the
        delay."""
        for request in self._store.proxy.take():
            match = _COMPLETED.fullmatch(request.path) if request.method == "PUT" and request.status == 200 else None
            if match:
                self.seen.setdefault(match[1], wall_clock(request) + self._store.delay)


def wall_clock(request: Request) -> float:
    """Returns when the request began, by the wall clock: the proxy notes monotonic time."""
    return request.started + _WALL


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--delay-ms", type=float, default=20.0, help="added to each request (default: %(default)s)")
    parser.add_argument("--minio", default=shutil.which("minio") or "", help="MinIO's program (default: on the path)")


def add_storage_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a benchmark that runs on a disk, too."""
    parser.add_argument("--storage", choices=("disk", "s3"), default="disk", help="where tables are")
    add_options(parser)


@contextmanager
def storage(directory: Path, options: argparse.Namespace) -> Iterator[LakeStore | None]:
    """Yields the store, or None for the disk."""
    if options.storage == "disk":
        yield None
    else:
        with open_store(directory / "store", options.minio, options.delay_ms) as store:
            yield store


@contextmanager
def open_store(directory: Path, minio: str, delay_ms: float) -> Iterator[LakeStore]:
    with _server(directory, minio) as (name, store, pid), S3Proxy(directory / "proxy", store.url) as proxy:
        proxy.delay(delay_ms / 1000)
        pids = (pid, proxy.pid) if pid else (proxy.pid,)
        yield LakeStore(name, replace(store, url=proxy.url), store, proxy, pids, delay_ms / 1000)


@contextmanager
def _server(directory: Path, minio: str) -> Iterator[tuple[str, Store, int]]:
    if minio:
        with MinioServer(directory / "minio", minio) as server:
            yield server.name, Store(server.url), server.pid
    else:
        with a_store(directory / "moto") as store:
            yield "S3 (moto, or by TEST_S3)", store, 0
