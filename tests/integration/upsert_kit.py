"""The kit of upsert tests: a table with its engine, keyed records in a topic, and the rows that the table must hold.

The expected rows are computed without Spark and Hudi.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from hudi import HudiTableBuilder
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from coordination.state.model import LogView, PartitionCheckpoint, Slice, TopicPartition
from sink.audit.audit import audit
from sink.hudi.client import HudiClient
from sink.hudi.lock import TableLocks
from sink.hudi.options import commit_options
from sink.hudi.table import Table, TableOutcome
from sink.write.engines.engine import UpsertEngine, WriteResult
from sink.write.rows.row_spec import ColumnResolver, table_schema
from tests.integration.sinktable import make_settings, slices_of, tasks_of
from tests.integration.table_kit import METADATA, SINK, allow, checkpoint, other_writer_options
from tests.kafka_tools import topic_id_of

DDL = "id bigint, at bigint, kind string not null, amount decimal(10,2), tags array<string>"
NO_METADATA = {"hoodie__metadata__enable": "false"}
ORDERED = {"ordering__field__name": "at"}
BY_LOG = {"delete__key__format": "string"}
ON_READ = {"target__table__type": "merge_on_read"}
RECORD_INDEX = {
    "index__type": "record",
    # Hudi's defaults are for large tables: each of these is a task.
    "hoodie__metadata__global__record__level__index__min__filegroup__count": "1",
    "hoodie__metadata__index__column__stats__enable": "false",
}
BUCKETS = {"index__type": "bucket", "hoodie__bucket__index__num__buckets": "3"}
INDEXES = {"bucket": BUCKETS, "record": RECORD_INDEX, "bloom": {"index__type": "bloom"}}

UPSERTING: Mapping[str, object] = {
    "schema.ddl": DDL,
    "write.operation": "upsert",
    "record.key.fields": "id",
    "delete.key.format": "string",
    "decimal.format": "numeric",
    "provenance.columns": False,
}
"""A fleet's settings for the changes of a `Log`."""
BY_RECORD_INDEX: Mapping[str, object] = {
    **METADATA,
    "target.table.type": "merge_on_read",
    **{name.replace("__", "."): value for name, value in RECORD_INDEX.items()},
}
"""A fleet's settings for a merge-on-read table with a record index."""

Change = tuple[bytes | None, bytes | None]
"""A record's key and value."""


