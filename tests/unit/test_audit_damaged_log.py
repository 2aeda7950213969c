"""The audit reads what has landed though the log is damaged behind it."""

from __future__ import annotations

from contextlib import closing
from typing import Any, cast

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, Message

from sink.audit.checkpoints import LogPartition
from sink.audit.consumer import TopicConsumer
from sink.audit.failures import CannotAudit, TryAgain
from sink.audit.log import LogRange, LogReader, TopicAccess

SOURCE = LogPartition("orders", 0)


class PausedConsumer:
    def pause(self, _: Any) -> None: ...


def deliver(span: LogRange, *messages: Message) -> tuple[list[int], dict[LogPartition, LogRange]]:
    received: list[int] = []
    pending = {SOURCE: span}
    with closing(LogReader(TopicAccess("127.0.0.1:1"))) as reader:
        consumer = cast(TopicConsumer, PausedConsumer())
        assert reader._deliver(consumer, messages, pending, lambda _, records: received.extend(records.offsets)) == {}
    return received, pending


def record(offset: int) -> Message:
    return Message("orders", 0, offset, None, b"v", None, None, (TIMESTAMP_CREATE_TIME, 0))


def damage(offset: int) -> Message:
    return Message("orders", 0, offset, error=KafkaError(KafkaError._BAD_MSG))


def test_damage_behind_what_has_landed_ends_the_range_and_fails_no_audit() -> None:
    assert deliver(LogRange(0, 2), record(0), record(1), damage(2)) == ([0, 1], {})
    # The last offset of the range is a marker: no record of it comes.
    assert deliver(LogRange(0, 2), record(0), damage(2)) == ([0], {})


def test_damage_in_what_has_landed_is_named() -> None:
    with pytest.raises(CannotAudit, match=r"^Kafka: orders-0 offset 1: .* damaged there: "):
        deliver(LogRange(0, 3), record(0), damage(1))


def test_an_offset_that_is_refused_though_the_log_has_it_is_no_end_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has just become the leader may lag behind."""
    monkeypatch.setattr(LogReader, "span", lambda *_: LogRange(0, 9))
    refused = Message("orders", 0, -1, error=KafkaError(KafkaError._AUTO_OFFSET_RESET))
    with pytest.raises(TryAgain, match=r"refused an offset of orders-0, which its log has"):
        deliver(LogRange(0, 3), refused)
