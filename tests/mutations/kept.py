"""The kept tables, and the log of each as the audit's reader of Kafka gets it: from a file instead of brokers.

The reader is the audit's own, with its ranges, ends and identities; only the two clients below it are replaced.
"""

from __future__ import annotations

import base64
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from sink.audit import log
from sink.audit.audit import audit
from sink.audit.log import TopicAccess
from sink.audit.report import Report

KEPT = Path(__file__).parents[1] / "data" / "mutations"
TOPIC = "orders"
Place = tuple[str, int]
"""Topic and partition."""


@dataclass
class KeptLog:
    """The records of topics. `records` by topic and partition, with rising offsets; `ids` of the topics."""

    records: Mapping[Place, Sequence[Message]]
    ids: Mapping[str, str]

    def end(self, place: Place) -> int:
        return max((int(message.offset() or 0) + 1 for message in self.records[place]), default=0)


def log_of(topic: str, topic_id: str, records: Iterable[Mapping[str, Any]], partitions: int = 1) -> KeptLog:
    """A log of records: partition, offset, timestamp, key, value and maybe headers."""
    by_place: dict[Place, list[Message]] = {(topic, number): [] for number in range(partitions)}
    for record in records:
        place = topic, record["partition"], record["offset"]
        moment = (TIMESTAMP_CREATE_TIME, record["timestamp"])
        message = Message(*place, record["key"], record["value"], record.get("headers"), None, moment)
        by_place.setdefault(place[:2], []).append(message)
    return KeptLog(by_place, {topic: topic_id})


def content(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def read_log(file: Path) -> KeptLog:
    """Reads a log whose keys, values and values of headers are in base64."""
    head, *records = map(json.loads, file.read_text().splitlines())
    for record in records:
        record["key"], record["value"] = content(record["key"]), content(record["value"])
        record["headers"] = [(name, content(part)) for name, part in record["headers"]] or None
    return log_of(head["topic"], head["topic_id"], records, head["partitions"])


class _Consumer:
    """The methods of `TopicConsumer` that the audit's reader calls."""

    def __init__(self, kept: KeptLog, *_: object) -> None:
        self._kept = kept
        self._waiting: list[Message] = []
        self._expected: Mapping[str, str] = {}

    def bind(self, topic_ids: Mapping[str, str]) -> None:
        self._expected = topic_ids

    def assign(self, partitions: Sequence[KafkaPartition]) -> None:
        for partition in partitions:
            place = partition.topic, partition.partition
            assert self._expected[partition.topic] == self._kept.ids[partition.topic]
            found = [entry for entry in self._kept.records[place] if int(entry.offset() or 0) >= partition.offset]
            end = KafkaError(KafkaError._PARTITION_EOF)
            self._waiting += [*found, Message(*place, self._kept.end(place), None, None, None, end)]

    def consume(self, count: int, _: float) -> list[Message]:
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    def get_watermark_offsets(self, partition: KafkaPartition, timeout: float) -> tuple[int, int]:  # noqa: ARG002
        place = partition.topic, partition.partition
        first = next((int(entry.offset() or 0) for entry in self._kept.records[place]), 0)
        return first, self._kept.end(place)

    def pause(self, _: Sequence[KafkaPartition]) -> None: ...

    def resume(self, _: Sequence[KafkaPartition]) -> None: ...

    def unassign(self) -> None:
        self._waiting = []

    def close(self) -> None: ...


class _Admin:
    """The methods of confluent-kafka's admin client that the audit's reader calls."""

    def __init__(self, kept: KeptLog, *_: object) -> None:
        self._kept = kept

    def close(self) -> None: ...

    def describe_topics(self, topics: Any, **_: object) -> dict[str, Future[Any]]:
        return {name: self._described(name) for name in topics.topic_names}

    def _described(self, name: str) -> Future[Any]:
        future: Future[Any] = Future()
        if name in self._kept.ids:
            partitions = [SimpleNamespace(id=number) for topic, number in self._kept.records if topic == name]
            future.set_result(SimpleNamespace(partitions=partitions, topic_id=self._kept.ids[name]))
        else:
            future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return future

    def describe_configs(self, resources: Sequence[Any], **_: object) -> dict[Any, Future[Any]]:
        answers: dict[Any, Future[Any]] = {resource: Future() for resource in resources}
        for future in answers.values():
            future.set_result({"cleanup.policy": SimpleNamespace(value="delete")})
        return answers


@contextmanager
def reading(kept: KeptLog) -> Iterator[TopicAccess]:
    """The audit's reader reads these records meanwhile. Yields the access to give to it."""
    clients = {"TopicConsumer": partial(_Consumer, kept), "make_admin": partial(_Admin, kept)}
    with patch.multiple(log, **clients):
        yield TopicAccess("kept", topics=tuple(kept.ids))


@dataclass(frozen=True)
class KeptTable:
    """An unpacked table. `directory` has `table`, `log.jsonl` and maybe `table_errors` and `earlier`."""

    directory: Path
    global_keys: bool = False

    @property
    def table(self) -> Path:
        return self.directory / "table"

    @cached_property
    def log(self) -> KeptLog:
        return read_log(self.directory / "log.jsonl")

    def audit(self) -> Report:
        with reading(self.log) as access:
            return audit(str(self.table), access=access, content=True, global_keys=self.global_keys)


def unpack(name: str, directory: Path) -> Path:
    """Unpacks a kept table. Returns its directory."""
    with tarfile.open(KEPT / f"{name}.tar.xz") as archive:
        archive.extractall(directory / name, filter="data")
    return directory / name