def send(kafka: str, topic: str, changes: Iterable[Change], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 20})
    for key, value in changes:
        producer.produce(topic, value=value, key=key, partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0


class Upserts:
    """A table of its own, with its engine."""

    def __init__(
        self, spark: SparkSession, client: KazooClient, directory: Path, kafka: str, topic: str, **more: str
    ) -> None:
        directory.mkdir(exist_ok=True)
        options = {
            "zookeeper__connect": ",".join(f"{host}:{port}" for host, port in client.hosts),
            "write__operation": "upsert",
            "record__key__fields": "id",
            "provenance__columns": "false",
            **more,
        }
        ddl = options.pop("ddl", DDL)
        self.spark = spark
        self.settings = make_settings(directory, kafka, topic, ddl, **options)
        self.topic = topic
        self.table, self.engine = self.another(client)
        self.engine.check()
        self.table.ensure()
        self.number = 0
        self.ends: dict[TopicPartition, PartitionCheckpoint] = {}
        self._columns = ""
        self.hudi = HudiClient(spark, self.settings.table.store, self._avro(), commit_options(self.settings.table))
        self.none = self.hudi.option()

    def services(self, options: Mapping[str, str] | None = None) -> Any:
        """Returns another writer's client for table services, which takes the same lock."""
        eager = {
            "hoodie.compact.inline.max.delta.commits": "1",
            "hoodie.clustering.async.enabled": "false",
            "hoodie.clustering.plan.strategy.single.group.clustering.enabled": "true",
        }
        client_options = {**other_writer_options(self.settings), **eager, **(options or {})}
        other_writer = HudiClient(self.spark, self.settings.table.store, self._avro(), client_options)
        return other_writer.client

    def _avro(self) -> str:
        return table_schema(self.settings.table, self.settings.records).avro(self.settings.table_name)

    def go_on_as(self, earlier: Upserts) -> Upserts:
        """Continues after the transactions that `earlier`, the same sink with other settings, has landed."""
        self.number, self.ends = earlier.number, earlier.ends
        return self

    def another(self, client: KazooClient) -> tuple[Table, UpsertEngine]:
        """Returns a table and an engine as another worker has them."""
        schema = table_schema(self.settings.table, self.settings.records)
        locks = TableLocks(client, self.settings.table.lock)
        return Table(self.spark, self.settings.table, schema, locks), UpsertEngine(
            self.spark, self.settings.table, self.settings.records, schema
        )

    @property
    def inflight(self) -> str:
        """The suffix of a pending write's file name."""
        return ".deltacommit.inflight" if self.hudi.merges_on_read else ".inflight"

    def begin(self) -> str:
        return self.table.begin(self.number + 1, 1)

    def columns(self) -> LogView:
        """The columns that a coordinator would give the next transaction."""
        return ColumnResolver(self.settings.table, self.settings.records, self.table).resolve(LogView("cluster", {}))

    def write(self, instant: str, *ranges: tuple[int, int, int]) -> WriteResult:
        self._columns = self.columns().columns
        return self.engine.write(instant, tasks_of(self.topic, *ranges), self._columns)

    def complete(self, instant: str, written: WriteResult, table: Table | None = None) -> TableOutcome:
        ends = dict(self.ends)
        for result in written.results:
            ends[result.slice.source] = PartitionCheckpoint(result.slice.end, 0)
        new_checkpoint = replace(
            checkpoint(self.number + 1),
            topics={self.topic: topic_id_of(self.topic)},
            ends=ends,
            results=written.results,
            schemas=dict(written.schemas),
        )
        outcome = (table or self.table).complete(instant, written.stats, new_checkpoint, allow, self._columns)
        if outcome is TableOutcome.COMPLETED:
            self.number, self.ends = self.number + 1, ends
        return outcome

    def land(self, *ranges: tuple[int, int, int]) -> WriteResult:
        """Lands a whole transaction."""
        instant = self.begin()
        written = self.write(instant, *ranges)
        assert self.complete(instant, written) is TableOutcome.COMPLETED
        return written

    def rows(self, **options: str) -> list[dict[str, Any]]:
        frame = self.spark.read.format("hudi").options(**options).load(self.settings.base_path)
        hidden = [name for name in frame.columns if name.startswith("_hoodie")]
        return sorted((row.asDict() for row in frame.drop(*hidden).collect()), key=lambda row: (row["id"], row["at"]))

    def brief(self) -> dict[int, tuple[int, str]]:
        """Returns the ordering value and the kind of each id."""
        return {row["id"]: (row["at"], row["kind"]) for row in self.rows()}

    def files(self) -> dict[Path, bytes]:
        """Returns all data and log files, visible to readers or not."""
        base = Path(self.settings.base_path)
        paths = (path for path in base.rglob("*") if path.is_file() and ".hoodie" not in path.parts)
        return {path: path.read_bytes() for path in paths if ".parquet" in path.name or ".log." in path.name}


@dataclass(frozen=True)
class Log:
    """Random changes of few keys, as they were sent to partitions."""

    partitions: Sequence[Sequence[Mapping[str, Any] | int]]
    """A row, with `_hoodie_is_deleted` or without, or the id that a tombstone deletes."""

    def changes(self, partition: int) -> list[Change]:
        records: list[Change] = []
        for change in self.partitions[partition]:
            if isinstance(change, int):
                records.append((str(change).encode(), None))
            else:
                records.append((str(change["id"]).encode(), json.dumps(change).encode()))
        return records


def random_log(seed: int, partitions: int, count: int, keys: int, ordered: bool) -> Log:
    """Returns `count` random changes of `keys` keys. A key is always in the same partition.

    With `ordered`, ordering values come out of order and often twice, also those of deletes. A row that comes back
    after a delete is never older than the delete: Hudi promises nothing for such a row. Without `ordered`, there are
    tombstones.
    """
    rng = random.Random(seed)
    changes: list[list[Mapping[str, Any] | int]] = [[] for _ in range(partitions)]
    deleted: dict[int, int] = {}
    for step in range(count):
        key = rng.randrange(keys)
        at = max(step // 8 + rng.randrange(-40, 40), deleted.get(key, 1))
        row = {
            "id": key,
            "at": at,
            "kind": rng.choice(["buy", "view", "click"]),
            "amount": f"{rng.randrange(10**6) / 100:.2f}",
            "tags": rng.choice([None, [], ["a", None], ["b"]]),
        }
        deletes = rng.random() < 0.2
        if deletes:
            deleted[key] = at
        tombstone = deletes and not ordered and rng.random() < 0.5
        changes[key % partitions].append(key if tombstone else {**row, "_hoodie_is_deleted": True} if deletes else row)
    return Log(changes)


def expected(log: Log, slices: Sequence[Slice], ordered: bool) -> dict[int, Any]:
    """Returns the table's rows by id after these slices of the log, in their order: the newest change of each key."""
    rows: dict[int, Any] = {}
    for log_slice in slices:
        for change in log.partitions[log_slice.partition][log_slice.start : log_slice.end]:
            if isinstance(change, int):
                rows.pop(change, None)
            elif not ordered or change["at"] >= rows.get(change["id"], change)["at"]:
                rows[change["id"]] = change
    return {key: row for key, row in rows.items() if not row.get("_hoodie_is_deleted")}


def plain(rows: Mapping[int, Any]) -> list[dict[str, Any]]:
    """Returns the rows as the table's reader shows them."""
    plain_rows = []
    for _, row in sorted(rows.items()):
        columns = {name: value for name, value in row.items() if not name.startswith("_")}
        plain_rows.append({**columns, "amount": Decimal(columns["amount"])})
    return plain_rows


def rows(table: Path) -> list[dict[str, Any]]:
    """Returns the rows as hudi-rs reads them, in the form of `plain`."""
    batches = HudiTableBuilder.from_base_uri(table.as_uri()).build().read()
    stored_rows = (row for batch in batches for row in batch.to_pylist())
    plain_rows = ({name: value for name, value in row.items() if not name.startswith("_")} for row in stored_rows)
    return sorted(plain_rows, key=lambda row: row["id"])


def lands_after_a_rollback(upserts: Upserts, log: Log, topic: str) -> None:
    """Lands the 900 changes of the one partition, a third of them again after an attempt that is rolled back.

    Compares the rows with the log and runs the auditor.
    """
    upserts.land((0, 0, 300))
    failed_instant = upserts.begin()
    upserts.write(failed_instant, (0, 300, 600))
    upserts.table.roll_back(failed_instant)
    upserts.land((0, 300, 600))
    upserts.land((0, 600, 900))
    upserts.table.stop_heartbeats()
    assert upserts.rows() == plain(expected(log, slices_of(topic, (0, 0, 900)), ordered=False))
    report = audit(upserts.settings.base_path, SINK, storage=upserts.settings.storage)
    assert report.held, report.to_json()


def change(key: int, at: int, **more: Any) -> tuple[bytes, bytes]:
    return str(key).encode(), json.dumps({"id": key, "at": at, "number": at, **more}).encode()


def assert_rows(upserts: Upserts, rows: Mapping[int, Mapping[str, Any]]) -> None:
    """Holds that Spark, with and without the metadata table, and hudi-rs return these rows."""
    for metadata in ("true", "false"):
        assert {row.pop("id"): row for row in upserts.rows(**{"hoodie.metadata.enable": metadata})} == rows, metadata
    batches = HudiTableBuilder.from_base_uri(Path(upserts.settings.base_path).as_uri()).build().read()
    read = [{k: v for k, v in row.items() if not k.startswith("_")} for batch in batches for row in batch.to_pylist()]
    assert {row.pop("id"): row for row in read} == rows, "hudi-rs"
