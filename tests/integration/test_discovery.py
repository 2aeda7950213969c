"""Topics of a real broker become sinks, and what cannot is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from coordination.errors import Unavailable
from sink.clients import kafka as kafka_client
from sink.clients.kafka_process import LogProcess
from sink.config import Fleet, Settings, load_fleet
from sink.runtime import discovery
from sink.runtime.discovery import TopicDiscovery
from tests.waiting import eventually

pytestmark = pytest.mark.integration


class Heard:
    """All that a discovery has told."""

    def __init__(self) -> None:
        self.sinks: list[Settings] = []
        self.gone: list[str] = []
        self.problems: list[str] = []

    def of(self, fleet: Fleet, log: LogProcess) -> TopicDiscovery:
        return TopicDiscovery(
            fleet,
            lambda _: log,
            self.sinks.extend,
            self.gone.extend,
            lambda problems: setattr(self, "problems", list(map(str, problems))),
        )

    @property
    def names(self) -> list[str]:
        return [settings.name for settings in self.sinks]


@pytest.fixture
def prefix() -> str:
    return f"found-{uuid4().hex[:8]}"


@pytest.fixture
def log(kafka: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[kafka_client.Log]:
    """In this process, where its list of topics can be made to age at once."""
    monkeypatch.setattr(kafka_client, "LIST_SECONDS", 0.0)
    log = kafka_client.Log({"bootstrap.servers": kafka.address})
    yield log
    log.close()


@pytest.fixture
def fleet(kafka: Any, prefix: str, tmp_path: Path) -> Callable[..., Fleet]:
    def loaded(more: str = "", own: str = "") -> Fleet:
        path = tmp_path / "fleet.yaml"
        path.write_text(f"""
zookeeper.connect: 127.0.0.1:1
kafka.bootstrap.servers: {kafka.address}
schema.ddl: id BIGINT
{more}
sinks:
  every:
    kafka.topic.regex: "{prefix}-.*"
    target.base.path: {tmp_path}/{{topic}}
    {own}
""")
        return load_fleet(path, {})

    return loaded


def test_topics_become_sinks_once_and_those_that_go_are_told_of(fleet, log, kafka, prefix: str, topic) -> None:
    heard = Heard()
    looking = heard.of(fleet(), log)
    first = topic(name=f"{prefix}-a")
    eventually("the topic is seen", lambda: looking.look() or heard.names == [first])
    second = topic(name=f"{prefix}-b")
    eventually("the next one, too", lambda: looking.look() or heard.names == [first, second])
    admin = AdminClient({"bootstrap.servers": kafka.address})
    admin.delete_topics([first])[first].result(30)
    eventually("it is gone", lambda: looking.look() or heard.gone == [first])
    looking.look()
    assert heard.gone == [first]
    assert heard.names == [first, second]
    assert heard.problems == []


def test_a_worker_hears_of_the_sinks_that_it_hosts(fleet, log, prefix: str, topic) -> None:
    heard = Heard()
    looking = heard.of(fleet(f"worker.sinks: '{prefix}-b*'"), log)
    topic(name=f"{prefix}-a"), topic(name=f"{prefix}-b1")
    eventually("the hosted one is seen", lambda: looking.look() or heard.names == [f"{prefix}-b1"])


def test_a_cluster_that_is_away_keeps_no_topic_of_another_one_back(fleet, log, prefix: str, topic) -> None:
    heard = Heard()
    both = fleet(
        own="""
  far:
    kafka.bootstrap.servers: 127.0.0.1:1
    kafka.topic.regex: "far-.*"
    target.base.path: /lake/far/{topic}
"""
    )
    away = kafka_client.Log({"bootstrap.servers": "127.0.0.1:1"}, timeout=1.0)
    looking = heard.of(both, log)
    looking._kafka = lambda settings: away if settings.bootstrap == "127.0.0.1:1" else log  # type: ignore[assignment]
    first = topic(name=f"{prefix}-a")

    def looked() -> bool:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
            looking.look()
        return heard.names == [first]

    eventually("the topic is seen", looked)
    away.close()


@pytest.mark.xdist_group("registry")
def test_a_topic_without_a_schema_in_the_registry_is_named_until_it_has_one(
    fleet, log, prefix: str, topic, registry_url: str
) -> None:
    heard = Heard()
    registered = f"schema.registry.url: {registry_url}\nvalue.format: avro-confluent"
    settings = fleet(registered, "schema.subject: '{topic}-value'")
    looking = heard.of(settings, log)
    name = topic(name=f"{prefix}-a")
    eventually("the problem is told", lambda: looking.look() or heard.problems != [])
    assert heard.names == []
    sentence = f"topic {name}: schema.subject: the registry has no {name}-value; register a schema for it"
    assert sentence in heard.problems[0]
    schema = '{"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}]}'
    SchemaRegistryClient({"url": registry_url}).register_schema(f"{name}-value", Schema(schema, "AVRO"))
    looking.look()
    assert heard.names == [name]
    assert heard.problems == []


def test_the_thread_finds_a_topic_and_outlasts_a_broker_that_does_not_answer(
    fleet, kafka, prefix: str, topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "LOOK_SECONDS", 0.1)
    queue: SimpleQueue[Settings] = SimpleQueue()
    asked = iter([LogProcess({"bootstrap.servers": "127.0.0.1:1"}, timeout=0.5)])
    there = LogProcess({"bootstrap.servers": kafka.address})
    name = topic(name=f"{prefix}-a")
    looking = TopicDiscovery(
        fleet(), lambda _: next(asked, there), lambda new: [queue.put(each) for each in new] and None, print, print
    )
    try:
        looking.start()
        assert queue.get(timeout=60).topics == (name,)
    finally:
        looking.stop()
        there.close()
