"""A consumer gives records of the cluster and the topic that it was told to expect: on librdkafka's own brokers."""

from __future__ import annotations

import ast
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

import sink
from coordination.errors import WrongLog
from sink.audit.consumer import TopicConsumer
from sink.audit.failures import TryAgain
from sink.librdkafka import REQUIRED, LogConsumer
from tests.header_kit import mock_cluster, mock_identity, produce_with_headers

QUIET = logging.getLogger("quiet")
COUNT = 200
CLIENTS = {"Consumer", "Producer", "AdminClient", "DeserializingConsumer", "SerializingProducer", "ShareConsumer"}


class Cluster:
    """A broker in this process, with a topic `t` of one partition."""

    def __init__(self, value: bytes) -> None:
        self.owner, self.address = mock_cluster()
        produce_with_headers(self.address, "t", [(value, [])] * COUNT)
        self.id, self.topic_id = mock_identity(self.address, "t")


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[Cluster, Cluster]]:
    yield (pair := (Cluster(b"right"), Cluster(b"wrong")))
    for cluster in pair:
        cluster.owner.flush()


def consumer_of(cluster: Cluster, **more: Any) -> LogConsumer:
    settings = {"bootstrap.servers": cluster.address, "group.id": "g", "auto.offset.reset": "error"}
    return LogConsumer({**settings, **{name.replace("__", "."): value for name, value in more.items()}}, QUIET)


def read(consumer: LogConsumer | TopicConsumer, count: int = COUNT) -> list[Message]:
    messages: list[Message] = []
    deadline = time.monotonic() + 30
    while len(messages) < count and time.monotonic() < deadline:
        messages += [message for message in consumer.consume(count, 0.1) if message.error() is None]
    return messages


@pytest.mark.parametrize("most", ["1048576", "33554432"])
def test_a_consumer_fetches_no_more_than_it_may_receive(clusters: tuple[Cluster, Cluster], most: str) -> None:
    consumer_of(clusters[0], receive__message__max__bytes=most)


def test_records_of_the_expected_topic_are_given_and_their_origin_is_known(
    clusters: tuple[Cluster, Cluster],
) -> None:
    right, _ = clusters
    consumer = consumer_of(right)
    consumer.expect(right.id, {"t": right.topic_id})
    consumer.assign([TopicPartition("t", 0, 0)])
    assert [message.value() for message in read(consumer)] == [b"right"] * COUNT
    assert consumer.read_from("t") == (right.id, right.topic_id)
    consumer.close()


@pytest.mark.parametrize("knows_cluster", [True, False])
def test_no_record_of_another_cluster_is_given_and_both_are_named(
    clusters: tuple[Cluster, Cluster], knows_cluster: bool
) -> None:
    right, wrong = clusters
    consumer = consumer_of(wrong)
    consumer.expect(right.id if knows_cluster else "", {"t": right.topic_id})
    consumer.assign([TopicPartition("t", 0, 0)])
    with pytest.raises(WrongLog) as refusal:
        read(consumer)
    expected = {right.topic_id, wrong.topic_id, wrong.id, *((right.id,) if knows_cluster else ())}
    assert all(name in str(refusal.value) for name in expected)
    with pytest.raises(WrongLog):
        consumer.consume(1, 0.1)
    with pytest.raises(WrongLog):
        consumer.read_from("t")
    consumer.close()


def test_a_client_that_knows_another_topic_of_that_name_does_not_fit(clusters: tuple[Cluster, Cluster]) -> None:
    right, wrong = clusters
    consumer = consumer_of(right)
    assert consumer.fits(wrong.id, {"t": wrong.topic_id})
    consumer.expect(right.id, {"t": right.topic_id})
    consumer.assign([TopicPartition("t", 0, 0)])
    read(consumer)
    assert consumer.fits(right.id, {"t": right.topic_id, "other": "any"})
    assert not consumer.fits(right.id, {"t": wrong.topic_id})
    assert not consumer.fits(wrong.id, {})
    with pytest.raises(WrongLog):
        consumer.expect(right.id, {"t": wrong.topic_id})
    consumer.close()


