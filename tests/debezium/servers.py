"""A real Postgres, a real MariaDB, and Kafka Connect with Debezium's connectors, as child processes."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from typing_extensions import Self

from coordination.errors import Unavailable
from sink.clients.java.installation import BROKER_VERSIONS, fetch
from sink.devtools.local.servers import LOOPBACK, Server

DEBEZIUM = "3.6.1.Final"
CONNECT = (
    "org.apache.kafka:connect-runtime:4.3.0",
    "org.apache.kafka:connect-json:4.3.0",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    f"io.debezium:debezium-api:{DEBEZIUM}",
    f"io.debezium:debezium-embedded:{DEBEZIUM}",
    f"io.debezium:debezium-connector-postgres:{DEBEZIUM}",
    f"io.debezium:debezium-connector-mysql:{DEBEZIUM}",
)
MISSING = "apt-get install postgresql mariadb-server-core mariadb-client-core"
USER = "shop"
HEAP = "512m"


class Database(Server):
    """A database server, and a user `shop` who may do everything."""

    own_database: str
    """The database that is there from the start."""

    def renew(self) -> None:
        """Makes an empty database `shop`, instead of the one that there may be."""
        self.run(f"DROP DATABASE IF EXISTS {USER};", self.own_database)
        self.run(f"CREATE DATABASE {USER};", self.own_database)

    def run(self, script: str, database: str = USER) -> str:
        """Runs SQL statements. Returns what they print, a line a row. Raises Unavailable with the first error."""
        client = self._client(database)
        done = subprocess.run(client, input=script, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise Unavailable(f"{self.name}: {done.stderr.strip()}")
        return done.stdout

    @abstractmethod
    def connection(self) -> Mapping[str, str]:
        """Returns the settings of a connector that say where the database is."""

    @abstractmethod
    def _client(self, database: str) -> list[str]:
        """Returns the command line of a client that reads statements from its input."""

    def _answers(self) -> bool:
        time.sleep(0.1)
        client = self._client(self.own_database)
        return subprocess.run(client, input="SELECT 1;", text=True, capture_output=True, check=False).returncode == 0


class Postgres(Database):
    own_database = "postgres"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 0, "Postgres")

    def connection(self) -> Mapping[str, str]:
        return {"plugin.name": "pgoutput", "database.dbname": USER, "slot.drop.on.stop": "true"}

    def _client(self, database: str) -> list[str]:
        address = ("--host", LOOPBACK, "--port", str(self.port), "--username", USER)
        return [_program("psql"), *address, "-v", "ON_ERROR_STOP=1", "-qtA", database]

    def _command(self) -> list[str]:
        # Postgres refuses to run as root.
        user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        data = self.directory / "data"
        if not data.exists():
            data.mkdir(parents=True)
            if user:
                shutil.chown(data, "postgres")
            arguments = ("--pgdata", str(data), "--username", USER, "--auth", "trust", "--encoding", "UTF8")
            subprocess.run([*user, _program("initdb"), *arguments], check=True, stdout=subprocess.DEVNULL)
        options = {"port": self.port, "listen_addresses": LOOPBACK, "wal_level": "logical", "fsync": "off"}
        options |= {"unix_socket_directories": str(data), "timezone": "Europe/Zurich"}
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return [*user, _program("postgres"), "-D", str(data), *settings]


class MariaDb(Database):
    own_database = "mysql"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 0, "MariaDB")
        self._socket = str(directory / "socket")

    def connection(self) -> Mapping[str, str]:
        return {"database.server.id": "7", "database.include.list": USER}

    def start(self) -> Self:
        super().start()
        self.run(f"CREATE OR REPLACE USER {USER}@'%' IDENTIFIED BY '{USER}'; GRANT ALL ON *.* TO {USER}@'%';", "mysql")
        return self

    def _client(self, database: str) -> list[str]:
        return [_program("mariadb"), f"--socket={self._socket}", "--user=root", "-NrB", database]

    def _command(self) -> list[str]:
        data = self.directory / "data"
        # MariaDB refuses to run as root unless it is named.
        user = [f"--user={pwd.getpwuid(os.geteuid()).pw_name}"]
        if not data.exists():
            install = [_program("mariadb-install-db"), "--no-defaults", f"--datadir={data}", *user]
            subprocess.run([*install, "--skip-test-db"], check=True, stdout=subprocess.DEVNULL)
        log = ["--log-bin=binlog", "--binlog-format=ROW", "--binlog-row-image=FULL", "--server-id=1"]
        place = [f"--datadir={data}", f"--socket={self._socket}", f"--port={self.port}", f"--bind-address={LOOPBACK}"]
        # MySQL's connector asks a server by its version, and MariaDB answers as a MySQL of this one would.
        manners = ["--default-time-zone=+02:00", "--version=5.7.19-log"]
        return [_program("mariadbd"), "--no-defaults", *place, *log, *user, *manners]


class Connect(Server):
    """Kafka Connect with one connector, which runs when it has started."""

    def __init__(self, directory: Path, kafka: str, connector: Mapping[str, str], converter: Mapping[str, str]) -> None:
        super().__init__(directory, 0, "Kafka Connect")
        self._connector = dict(connector)
        self._worker = {
            "bootstrap.servers": kafka,
            "listeners": f"http://{self.address}",
            "offset.storage.file.filename": str(directory / "offsets"),
            "offset.flush.interval.ms": "1000",
            **converter,
        }

    def _command(self) -> list[str]:
        files = []
        for name, settings in (("worker", self._worker), ("connector", self._connector)):
            file = self.directory / f"{name}.properties"
            file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            files.append(str(file))
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        return self._java(HEAP, connect_jars(), main, *files, versions=BROKER_VERSIONS)

    def _answers(self) -> bool:
        time.sleep(0.2)
        try:
            with urlopen(f"http://{self.address}/connectors/{self._connector['name']}/status", timeout=5) as answer:
                tasks = json.load(answer)["tasks"]
        except (URLError, ConnectionError):
            return False
        failed = [task["trace"] for task in tasks if task["state"] == "FAILED"]
        if failed:
            raise Unavailable(f"the connector failed: {failed[0]}")
        return bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)


def connect_jars() -> list[Path]:
    return fetch("connect", CONNECT)


def _program(name: str) -> str:
    """Returns where a program is; Debian does not have those of a Postgres server on PATH. Raises Unavailable."""
    places: Sequence[Path] = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = str(places[-1]) if places else shutil.which(name)
    if found is None:
        raise Unavailable(f"no {name} here: {MISSING}")
    return found
