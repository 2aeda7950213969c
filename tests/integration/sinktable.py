"""Surroundings of the engine for the writer's tests: settings, records in a topic, a table and its readers."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka.admin import AdminClient

from coordination.state.model import Slice, WriteTask
from sink.audit.log import as_kafka_prints
from sink.config import Settings
from sink.hudi.specification import LOCK_BASE_PATH
from tests.integration.reader_kit import kept_producer
from tests.kafka_tools import topic_id_of
from tests.one_sink import load

FIRST_TIMESTAMP = int(time.time()) * 1000
"""Milliseconds of a partition's first record. It is recent, because the broker deletes by the records' own age."""


def own_lock(base_path: str) -> dict[str, str]:
    """Returns the settings of a table lock that no table of the same name has in another test process."""
    return {LOCK_BASE_PATH: f"/hudi/{uuid.uuid5(uuid.NAMESPACE_URL, base_path)}"}


def make_settings(directory: Path, kafka: str, topic: str, ddl: str, **more: str) -> Settings:
    """Loads settings as a user gives them; keyword names have `__` for a dot."""
    properties = {
        "zookeeper.connect": "127.0.0.1:2181",
        "kafka.bootstrap.servers": kafka,
        "kafka.topic.names": topic,
        "target.base.path": str(directory / "table"),
        "target.table.name": "orders",
        # The tests' producers write decimals as digits.
        "decimal.format": "numeric",
        **({"schema.ddl": ddl} if ddl else {}),
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    properties = {**own_lock(properties["target.base.path"]), **properties}
    file = directory / "sink.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return load(file, {})


def produce(kafka: str, topic: str, values: Sequence[bytes | str | None], partition: int = 0) -> None:
    producer = kept_producer(kafka)
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value=value,
            key=str(number).encode(),
            partition=partition,
            timestamp=FIRST_TIMESTAMP + number,
        )
        producer.poll(0)
    assert producer.flush(60) == 0


def topic_id(kafka: str, topic: str) -> str:
    from confluent_kafka import TopicCollection

    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 3})
    described = admin.describe_topics(TopicCollection([topic]))
    return as_kafka_prints(described[topic].result(timeout=30).topic_id)


def slices_of(topic: str, *ranges: tuple[int, int, int], generation: int = 0) -> list[Slice]:
    """One slice for each `(partition, start, end)`."""
    return [Slice(topic, partition, start, end, topic_id_of(topic), generation) for partition, start, end in ranges]


def tasks_of(topic: str, *ranges: tuple[int, int, int], generation: int = 0) -> list[WriteTask]:
    """One write task for each `(partition, start, end)`."""
    return tasks_for(slices_of(topic, *ranges, generation=generation))


def tasks_for(slices: Sequence[Slice]) -> list[WriteTask]:
    """A write task for each slice."""
    return [WriteTask((planned_slice,)) for planned_slice in slices]


def one_task(*slices: Slice) -> list[WriteTask]:
    """One write task that reads them all, in this order."""
    return [WriteTask(slices)]


def stats_of(written: Any) -> list[dict[str, Any]]:
    return [json.loads(stat) for stat in written.stats]


class OpenInstant:
    """An instant that is open as far as a task can see, for tests that need no table around the files."""

    def __init__(self, base: Path, instant: str = "20240101000000000") -> None:
        self.base = base
        self.name = instant
        self.inflight = base / ".hoodie" / "timeline" / f"{instant}.inflight"
        self.inflight.parent.mkdir(parents=True, exist_ok=True)
        self.inflight.touch()

    def complete(self) -> None:
        (self.inflight.parent / f"{self.name}_20240101000001000.commit").touch()

    @property
    def data_files(self) -> list[Path]:
        return sorted(path for path in self.base.rglob("*.parquet") if ".hoodie" not in path.parts)

    @property
    def markers(self) -> list[Path]:
        return sorted((self.base / ".hoodie" / ".temp" / self.name).rglob("*.marker.CREATE"))

    @property
    def marked(self) -> set[str]:
        """Data files that a marker names, relative to the table."""
        marker_directory = self.base / ".hoodie" / ".temp" / self.name
        return {str(path.relative_to(marker_directory)).removesuffix(".marker.CREATE") for path in self.markers}


def rows_of(paths: Sequence[Path]) -> pa.Table:
    """All rows of base files, read one file at a time and without guessing partitions."""
    import pyarrow.parquet as pq

    return pa.concat_tables([pq.ParquetFile(path).read() for path in paths])
