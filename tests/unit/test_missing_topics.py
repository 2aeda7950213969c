"""A coordinator counts a topic whose planned offsets it needs as deleted only after Kafka has lacked it for long."""

from __future__ import annotations

from typing import Any

import pytest

from coordination.state.messages import Done, Failed, ReadLog, Request
from coordination.state.model import LogView
from sink.runtime.sinks import effect_handlers
from sink.runtime.sinks.effect_handlers import CoordinatorEffectHandler

REQUEST = Request(1, ReadLog((), "orders.*", ("orders-old",)))


class Metrics:
    def __init__(self) -> None:
        self.waiting: dict[str, bool] = {}

    def waits_for(self, cause: str, is_waiting: bool) -> None:
        self.waiting[cause] = is_waiting

    def log(self, _view: LogView) -> None:
        """Ignores the offsets."""


class Kafka:
    """A Kafka cluster that has none of the requested topics."""

    def view(self, _topics: Any, _pattern: Any, optional: tuple[str, ...]) -> LogView:
        return LogView("cluster", {}, matching=(), deleted=optional)

    def resolve(self, view: LogView) -> LogView:
        return view


def test_a_missing_topic_is_waited_for_before_it_counts_as_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    unused: Any = None
    kafka, metrics = Kafka(), Metrics()
    parts: Any = kafka, kafka, "lock", metrics
    handler = CoordinatorEffectHandler(unused, unused, unused, *parts)
    early = handler.perform(REQUEST)
    assert isinstance(early, Failed)
    assert "no topic orders-old any more" in early.reason
    assert metrics.waiting["topic"]
    monkeypatch.setattr(effect_handlers, "DELETED_SECONDS", 0.0)
    late = handler.perform(REQUEST)
    assert isinstance(late, Done)
    assert late.value.deleted == ("orders-old",)
    assert not metrics.waiting["topic"]
