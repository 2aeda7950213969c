"""Records what Debezium's connectors write about a real Postgres and a real MariaDB, as cases of `tests/reports`.

`python -m tests.debezium [CASE ...]` records the cases that have a `source.sql`: all, or those that are named. It runs
Kafka, Kafka Connect and the database of each case on this machine. Beside `sink.yaml` such a case has

- `connector.properties`: the connector's settings, without addresses; `source.table` is the table that is recorded,
  and those of the converters begin with `key.` or `value.`.
- `source.sql`: statements, in parts. The first part runs before the connector starts. Each of the others begins with a
  line `-- after N records`: it runs when the table's topic has so many. The last one selects the rows that the sink's
  table holds at the end, each as a JSON object in a line.

`records.jsonl` and the `rows` of `expected.json` are recorded: the database says what is right. Which offsets are bad,
and why, is written there by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message

from sink.devtools.local.kafka import KafkaServer
from tests.debezium.servers import USER, Connect, Database, MariaDb, Postgres, connect_jars
from tests.reports.case_kit import CASES
from tests.waiting import eventually

DATABASES: Mapping[str, type[Database]] = {
    "io.debezium.connector.postgresql.PostgresConnector": Postgres,
    "io.debezium.connector.mysql.MySqlConnector": MariaDb,
}
AFTER = re.compile(r"^-- after (\d+) records\n", re.MULTILINE)
SIGNALS = "CREATE TABLE signals (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL);\n"


@dataclass(frozen=True)
class Script:
    """`before` runs before the connector starts, `then` when the topic has a number of records, `rows` at the end."""

    before: str
    then: Sequence[tuple[int, str]]
    rows: tuple[int, str]

    @classmethod
    def load(cls, file: Path) -> Script:
        before, *parts = AFTER.split(file.read_text())
        then = [(int(count), text) for count, text in zip(parts[::2], parts[1::2], strict=True)]
        return cls(before, then[:-1], then[-1])


def main(arguments: Sequence[str] | None = None) -> int:
    recorded = sorted(file.parent.name for file in CASES.glob("*/source.sql"))
    parser = argparse.ArgumentParser(prog="python -m tests.debezium", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(recorded)}")
    names = parser.parse_args(arguments).cases or recorded
    connect_jars()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="debezium-")))
        # Postgres runs as a user of its own.
        directory.chmod(0o755)
        servers = Servers(directory, stack)
        for name in names:
            print(f"{name}: {record(CASES / name, servers)} records", flush=True)
    return 0


class Servers:
    """A broker, and the databases that were asked for. They stop with the stack."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self._stack = stack
        self.kafka = stack.enter_context(KafkaServer(directory / "kafka")).address
        self._databases: dict[type[Database], Database] = {}

    def database(self, connector: str) -> Database:
        """Returns the server that a class of connectors reads, with an empty database."""
        kind = DATABASES[connector]
        if kind not in self._databases:
            self._databases[kind] = self._stack.enter_context(kind(self.directory / kind.__name__))
        self._databases[kind].renew()
        return self._databases[kind]


def record(case: Path, servers: Servers) -> int:
    """Records one case. Returns how many records its topic has."""
    settings = dict(
        line.split("=", 1) for line in (case / "connector.properties").read_text().splitlines() if "=" in line
    )
    table, script = settings.pop("source.table"), Script.load(case / "source.sql")
    with ExitStack() as stack:
        database = servers.database(settings["connector.class"])
        database.run(f"{SIGNALS}{script.before}")
        connector = {
            **connection(case.name, database, servers.kafka),
            **{name: value for name, value in settings.items() if not is_of_converter(name)},
            "table.include.list": table,
        }
        converter = {name: value for name, value in settings.items() if is_of_converter(name)}
        connect = stack.enter_context(Connect(servers.directory / case.name, servers.kafka, connector, converter))
        topic = Topic(servers.kafka, f"{case.name}.{table}")
        stack.callback(topic.close)
        for count, statements in script.then:
            topic.read(count, connect.tail)
            database.run(statements)
        topic.read(script.rows[0], connect.tail)
        rows = [json.loads(line) for line in database.run(script.rows[1]).splitlines()]
    write(case, topic.records, rows)
    return len(topic.records)


def is_of_converter(name: str) -> bool:
    return name.startswith(("key.", "value."))


def connection(name: str, database: Database, kafka: str) -> dict[str, str]:
    """Returns the settings of the connector `name` that no case has of its own."""
    return {
        "name": name,
        "topic.prefix": name,
        "database.hostname": database.address.partition(":")[0],
        "database.port": str(database.port),
        "database.user": USER,
        "database.password": USER,
        "schema.history.internal.kafka.bootstrap.servers": kafka,
        "schema.history.internal.kafka.topic": f"{name}.history",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
        **database.connection(),
    }


class Topic:
    """The records of a topic's only partition, in order."""

    def __init__(self, kafka: str, name: str) -> None:
        self.records: list[Message] = []
        self._name = name
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": "recorder",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        self._consumer.subscribe([name])

    def read(self, count: int, log: Any) -> None:
        """Reads until there are `count` records. Raises AssertionError with the log if there are more, or too few."""
        eventually(f"{self._name} has {count} records", lambda: self._has(count), 90, log)
        assert len(self.records) == count, f"{self._name} has {len(self.records)} records instead of {count}"

    def close(self) -> None:
        self._consumer.close()

    def _has(self, count: int) -> bool:
        message = self._consumer.poll(0.5)
        if message is not None and not message.error():
            self.records.append(message)
        # Nothing more comes for a moment: what is not expected would be missed otherwise.
        return message is None and len(self.records) >= count


def write(case: Path, records: Sequence[Message], rows: Sequence[Mapping[str, Any]]) -> None:
    with (case / "records.jsonl").open("w") as file:
        for message in records:
            key, value = (content and content.decode() for content in (message.key(), message.value()))
            file.write(json.dumps({"key": key, "value": value, "timestamp": message.timestamp()[1]}) + "\n")
    file = case / "expected.json"
    known = json.loads(file.read_text()) if file.exists() else {"bad": []}
    expected = {"rows": rows} | {name: value for name, value in known.items() if name != "rows"}
    rows_text = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows)
    rest = [f' "{name}": {json.dumps(value, ensure_ascii=False)}' for name, value in expected.items() if name != "rows"]
    file.write_text("{\n" + ",\n".join([f' "rows": [\n{rows_text}\n ]', *rest]) + "\n}\n")


if __name__ == "__main__":
    raise SystemExit(main())
