"""The store of a chaos run's tables: a disk, an S3 server behind proxies, or HDFS; and how to disturb each."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError
from py4j.protocol import Py4JJavaError

from tests.storage.hdfs_cluster import SERVICE, HdfsCluster, a_cluster
from tests.storage.s3_proxy import CUT, SILENT, S3Proxy
from tests.storage.s3_server import Store as S3
from tests.storage.s3_server import a_store
from tests.waiting import eventually

DISK, ON_S3, ON_HDFS = "disk", "s3", "hdfs"
STORES = (DISK, ON_S3, ON_HDFS)
LONGEST_FAULT = 40.0
TIMELINE = ".hoodie/timeline"


class TableStore(Protocol):
    """Holds `table` and beside it `table_errors`."""

    settings: Mapping[str, object]

    @property
    def base(self) -> str: ...

    def worker_settings(self, name: str, /) -> Mapping[str, object]:
        """Returns settings that only this worker has."""

    def timeline(self) -> dict[str, float]:
        """Returns the names in the timeline of `table`, and when each appeared or was first seen.

        Empty while the store does not answer.
        """

    def disturb(self, chance: Random, /) -> str | None:
        """Does harm, repairs it, and returns a description; None if it did nothing."""

    def fetch(self, directory: Path) -> None:
        """Copies the tables into the directory."""


class DiskStore:
    settings: Mapping[str, object] = {}

    def __init__(self, disk: Path) -> None:
        self._disk = disk

    @property
    def base(self) -> str:
        return str(self._disk)

    def worker_settings(self, _: str, /) -> Mapping[str, object]:
        return {}

    def timeline(self) -> dict[str, float]:
        timeline = self._disk / "table" / TIMELINE
        found = {}
        for path in timeline.iterdir() if timeline.exists() else ():
            # Hudi takes files away meanwhile.
            with suppress(FileNotFoundError):
                found[path.name] = path.stat().st_mtime
        return found

    def disturb(self, _: Random, /) -> str | None:
        return None  # `refuse_writes` does it

    def fetch(self, directory: Path) -> None:
        for table in self._disk.glob("table*"):
            shutil.copytree(table, directory / table.name)


class S3Store:
    """Each worker has a proxy of its own: a fault hits one worker, or all."""

    def __init__(self, store: S3, proxies: Mapping[str, S3Proxy]) -> None:
        self._store, self._proxies = store, proxies
        self._bucket = store.make_bucket()
        self._client = store.client
        self.settings: Mapping[str, object] = {
            "storage.s3.access.key": store.access_key,
            "storage.s3.secret.key": store.secret_key,
            # Small write tasks would be too many requests for one server that shares this machine.
            "write.task.bytes": None,
        }

    @property
    def base(self) -> str:
        return f"s3a://{self._bucket}"

    def worker_settings(self, name: str, /) -> Mapping[str, object]:
        return {"storage.s3.endpoint": self._proxies[name].url}

    def timeline(self) -> dict[str, float]:
        pages = self._client.get_paginator("list_objects_v2")
        try:
            listing = pages.paginate(Bucket=self._bucket, Prefix=f"table/{TIMELINE}/", Delimiter="/")
            objects = [entry for page in listing for entry in page.get("Contents", ())]
        except (BotoCoreError, ClientError):
            return {}
        now = time.time()
        return {entry["Key"].rpartition("/")[2]: now for entry in objects}

    def disturb(self, chance: Random, /) -> str:
        workers = list(self._proxies)
        names = workers if chance.random() < 0.6 else [chance.choice(workers)]
        victims = "all" if len(names) > 1 else names[0]
        fault, harm, heal = _s3_fault(chance)
        seconds = chance.uniform(3, LONGEST_FAULT)
        for name in names:
            harm(self._proxies[name])
        time.sleep(seconds)
        for name in names:
            heal(self._proxies[name])
        return f"S3 {fault} for {victims}, {seconds:.1f} s"

    def fetch(self, directory: Path) -> None:
        for key in self._store.keys(self._bucket):
            if not key.endswith("/"):
                (directory / key).parent.mkdir(parents=True, exist_ok=True)
                self._client.download_file(self._bucket, key, str(directory / key))


def _s3_fault(chance: Random) -> tuple[str, Callable[[S3Proxy], None], Callable[[S3Proxy], None]]:
    share = chance.choice((1.0, 1.0, 0.3))
    part = "" if share == 1.0 else f" {share:.0%} of the requests"
    status, delay = chance.choice((503, 500)), chance.uniform(0.05, 1.0)
    # The server refuses requests of a clock that is more than a quarter of an hour off, until the clock is set.
    skew = chance.choice((-1, 1)) * chance.choice((30, 300, 1800))

    def heal(proxy: S3Proxy) -> None:
        proxy.fault(0)

    return chance.choice(
        (
            (f"refuses{part} with {status}", lambda proxy: proxy.fault(status, share), heal),
            (f"cuts{part}", lambda proxy: proxy.fault(CUT, share), heal),
            ("hangs", lambda proxy: proxy.fault(SILENT), heal),
            (f"delays by {delay:.2f} s", lambda proxy: proxy.delay(delay), lambda proxy: proxy.delay(0)),
            (f"has a clock {skew} s off", lambda proxy: proxy.skew(skew), lambda proxy: proxy.skew(0)),
        )
    )


class HdfsStore:
    """Two namenodes and two datanodes."""

    def __init__(self, hdfs: HdfsCluster) -> None:
        self._hdfs = hdfs
        self._active = 0
        # A backlog of a minute would be a hundred write tasks, and two datanodes have to confirm the file of each.
        self.settings: Mapping[str, object] = {**hdfs.settings, "write.task.bytes": None}

    @property
    def base(self) -> str:
        return f"hdfs://{SERVICE}/chaos"

    def worker_settings(self, _: str, /) -> Mapping[str, object]:
        return {}

    def timeline(self) -> dict[str, float]:
        try:
            statuses = self._file_system().listStatus(self._hdfs.path(f"/chaos/table/{TIMELINE}"))
        except Py4JJavaError:
            return {}  # no timeline yet, or no namenode is active
        return {str(status.getPath().getName()): status.getModificationTime() / 1000 for status in statuses}

    def disturb(self, chance: Random, /) -> str:
        seconds = chance.uniform(3, LONGEST_FAULT)
        return chance.choice((self._datanode, self._namenode, self._failover))(seconds, chance.randrange(2))

    def fetch(self, directory: Path) -> None:
        file_system = self._file_system()
        for table in file_system.listStatus(self._hdfs.path("/chaos")):
            file_system.copyToLocalFile(False, table.getPath(), self._hdfs.path(directory.as_uri()), True)

    def _file_system(self) -> Any:
        return self._hdfs.cluster.getFileSystem(self._active)

    def _datanode(self, seconds: float, number: int) -> str:
        self._hdfs.stop_datanode(number)
        time.sleep(seconds)
        self._hdfs.start_datanode()
        return f"a datanode away for {seconds:.1f} s"

    def _namenode(self, seconds: float, _: int) -> str:
        """Stops the active namenode, so that none is active, and starts it again."""
        self._hdfs.stop(self._active)
        time.sleep(seconds)
        self._hdfs.start(self._active)
        self._hdfs.activate(self._active)
        return f"no active namenode for {seconds:.1f} s"

    def _failover(self, seconds: float, _: int) -> str:
        other = 1 - self._active
        self._hdfs.stop(self._active)
        self._hdfs.activate(other)
        time.sleep(seconds)
        self._hdfs.start(self._active)
        self._active = other
        return f"namenode {other + 1} made active, the other one back after {seconds:.1f} s"


@contextmanager
def open_table_store(store: str, directory: Path, disk: Path, workers: Sequence[str]) -> Iterator[TableStore]:
    with ExitStack() as cleanup:
        if store == ON_S3:
            server = cleanup.enter_context(a_store(directory / "s3"))
            proxies = {name: S3Proxy(directory / f"s3-proxy-{name}", server.url) for name in workers}
            for proxy in proxies.values():
                cleanup.enter_context(proxy)
            yield S3Store(server, proxies)
        elif store == ON_HDFS:
            hdfs = cleanup.enter_context(a_cluster(directory / "hdfs"))
            eventually("HDFS answers", lambda: hdfs.cluster.isClusterUp(), 60)
            yield HdfsStore(hdfs)
        else:
            yield DiskStore(disk)
