"""Makes the healthy tables that `tests/unit/test_audit_mutations.py` breaks: by the real sink, once.

`python -m tests.mutations.make [NAME...]` starts ZooKeeper, Kafka and Spark, lands records, runs the table services and
packs each table with its topic's records into `tests/data/mutations/NAME.tar.xz`: `table`, `table_errors`, `earlier`
(the table before its last transaction) and `log.jsonl`.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from sink.clients.spark.session import start_session
from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.conftest import topics
from tests.integration.errors_kit import Sink
from tests.integration.sinktable import FIRST_TIMESTAMP, make_settings, topic_id
from tests.integration.table_kit import connected
from tests.integration.upsert_kit import Upserts
from tests.jvm import end_jvm, start_fast
from tests.mutations.kept import KEPT, TOPIC
from tests.one_sink import load

PARTITIONS = 2
DDL = (
    "id bigint, at bigint, kind string not null, amount decimal(10,2), price double, seen timestamp, tags array<string>"
)
DAYS = ("mon", "tue")
KINDS = ("buy", "view", "click")
SHORT_HISTORY = {
    "hoodie__keep__min__commits": "3",
    "hoodie__keep__max__commits": "4",
    "hoodie__clean__commits__retained": "1",
}
SMALL_FILTER = {"hoodie__index__bloom__num_entries": "100"}
CHANGES_IN_LOGS = {"hoodie__parquet__small__file__limit": "0"}
"""Else Hudi rewrites base files that are small, and has no log files."""

Message = tuple[int, bytes | None, bytes | None]
"""Partition, key and value."""


def value(number: int, **more: Any) -> bytes:
    """Returns a row in JSON. Decimals with a fraction, doubles without an exact one, times with microseconds."""
    row = {
        "id": number,
        "at": number * 10,
        "kind": KINDS[number % 3],
        "amount": f"{number}.{number % 90 + 10}",
        "price": number / 7,
        "seen": f"2026-03-0{number % 9 + 1}T10:00:00.00{number % 10}{number % 7}01Z",
        "tags": [None, [], ["a", None], ["b", str(number)]][number % 4],
    }
    return json.dumps({**row, **more}).encode()


class Log:
    """Sends records to a topic, and keeps what it sent."""

    def __init__(self, kafka: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": kafka, "linger.ms": 5})
        self._kafka, self._topic = kafka, topic
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.records: list[dict[str, Any]] = []

    def send(self, *messages: Message) -> list[tuple[int, int, int]]:
        """Returns the new ranges: partition, start and end."""
        starts = dict(self.ends)
        for number, (partition, key, content) in enumerate(messages):
            moment = FIRST_TIMESTAMP + self.ends[partition] * 1000 + number
            headers: Any = [("trace", b"\x00\xff"), ("empty", None)] if number % 2 else []
            self._producer.produce(self._topic, content, key, partition, timestamp=moment, headers=headers)
            record = {"partition": partition, "offset": self.ends[partition], "timestamp": moment}
            texts = [None if part is None else base64.b64encode(part).decode() for part in (key, content)]
            kept = [[name, None if part is None else base64.b64encode(part).decode()] for name, part in headers]
            self.records.append({**record, "key": texts[0], "value": texts[1], "headers": kept})
            self.ends[partition] += 1
        assert self._producer.flush(60) == 0
        return [(number, starts[number], end) for number, end in self.ends.items() if end > starts[number]]

    def write(self, file: Path) -> None:
        head = {"topic": TOPIC, "topic_id": topic_id(self._kafka, self._topic), "partitions": PARTITIONS}
        file.write_text("".join(json.dumps(line) + "\n" for line in (head, *self.records)))


class Maker:
    """Makes tables in `directory`, and packs them."""

    def __init__(self, directory: Path, spark: SparkSession, kafka: str, client: KazooClient) -> None:
        self.directory, self.spark, self.kafka, self.client = directory, spark, kafka, client

    def appends(self, base: Path, log: Log) -> None:
        """Appends in table partitions, with bad records; clustered, cleaned and archived."""
        settings = make_settings(
            base,
            self.kafka,
            TOPIC,
            f"{DDL}, day string",
            zookeeper__connect=self._zookeeper,
            sink__name="appends",
            log__dir=str(base),
            errors__tolerance="all",
            partition__field__name="day",
            headers__column="true",
            key__format="string",
            services__clustering="true",
            hoodie__clustering__async__max__commits="1",
            **SHORT_HISTORY,
        )
        sink = Sink(self.spark, settings, self.client, TOPIC)
        for number in range(10):
            if number == 9:
                self.keep_earlier(base)
            if number in (3, 7):
                for result in (*sink.table.metadata_services(), *sink.table.services()):
                    print(result)
            rows = [
                (at % PARTITIONS, b"%d" % at, value(at, day=DAYS[at // 2 % 2]))
                for at in range(number * 12, number * 12 + 12)
            ]
            bad = [(0, b"bad", b'{"id": "x%d"}' % number), (1, b"bad", b"{")]
            sink.land(*log.send(*rows[:5], *(bad if number % 3 == 0 else []), *rows[5:]))
        sink.table.stop_heartbeats()

    def merged(self, base: Path, log: Log) -> None:
        """Changes by key in log files, deletes among them, behind a compaction."""
        more = {"target__table__type": "merge_on_read", "services__compaction": "true", "delete__key__format": "string"}
        more |= {"index__type": "bucket", "hoodie__bucket__index__num__buckets": "1"}
        more |= {"hoodie__compact__inline__max__delta__commits": "2", "provenance__columns": "true", **SMALL_FILTER}
        more |= CHANGES_IN_LOGS
        changes = Upserts(self.spark, self.client, base, self.kafka, TOPIC, ddl=DDL, **more)
        for number in range(6):
            if number == 5:
                self.keep_earlier(base)
            changes.land(*log.send(*_changes(number)))
            if number == 2:
                for result in (*changes.table.metadata_services(), *changes.table.services()):
                    print(result)
        changes.table.stop_heartbeats()

    def copied(self, base: Path, log: Log) -> None:
        """Changes by key in base files, ordered by a column."""
        changes = Upserts(
            self.spark,
            self.client,
            base,
            self.kafka,
            TOPIC,
            ddl=DDL,
            ordering__field__name="at",
            partition__field__name="kind",
            provenance__columns="true",
            **SMALL_FILTER,
        )
        for number in range(4):
            if number == 3:
                self.keep_earlier(base)
            changes.land(*log.send(*_ordered_changes(number)))
        changes.table.stop_heartbeats()

    def make(self, name: str, how: Callable[[Path, Log], None]) -> None:
        base = self.directory / name
        base.mkdir()
        with topics(self.kafka) as topic:
            log = Log(self.kafka, topic(PARTITIONS, TOPIC))
            how(base, log)
            log.write(base / "log.jsonl")
        pack(base, KEPT / f"{name}.tar.xz")

    def keep_earlier(self, base: Path) -> None:
        shutil.copytree(base / "table", base / "earlier")

    @property
    def _zookeeper(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.client.hosts)


def _changes(number: int) -> list[Message]:
    """New keys, changes of earlier ones, and tombstones. Each key stays in its Kafka and its table partition."""
    changed = [at for at in range(number * 6) if (at + number) % 3 == 0]
    created = range(number * 6, number * 6 + 6)
    rows = [(at % 2, b"%d" % at, value(at, at=number * 100, amount=f"{number}.5{at % 10}")) for at in changed]
    rows += [(at % 2, b"%d" % at, value(at)) for at in created]
    deleted = [at for at in range(max(0, number - 1) * 6) if at % 7 == number]
    return rows + [(at % 2, b"%d" % at, None) for at in deleted]


def _ordered_changes(number: int) -> list[Message]:
    """Like `_changes`, with deletes that have an ordering value, and changes that come too late to count."""
    changed = [at for at in range(number * 6) if (at + number) % 3 == 0]
    rows = [(at % 2, b"%d" % at, value(at, at=1000 * number + at, price=number / 3)) for at in changed]
    rows += [(at % 2, b"%d" % at, value(at)) for at in range(number * 6, number * 6 + 6)]
    rows += [(at % 2, b"%d" % at, value(at, at=-1, price=-1.0)) for at in range(number * 6) if at % 5 == number]
    gone = [at for at in range(max(0, number - 1) * 6) if at % 7 == number]
    return rows + [(at % 2, b"%d" % at, value(at, at=9000 + at, _hoodie_is_deleted=True)) for at in gone]


def pack(base: Path, file: Path) -> None:
    """Packs a table without what no reader reads."""

    def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        name = Path(member.name).name
        if name.endswith(".crc") or name in (".temp", ".heartbeat", ".bucket_index"):
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(file, "w:xz", preset=9) as archive:
        for name in ("table", "table_errors", "earlier", "log.jsonl"):
            if (base / name).exists():
                archive.add(base / name, name, filter=kept)
    print(file, file.stat().st_size)


@contextmanager
def a_maker(directory: Path) -> Iterator[Maker]:
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperServer(directory / "zookeeper"))
        kafka = stack.enter_context(KafkaServer(directory / "kafka", heap="256m"))
        properties = directory / "maker.properties"
        settings = {
            "zookeeper.connect": zookeeper.address,
            "kafka.bootstrap.servers": kafka.address,
            "kafka.topic.names": "none",
            "target.base.path": str(directory / "none"),
            "target.table.name": "none",
            "schema.ddl": "id long",
            "spark.master": "local[1]",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "1",
            "spark.default.parallelism": "1",
        }
        properties.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
        session = start_session(load(properties, {}).session, "maker", directory / "spark.log")
        stack.callback(end_jvm)
        stack.callback(session.stop)
        client = stack.enter_context(connected(zookeeper.address))
        yield Maker(directory, session, kafka.address, client)


if __name__ == "__main__":
    start_fast()
    KEPT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sink-mutations-") as place, a_maker(Path(place)) as maker:
        for name in sys.argv[1:] or ("appends", "merged", "copied"):
            maker.make(name, getattr(maker, name))
