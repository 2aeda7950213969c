"""Where the demo's table is: in its directory, or on an S3 server of the demo's own."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from sink.clients import artifacts
from sink.devtools.local.s3 import S3Server, require_installed
from sink.devtools.local.servers import Server
from sink.storage.access import NO_ACCESS, Access, access_of, rust_options
from sink.storage.connectors import CONNECTORS

QUERY = """\
import duckdb, pyarrow as pa; from hudi import HudiTableBuilder
orders = pa.Table.from_batches(HudiTableBuilder.from_base_uri("{table}"){options}.build().read())
print(duckdb.sql("SELECT country, count(*) AS orders FROM orders GROUP BY ALL ORDER BY ALL"))"""
_KEYS = {"access.key": "demo", "secret.key": "demo-secret"}
_BUCKET = "lake"


class DemoTable(ABC):
    """The table's base path, and how it is reached."""

    base_path: str
    servers: tuple[Server, ...] = ()
    """To be started before the table is."""
    access: Access = NO_ACCESS

    @abstractmethod
    def prepare(self) -> None:
        """Downloads what it takes. Raises ConfigError where something has to be installed."""

    @abstractmethod
    def start(self) -> None:
        """Makes what the table needs, on servers that answer."""

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, str]:
        """Settings of a worker."""

    @property
    def query(self) -> str:
        """A program that counts the rows, for people without Spark."""
        options = json.dumps(rust_options(self.base_path, self.access), indent=4)
        reached = "" if options == "{}" else f".with_storage_options({options})"
        return QUERY.format(table=self.base_path, options=reached)


class DirectoryTable(DemoTable):
    """On a local disk."""

    def __init__(self, directory: Path) -> None:
        self.base_path = str(directory / "table")

    def prepare(self) -> None:
        """There is nothing to prepare."""

    def start(self) -> None:
        """Workers make the directory."""

    @property
    def settings(self) -> Mapping[str, str]:
        return {"target.base.path": self.base_path}


class S3Table(DemoTable):
    """In a bucket of an S3 server that is started for it. The table is gone with the server."""

    def __init__(self, directory: Path) -> None:
        self.base_path = f"s3a://{_BUCKET}/orders"
        self.server = S3Server(directory / "s3")
        self.servers = (self.server,)
        self.access = access_of({}, {**_KEYS, "endpoint": self.server.url})

    def prepare(self) -> None:
        require_installed()
        artifacts.storage_jars(CONNECTORS["s3a"])

    def start(self) -> None:
        self.server.start()
        self.server.make_bucket(_BUCKET)

    @property
    def settings(self) -> Mapping[str, str]:
        keys = {f"storage.s3.{name}": value for name, value in _KEYS.items()}
        return {"target.base.path": self.base_path, "storage.s3.endpoint": self.server.url, **keys}


TABLES: Mapping[str, type[DirectoryTable] | type[S3Table]] = {"local": DirectoryTable, "s3": S3Table}
