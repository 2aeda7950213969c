"""Harm to the topic, for faults and to bring a worker to a failpoint."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.chaos.arena import TOPIC, Arena
from tests.waiting import eventually

FILLERS = 50


def recreate_topic(arena: Arena) -> None:
    admin = _admin(arena)
    admin.delete_topics([TOPIC])[TOPIC].result(30)
    eventually("the topic is gone", lambda: TOPIC not in admin.list_topics(timeout=30).topics)
    arena.create_topic()


def delete_records(arena: Arena, before: Mapping[int, int]) -> None:
    """Deletes each partition's records before an offset, as retention does."""
    offsets = [TopicPartition(TOPIC, partition, offset) for partition, offset in before.items()]
    admin = _admin(arena)  # kept to the end: its futures end with it

    def is_deleted() -> bool:
        try:
            for deletion in admin.delete_records(offsets).values():
                deletion.result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                raise
            # A broker that has just started does not know the partitions yet.
            return False
        return True

    eventually("the records are deleted", is_deleted)


def fill(arena: Arena, ends: Mapping[int, int]) -> None:
    """Sends records that the auditor does not know, until each partition is longer than its offset here."""
    producer = Producer({"bootstrap.servers": arena.kafka.address})
    consumer = Consumer({"bootstrap.servers": arena.kafka.address, "group.id": "fill"})
    for partition, end in ends.items():
        _, length = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=30)
        for _ in range(max(0, end - length) + FILLERS):
            producer.produce(TOPIC, b"filler", partition=partition)
    assert producer.flush(60) == 0
    consumer.close()


def _admin(arena: Arena) -> AdminClient:
    return AdminClient({"bootstrap.servers": arena.kafka.address})