def test_a_client_before_whose_eyes_a_topic_was_created_again_twice_does_not_fit(
    clusters: tuple[Cluster, Cluster],
) -> None:
    consumer = consumer_of(clusters[0])
    for earlier, later in (("first", "second"), ("second", "third")):
        consumer._identities.log(7, "%s", f"[thrd:main]: Topic t changed id from {earlier} to {later}")
    assert not consumer.fits("", {"t": "third"})
    with pytest.raises(WrongLog):
        consumer.expect("", {"t": "third"})
    consumer.close()


def test_a_topic_without_an_expected_id_cannot_be_assigned(clusters: tuple[Cluster, Cluster]) -> None:
    consumer = consumer_of(clusters[0])
    with pytest.raises(AssertionError, match="expect"):
        consumer.assign([TopicPartition("t", 0, 0)])
    consumer.close()


def test_settings_that_would_hide_the_ids_are_overridden(clusters: tuple[Cluster, Cluster]) -> None:
    right, wrong = clusters
    consumer = consumer_of(wrong, debug="cgrp", log_level=0, check__crcs=False, enable__partition__eof=False)
    consumer.expect(right.id, {"t": right.topic_id})
    consumer.assign([TopicPartition("t", 0, 0)])
    with pytest.raises(WrongLog):
        read(consumer)
    consumer.close()


@pytest.mark.parametrize("settings", [{}, {"debug": "cgrp", "log_level": 0, "receive.message.max.bytes": "1048576"}])
def test_the_auditors_consumer_gives_records_of_the_expected_topic_alone(
    clusters: tuple[Cluster, Cluster], settings: dict[str, Any]
) -> None:
    right, wrong = clusters
    for cluster in clusters:
        consumer = TopicConsumer({**settings, "bootstrap.servers": cluster.address}, "g", "read_committed")
        consumer.bind({"t": right.topic_id})
        consumer.assign([TopicPartition("t", 0, 0)])
        if cluster is right:
            assert [message.value() for message in read(consumer)] == [b"right"] * COUNT
        else:
            with pytest.raises(TryAgain, match=f"began with topic id {right.topic_id}, .* gave {wrong.topic_id}: "):
                read(consumer)
        consumer.close()


def test_what_is_known_of_the_log_costs_no_request(clusters: tuple[Cluster, Cluster]) -> None:
    """Against a consumer that knows nothing of it: librdkafka counts its requests by kind."""
    right, _ = clusters
    counts: list[dict[str, int]] = []

    def note(statistics: str) -> None:
        brokers = json.loads(statistics)["brokers"].values()
        kinds = ("Metadata", "ListOffsets", "DescribeCluster", "OffsetForLeaderEpoch")
        latest[0] = {kind: sum(broker["req"].get(kind, 0) for broker in brokers) for kind in kinds}

    settings = {"statistics__interval__ms": 100, "stats_cb": note}
    for bound in (True, False):
        latest: list[dict[str, int]] = [{}]
        consumer = consumer_of(right, **settings)
        consumer.expect(right.id, {"t": right.topic_id})
        client: Any = consumer
        if not bound:
            consumer.close()
            client = Consumer(
                {
                    **REQUIRED,
                    "bootstrap.servers": right.address,
                    "group.id": "g",
                    "statistics.interval.ms": 100,
                    "stats_cb": note,
                },
                logger=QUIET,
            )
        client.assign([TopicPartition("t", 0, 0)])
        read(client)
        if bound:
            consumer.read_from("t")
        latest[0].clear()
        deadline = time.monotonic() + 10
        while not latest[0] and time.monotonic() < deadline:
            client.consume(1, 0.05)
        counts.append(latest[0])
        client.close()
    bound, unbound = counts
    # How often librdkafka asks for metadata depends on the moment.
    assert bound.pop("Metadata") <= unbound.pop("Metadata") + 1
    assert bound == unbound == dict.fromkeys(bound, 0)


def test_every_client_of_kafka_is_made_in_one_place_and_the_auditors_in_its_own() -> None:
    root = Path(sink.__file__).parent
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if "devtools" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if CLIENTS & names_from_kafka(node)
    }
    assert found == {"librdkafka.py", "audit/consumer.py"}


def names_from_kafka(node: ast.AST) -> set[str]:
    """Returns what an import takes out of confluent-kafka, or the class that a call names behind its module."""
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("confluent_kafka"):
        return {name.name for name in node.names}
    return {node.func.attr} if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else set()
