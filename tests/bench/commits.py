"""Times begin and commit alone, by how many commits came since Hudi compacted the metadata table.

`python -m tests.bench.commits --table-partitions 8 --files 2 --set hoodie.metadata.compact.max.delta.commits=20` makes
small commits in one JVM, without a fleet and without Kafka. Prints seconds of begin and commit. A commit carries the
statistics of its data files and reads none of them, so only the first commit's file exists.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from coordination.state.model import Checkpoint, PartitionCheckpoint, Slice, TableView, TopicPartition, WriteTask
from sink.clients.spark.session import start_session
from sink.config import Settings
from sink.hudi.table import Table
from sink.schema.table_schema import META_COLUMNS, TableSchema, parse_ddl
from sink.storage.files import open_storage
from sink.write.files.base_file import Attempt, BaseFile, InstantGuard
from sink.write.files.parquet_layout import choose_layout
from tests.one_sink import load
from tests.unlocked import unlocked

DDL = "order_id bigint, customer string, region string, amount double, note string"
SINK = "commits"
TASK = WriteTask((Slice("orders", 0, 0, 9, "topic-id", 0),))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=20)
    parser.add_argument("--table-partitions", type=int, default=1)
    parser.add_argument("--files", type=int, default=1, help="files of a commit in each table partition")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the sink")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sink-commits-") as directory:
        times = list(_commits(Path(directory), options))
    for number, (begin, commit) in enumerate(times, 1):
        print(f"{number:4}: begin {begin:.3f} s, commit {commit:.3f} s")
    later = times[len(times) // 2 :]
    print(f"median of the second half: commit {statistics.median(commit for _, commit in later):.3f} s")
    return 0


def _commits(directory: Path, options: argparse.Namespace) -> Iterator[tuple[float, float]]:
    settings = _settings(directory, options)
    schema = parse_ddl(DDL, settings.provenance)
    spark = start_session(settings.session, SINK, directory / "spark.log")
    table = Table(spark, settings.table, schema, unlocked)
    table.ensure()
    template: dict[str, Any] = {}
    for number in range(1, options.commits + 1):
        begin_started = time.monotonic()
        instant = table.begin(number, 1)
        begin_ended = time.monotonic()
        template = template or _one_file(settings, schema, instant)
        stats = [json.dumps(stat) for stat in _stats(template, instant, options)]
        commit_started = time.monotonic()
        table.complete(instant, stats, _checkpoint(number), _allow)
        yield begin_ended - begin_started, time.monotonic() - commit_started
    table.stop_heartbeats()
    spark.stop()


def _settings(directory: Path, options: argparse.Namespace) -> Settings:
    settings: dict[str, object] = {
        "sink.name": SINK,
        "zookeeper.connect": "127.0.0.1:9",
        "kafka.bootstrap.servers": "127.0.0.1:9",
        "kafka.topic.names": "orders",
        "target.base.path": str(directory / "table"),
        "target.table.name": "orders",
        "schema.ddl": DDL,
        "record.key.fields": "order_id",
        "spark.master": "local[2]",
        **dict(assignment.split("=", 1) for assignment in options.set),
    }
    if options.table_partitions > 1:
        settings["partition.field.name"] = "region"
    config = directory / "sink.yaml"
    config.write_text(yaml.safe_dump(settings))
    return load(config)


def _one_file(settings: Settings, schema: TableSchema, instant: str) -> dict[str, Any]:
    """Writes a file of a hundred rows, and returns its write stat with column statistics."""
    texts = pa.array([f"text {number}" for number in range(100)])
    numbers = pa.array(range(100))
    columns = [numbers.cast(field.type) if _is_number(field.type) else texts for field in schema.arrow]
    rows = pa.table([texts] * len(META_COLUMNS) + columns, names=[*META_COLUMNS, *schema.arrow.names])
    storage = open_storage(settings.base_path)
    file = BaseFile(storage, InstantGuard(storage, instant), Attempt(SINK, SINK, instant, "0-0-0", TASK), "", 0)
    file.open(choose_layout(rows, (), ()), "zstd")
    file.write(rows)
    stat: dict[str, Any] = json.loads(file.close())
    return stat


def _is_number(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_timestamp(data_type))


def _stats(template: dict[str, Any], instant: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for number in range(options.table_partitions):
        path = f"region{number}" if options.table_partitions > 1 else ""
        for _ in range(options.files):
            file_id = f"{uuid.uuid4()}-0"
            name = f"{file_id}_{number}-0-0_{instant}.parquet"
            yield {**template, "fileId": file_id, "partitionPath": path, "path": f"{path}/{name}".lstrip("/")}


def _allow(_: TableView) -> None:
    """Allows every commit: no other process writes to the table."""


def _checkpoint(number: int) -> Checkpoint:
    ends = {TopicPartition("orders", 0): PartitionCheckpoint(number * 10, 0)}
    return Checkpoint(SINK, "keeper", "cluster", 1, number, number - 1, "config", {"orders": "topic-id"}, ends)


if __name__ == "__main__":
    sys.exit(main())
