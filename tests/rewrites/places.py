"""Where the table of a sequence is: on a small disk or in an S3 store, with the faults that each can have."""

from __future__ import annotations

import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hudi import HudiReadOptions, HudiTableBuilder

from sink.audit.readers import misread_by_hudi_rs
from tests.disk import FullDisk, ReadOnlyDisk, mount_small, unmount
from tests.rewrites.moments import TIMELINE, Watch, sign_of
from tests.rewrites.steps import EXPIRE, REFUSE
from tests.storage.s3_proxy import SILENT, S3Proxy
from tests.storage.s3_server import Store

SIZE = "96m"
_MIXED_DELETES = "Delete block mixes ordering types"
"""hudi-rs 0.5 says so of deletes with and without an ordering value, which Hudi writes into one block."""
_LOG_FILE = re.compile(r"\..+_(?P<instant>\d{17})\.log\.")
_FORBIDDEN = 403
"""Clients do not try again what is forbidden."""


class NotRead(Exception):
    """A reader does not read tables of this kind; the text says of which."""


class Place(ABC):
    """The place of one table. `base` is its path, `settings` are what a sink needs to reach it."""

    base: str
    settings: Mapping[str, str]

    @abstractmethod
    def watch(self, action: str, moment: str, kind: str) -> Callable[[], bool]:
        """Returns whether the moment has come. A store holds or refuses every request from then on, as the kind of
        fault asks.
        """

    @abstractmethod
    def refuse(self, full: bool) -> None:
        """Refuses to write until `allow`, because it is full, or may not be written."""

    @abstractmethod
    def allow(self) -> None: ...

    @abstractmethod
    def names(self, directory: str = TIMELINE) -> Iterator[str]:
        """Yields the names in a directory: those on the active timeline if none is given."""

    @abstractmethod
    def keep(self, directory: Path) -> None:
        """Copies the table."""

    @abstractmethod
    def remove(self) -> None: ...

    def read_by_rust(self) -> list[dict[str, Any]]:
        """Raises NotRead if hudi-rs does not read such a table, and AssertionError if it cannot read this one."""
        table = self._rust().build()
        if reasons := set(filter(None, map(misread_by_hudi_rs, table.get_file_slices(HudiReadOptions())))):
            raise NotRead(min(reasons))
        try:
            batches = table.read()
        except Exception as error:
            if _MIXED_DELETES in str(error):
                raise NotRead("a log file deletes in two ways") from error
            raise AssertionError(f"hudi-rs: {error}") from error
        return [row for batch in batches for row in batch.to_pylist()]

    @property
    def hides_log_files(self) -> bool:
        """Whether the table has log files whose commit is archived: hudi-rs 0.5 does not look into the archive, and
        leaves those out that no compaction has merged.
        """
        active = {name[:17] for name in self.names()}
        partitions = {piece.partition_path for piece in self._rust().build().get_file_slices(HudiReadOptions())}
        logs = (match for partition in partitions for name in self.names(partition) if (match := _LOG_FILE.match(name)))
        return any(match["instant"] not in active for match in logs)

    @abstractmethod
    def _rust(self) -> HudiTableBuilder: ...

    def is_pending(self, action: str) -> bool:
        names = list(self.names())
        begun = {name.split(".")[0] for name in names if name.endswith(f".{action}.requested")}
        return bool(begun - {name.split("_")[0] for name in names if name.endswith(f".{action}") and "_" in name})


class SmallDisk:
    """A file system of its own, where one can be mounted."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.can_refuse = mount_small(directory, SIZE)

    def close(self) -> None:
        if self.can_refuse:
            unmount(self.directory)


class OnDisk(Place):
    def __init__(self, disk: SmallDisk, name: str) -> None:
        self._disk = disk
        self._path = disk.directory / name
        self._refusal: FullDisk | ReadOnlyDisk | None = None
        self.base, self.settings = str(self._path), {}

    def watch(self, action: str, moment: str, kind: str) -> Callable[[], bool]:  # noqa: ARG002
        return Watch(self._path, action, moment)

    def refuse(self, full: bool) -> None:
        directory = self._disk.directory
        if not self._disk.can_refuse:
            return
        self._refusal = FullDisk(directory) if full else ReadOnlyDisk(directory, seconds=1)
        try:
            self._refusal.begin()
        except AssertionError:
            # Hudi may keep a file open to write to, and then no disk becomes read-only.
            self._refusal = FullDisk(directory)
            self._refusal.begin()

    def allow(self) -> None:
        if self._refusal is not None:
            self._refusal.end()
            self._refusal = None

    def names(self, directory: str = TIMELINE) -> Iterator[str]:
        return (file.name for file in (self._path / directory).glob("*"))

    def keep(self, directory: Path) -> None:
        if self._path.exists():
            shutil.copytree(self._path, directory, dirs_exist_ok=True)

    def remove(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)

    def _rust(self) -> HudiTableBuilder:
        return HudiTableBuilder.from_base_uri(self._path.as_uri())


class InStore(Place):
    """In a bucket of its own, behind a proxy that holds or refuses requests."""

    def __init__(self, store: Store, proxy: S3Proxy) -> None:
        self._store, self._proxy = store, proxy
        self._bucket = store.make_bucket()
        self.base = f"s3a://{self._bucket}/table"
        self.settings = {**store.settings, "storage.s3.endpoint": proxy.url}

    def watch(self, action: str, moment: str, kind: str) -> Callable[[], bool]:
        sign = sign_of(action, moment)
        directory = f"{sign.directory}/" if sign.directory else ""
        below = r"(?:(?!\.hoodie)[^ /]+/)*" if sign.deep else ""
        fault = {REFUSE: _FORBIDDEN, EXPIRE: 0}.get(kind, SILENT)
        name = sign.pattern.replace(".*", "[^/ ]*")
        key = rf"table/{re.escape(directory)}{below}(?:{name})"
        pattern = rf"^DELETE /[^/]+/{key}[ ?]|<Key>{key}</Key>" if sign.gone else rf"^PUT /[^/]+/{key}[ ?]"
        self._proxy.trap(pattern, fault)
        return self._proxy.has_trapped

    def refuse(self, full: bool) -> None:
        """Does nothing: the trap has begun it."""

    def allow(self) -> None:
        self._proxy.trap("")
        self._proxy.fault(0)

    def names(self, directory: str = TIMELINE) -> Iterator[str]:
        return (key.rpartition("/")[2] for key in self._store.keys(self._bucket, f"table/{directory}/"))

    def keep(self, directory: Path) -> None:
        for key in self._store.keys(self._bucket, "table/"):
            if key.endswith("/"):
                continue
            file = directory / key.removeprefix("table/")
            file.parent.mkdir(parents=True, exist_ok=True)
            self._store.client.download_file(self._bucket, key, str(file))

    def remove(self) -> None:
        client = self._store.client
        for key in self._store.keys(self._bucket):
            client.delete_object(Bucket=self._bucket, Key=key)
        client.delete_bucket(Bucket=self._bucket)

    def _rust(self) -> HudiTableBuilder:
        options = {
            "aws_endpoint": self._store.url,
            "aws_access_key_id": self._store.access_key,
            "aws_secret_access_key": self._store.secret_key,
            "aws_region": self._store.region,
            "aws_allow_http": "true",
        }
        return HudiTableBuilder.from_base_uri(f"s3://{self._bucket}/table").with_storage_options(options)
