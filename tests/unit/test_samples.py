"""A sample ends at its bounds, and reads with the settings of a worker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, Message
from settings_kit import minimal_settings

from coordination.errors import Unavailable
from coordination.state.model import LogView, PartitionLog, TopicPartition
from sink.clients.kafka.log import AccessDenied
from sink.operations import samples
from sink.operations.samples import Sample, SampleRequest, spans

VIEW = LogView("cluster", {TopicPartition("orders", number): PartitionLog("id", 0, 100) for number in (0, 1)})


class FakeConsumer:
    """Gives each list of messages once, and nothing from then on; each call takes a second."""

    def __init__(self, clock: list[float], *messages: Sequence[Message]) -> None:
        self._clock = clock
        self._messages = list(messages)
        self.is_closed = False

    def expect(self, *_: object) -> None: ...

    def assign(self, _: object) -> None: ...

    def pause(self, _: object) -> None: ...

    def consume(self, *_: object) -> Sequence[Message]:
        self._clock[0] += 1
        return self._messages.pop(0) if self._messages else ()

    def close(self) -> None:
        self.is_closed = True


def record(partition: int, offset: int, size: int = 10) -> Message:
    return Message("orders", partition, offset, None, bytes(size), None, None, (TIMESTAMP_CREATE_TIME, 1))


def failure(code: int, partition: int = 0, retriable: bool = False) -> Message:
    error = KafkaError(code, "the reason", False, retriable)
    return Message("orders", partition, -1, None, None, None, error, (TIMESTAMP_CREATE_TIME, 1))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    def read_messages(*messages: Sequence[Message], **request: Any) -> Sample:
        clock = [0.0]
        consumer = FakeConsumer(clock, *messages)
        monkeypatch.setattr(samples, "_consumer", lambda *_: consumer)
        monkeypatch.setattr(samples.time, "monotonic", lambda: clock[0])
        wanted = SampleRequest(**request)
        try:
            return samples._read(minimal_settings(tmp_path), VIEW, spans(VIEW, wanted.records, False), wanted)
        finally:
            assert consumer.is_closed

    return read_messages


def offsets(sample: Sample) -> list[tuple[int, int]]:
    return [(partition.partition, offset) for partition, offset in sample.positions]


def test_the_last_records_of_each_partition_are_read_by_topic_in_order(read: Any) -> None:
    sample = read([record(1, 98), record(0, 98)], [record(0, 99), record(1, 99)], records=4)
    assert (offsets(sample), sample.cut) == ([(0, 98), (0, 99), (1, 98), (1, 99)], "")
    assert [topic for topic, _ in sample.batches] == ["orders"]
    assert sample.column("value") == [bytes(10)] * 4


def test_a_partition_ends_where_its_log_ends_and_others_errors_pass(read: Any) -> None:
    passing = [failure(KafkaError._TRANSPORT, retriable=True), failure(KafkaError.GROUP_AUTHORIZATION_FAILED)]
    ends = [failure(KafkaError._PARTITION_EOF, partition) for partition in (0, 1)]
    assert offsets(read(passing, [record(0, 98)], ends, records=4)) == [(0, 98)]


def test_a_sample_ends_at_its_bytes(read: Any) -> None:
    sample = read([record(0, 98, 2 << 20)], [record(0, 99)], records=4, bytes_max=1 << 20)
    assert (offsets(sample), sample.cut) == ([(0, 98)], "no more than 1 MiB")


def test_a_sample_ends_after_its_seconds_if_it_has_a_record(read: Any) -> None:
    sample = read([record(0, 98)], records=4, seconds=10)
    assert (offsets(sample), sample.cut) == ([(0, 98)], "no more within 10 s")
    with pytest.raises(Unavailable, match="gave nothing of orders-0 for 10 s"):
        read(records=4, seconds=10)


def test_a_broker_that_gives_nothing_more_is_told(read: Any) -> None:
    with pytest.raises(Unavailable, match="gave nothing of orders-0 for 30 s"):
        read([record(0, 98)], records=4)


def test_a_topic_that_may_not_be_read_is_told_at_once(read: Any) -> None:
    with pytest.raises(AccessDenied, match="Grant this user READ on the topic"):
        read([failure(KafkaError.TOPIC_AUTHORIZATION_FAILED)], records=4)


def test_it_reads_with_the_settings_of_a_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A sample can read the batches that a worker can read."""
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(samples, "LogConsumer", lambda options, _: made.append(options))
    settings = minimal_settings(tmp_path, kafka__fetch__message__max__bytes="1234567", kafka__client__id="me")
    samples._consumer(settings, 10)
    as_worker = settings.records.consumer.for_reading(64 << 20, 10)
    assert {name: value for name, value in made[0].items() if as_worker.get(name) != value} == {
        "auto.offset.reset": "earliest"
    }
    assert made[0]["fetch.message.max.bytes"] == "1234567"
