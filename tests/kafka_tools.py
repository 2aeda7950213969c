"""Kafka's command-line tools, and the ids of the tests' topics."""

from __future__ import annotations

import re
import time
from pathlib import Path

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from sink.clients.java.installation import fetch
from sink.devtools.jars import KAFKA, kafka_jars
from sink.librdkafka import url_safe
from tests.waiting import eventually

_TOPIC_IDS: dict[str, str] = {}


def note_topic_id(admin: AdminClient, topic: str) -> str:
    """Asks the broker for the id of a topic, and remembers it for `topic_id_of`."""
    _TOPIC_IDS[topic] = ask_topic_id(admin, topic)
    return _TOPIC_IDS[topic]


def ask_topic_id(admin: AdminClient, topic: str) -> str:
    """Asks again while the broker does not know a topic that was just created."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return url_safe(admin.describe_topics(TopicCollection([topic]))[topic].result(timeout=30).topic_id)
        except KafkaException:
            if time.monotonic() > deadline:
                raise


def recreate(address: str, topic: str) -> None:
    """Deletes a topic and creates it again, with one partition."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
    admin.delete_topics([topic])[topic].result(30)

    def created() -> bool:
        try:
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        except KafkaException:
            return False  # the deletion is acknowledged before it takes effect
        return True

    eventually("the topic is created again", created)
    note_topic_id(admin, topic)


def topic_id_of(topic: str) -> str:
    """Returns the id of a topic that a test has created, and a made-up one for any other."""
    return _TOPIC_IDS.get(topic, f"id-of-{topic}")


def tools_jars() -> list[Path]:
    """Returns the jars that the tools need beside a broker's, downloaded if missing."""
    version = KAFKA[0].rpartition(":")[2]
    # The artifact depends on Kafka Connect, which brings a web server.
    connect = ["connect-api", "connect-json", "connect-runtime", "connect-transforms"]
    broker_jars = sorted({re.sub(r"-\d[^-]*$", "", jar.stem) for jar in kafka_jars()})
    return fetch("kafka-tools", (f"org.apache.kafka:kafka-tools:{version}",), without=[*broker_jars, *connect])
