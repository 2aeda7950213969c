"""Harm to the topic, for faults and to provoke a failpoint."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import TopicPartition as KafkaPlace
from confluent_kafka.admin import AdminClient

from tests.bench.orders import create_topic
from tests.chaos.arena import TOPIC, Arena
from tests.waiting import eventually


def recreate_topic(arena: Arena) -> None:
    admin = _admin(arena)
    admin.delete_topics([TOPIC])[TOPIC].result(30)
    eventually("the topic is gone", lambda: TOPIC not in admin.list_topics(timeout=30).topics)
    create_topic(arena.kafka.address, TOPIC, arena.shape.partitions)


def delete_records(arena: Arena, before: Mapping[int, int]) -> None:
    """As retention does: of each partition what is before an offset."""
    places = [KafkaPlace(TOPIC, partition, offset) for partition, offset in before.items()]
    admin = _admin(arena)  # to the end: with it its answers would be gone
    for deleted in admin.delete_records(places).values():
        deleted.result(30)


def _admin(arena: Arena) -> AdminClient:
    return AdminClient({"bootstrap.servers": arena.kafka.address})
