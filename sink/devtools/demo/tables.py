"""The demo's table: in the demo's directory, or on its S3 server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from sink.clients.java.installation import storage_jars
from sink.devtools.local.s3 import S3Server, require_installed
from sink.devtools.local.servers import Server
from sink.storage.access import CONNECTORS, NO_ACCESS, Access, access_of, rust_options

QUERY = """\
import duckdb, pyarrow as pa; from hudi import HudiTableBuilder
orders = pa.Table.from_batches(HudiTableBuilder.from_base_uri("{table}"){options}.build().read())
print(duckdb.sql("SELECT country, count(*) AS orders FROM orders GROUP BY ALL ORDER BY ALL"))"""
_KEYS = {"access.key": "demo", "secret.key": "demo-secret"}
_BUCKET = "lake"


class DemoTable:
    """A table on the local disk."""

    servers: tuple[Server, ...] = ()
    """Servers to start before `start`."""
    access: Access = NO_ACCESS

    def __init__(self, directory: Path) -> None:
        self.base_path = str(directory / "table")

    def prepare(self) -> None:
        """Downloads what the table needs: nothing. Raises ConfigError if a package is not installed."""

    def start(self) -> None:
        """Creates what the table needs on its servers: nothing, for the workers create the directory."""

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of a worker for this table."""
        return {"target.base.path": self.base_path}

    @property
    def query(self) -> str:
        """A Python program that counts the rows without Spark."""
        options = json.dumps(rust_options(self.base_path, self.access), indent=4)
        options_call = "" if options == "{}" else f".with_storage_options({options})"
        return QUERY.format(table=self.base_path, options=options_call)


class S3Table(DemoTable):
    """A table on an S3 server of the demo. It ends with the server."""

    def __init__(self, directory: Path) -> None:
        self.base_path = f"s3a://{_BUCKET}/orders"
        self.server = S3Server(directory / "s3")
        self.servers = (self.server,)
        self.access = access_of({}, {**_KEYS, "endpoint": self.server.url})

    def prepare(self) -> None:
        require_installed()
        storage_jars(CONNECTORS["s3a"])

    def start(self) -> None:
        self.server.start()
        self.server.make_bucket(_BUCKET)

    @property
    def settings(self) -> Mapping[str, str]:
        keys = {f"storage.s3.{name}": value for name, value in _KEYS.items()}
        return {**super().settings, "storage.s3.endpoint": self.server.url, **keys}


TABLES: Mapping[str, type[DemoTable]] = {"local": DemoTable, "s3": S3Table}
