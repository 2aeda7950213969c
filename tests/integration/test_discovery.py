"""Topics of a real broker become sinks, and topics that cannot be sinks are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from structlog.testing import capture_logs

from coordination.errors import Unavailable
from sink.clients.kafka import log as kafka_client
from sink.clients.kafka.process import LogProcess
from sink.config import Configuration, load_configuration
from sink.runtime.process import discovery
from sink.runtime.process.discovery import TopicDiscovery
from tests.waiting import eventually

pytestmark = pytest.mark.integration


class Reports:
    """Everything that a discovery has found and reported."""

    def discovery_of(self, fleet: Configuration, log: Any) -> TopicDiscovery:
        self.discovery = TopicDiscovery(fleet, lambda _: log)
        return self.discovery

    @property
    def problems(self) -> list[str]:
        return list(map(str, self.discovery.problems))

    @property
    def names(self) -> list[str]:
        return [settings.name for settings in self.discovery.sinks]


@pytest.fixture
def prefix() -> str:
    return f"found-{uuid4().hex[:8]}"


@pytest.fixture
def log(kafka: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[kafka_client.Log]:
    """A log in this process, where its list of topics can be made to age at once."""
    monkeypatch.setattr(kafka_client, "LIST_SECONDS", 0.0)
    log = kafka_client.Log({"bootstrap.servers": kafka.address})
    yield log
    log.close()


@pytest.fixture
def fleet(kafka: Any, prefix: str, tmp_path: Path) -> Callable[..., Configuration]:
    def load(fleet_lines: str = "", sink_lines: str = "") -> Configuration:
        path = tmp_path / "fleet.yaml"
        path.write_text(f"""
zookeeper.connect: 127.0.0.1:1
kafka.bootstrap.servers: {kafka.address}
schema.ddl: id BIGINT
{fleet_lines}
sinks:
  every:
    kafka.topic.regex: "{prefix}-.*"
    target.base.path: {tmp_path}/{{topic}}
    {sink_lines}
""")
        return load_configuration(path, {})

    return load


def test_topics_become_sinks_once_and_those_that_go_are_told_of(fleet, log, kafka, prefix: str, topic) -> None:
    reports = Reports()
    topic_discovery = reports.discovery_of(fleet(), log)
    first = topic(name=f"{prefix}-a")
    eventually("the topic is seen", lambda: topic_discovery.poll() or reports.names == [first])
    second = topic(name=f"{prefix}-b")
    eventually("the next one, too", lambda: topic_discovery.poll() or reports.names == [first, second])
    admin = AdminClient({"bootstrap.servers": kafka.address})
    admin.delete_topics([first])[first].result(30)
    with capture_logs() as lines:
        eventually("it is gone", lambda: topic_discovery.poll() or topic_discovery.missing == {first})
        topic_discovery.poll()
    assert [(line["event"], line["topics"]) for line in lines] == [("discovery.topics_gone", [first])]
    assert reports.names == [first, second]
    assert reports.problems == []


def test_a_cluster_that_is_away_keeps_no_topic_of_another_one_back(fleet, log, prefix: str, topic) -> None:
    reports = Reports()
    both = fleet(
        sink_lines="""
  far:
    kafka.bootstrap.servers: 127.0.0.1:1
    kafka.topic.regex: "far-.*"
    target.base.path: /lake/far/{topic}
"""
    )
    away = kafka_client.Log({"bootstrap.servers": "127.0.0.1:1"}, timeout=1.0)
    topic_discovery = reports.discovery_of(both, log)
    topic_discovery._kafka = lambda settings: away if settings.bootstrap == "127.0.0.1:1" else log  # type: ignore[assignment]
    first = topic(name=f"{prefix}-a")

    def topic_is_seen() -> bool:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
            topic_discovery.poll()
        return reports.names == [first]

    eventually("the topic is seen", topic_is_seen)
    away.close()


@pytest.mark.xdist_group("registry")
def test_a_topic_without_a_schema_in_the_registry_is_named_until_it_has_one(
    fleet, log, prefix: str, topic, registry_url: str
) -> None:
    reports = Reports()
    registered = f"schema.registry.url: {registry_url}\nvalue.format: avro-confluent"
    settings = fleet(registered, "schema.subject: '{topic}-value'")
    topic_discovery = reports.discovery_of(settings, log)
    name = topic(name=f"{prefix}-a")
    eventually("the problem is told", lambda: topic_discovery.poll() or reports.problems != [])
    assert reports.names == []
    sentence = f"topic {name}: schema.subject: the registry has no {name}-value. Register a schema for it."
    assert sentence in reports.problems[0]
    schema = '{"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}]}'
    SchemaRegistryClient({"url": registry_url}).register_schema(f"{name}-value", Schema(schema, "AVRO"))
    topic_discovery.poll()
    assert reports.names == [name]
    assert reports.problems == []


def test_the_thread_finds_a_topic_and_outlasts_a_broker_that_does_not_answer(
    fleet, kafka, prefix: str, topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "POLL_SECONDS", 0.1)
    failing_logs = iter([LogProcess({"bootstrap.servers": "127.0.0.1:1"}, timeout=0.5)])
    working_log = LogProcess({"bootstrap.servers": kafka.address})
    name = topic(name=f"{prefix}-a")
    topic_discovery = TopicDiscovery(fleet(), lambda _: next(failing_logs, working_log))
    try:
        topic_discovery.start()
        eventually("the topic is seen", lambda: [settings.topics for settings in topic_discovery.sinks] == [(name,)])
    finally:
        topic_discovery.stop()
        working_log.close()
