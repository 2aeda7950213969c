"""The benchmark's topic: JSON order events of about 130 bytes, spread evenly over the partitions.

Guarantee: partition `p` holds exactly `records / partitions` records, and equal counts give equal bytes.
A topic that is already there with that many records is used as it is. Raises `Unavailable`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from coordination.errors import Unavailable

PARTITIONS = 4
DDL = "id BIGINT, user BIGINT, event STRING, amount DOUBLE, ts BIGINT, url STRING"
EVENTS = ("click", "view", "buy")
_SEED = 1
_PATIENCE = 120.0
_LEADER_PATIENCE = 60.0
_PRODUCER = {
    "linger.ms": 50,
    "queue.buffering.max.messages": 1_000_000,
    "compression.type": "lz4",
    "batch.num.messages": 20_000,
}


Record = Callable[[int, random.Random], tuple[bytes, bytes]]
"""Key and value of a record by its number."""


@dataclass(frozen=True, slots=True)
class Filled:
    """The records put into the topic, values in `bytes` before compression; both 0 when they were there before."""

    records: int
    bytes: int
    seconds: float


def event(number: int, rng: random.Random) -> dict[str, Any]:
    user = rng.randrange(1_000_000)
    return {
        "id": number,
        "user": user,
        "event": EVENTS[rng.randrange(3)],
        "amount": round(rng.random() * 1000, 2),
        "ts": 1_700_000_000_000 + number,
        "url": f"https://example.com/item/{user}?ref={number % 97}",
    }


def order(number: int, rng: random.Random) -> tuple[bytes, bytes]:
    """Returns key and value of one event."""
    fields = event(number, rng)
    # Written out: the json module would take longer than everything else here.
    value = (
        f'{{"id":{number},"user":{fields["user"]},"event":"{fields["event"]}","amount":{fields["amount"]},'
        f'"ts":{fields["ts"]},"url":"{fields["url"]}"}}'
    )
    return str(fields["user"]).encode(), value.encode()


def create_topic(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(timeout=30)


def ends(bootstrap: str, topic: str) -> dict[int, int]:
    """Returns the end of each partition; empty when there is no such topic. Waits until every partition has a leader,
    which takes a while after a broker's start."""
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    try:
        metadata = client.list_topics(timeout=30).topics.get(topic)
        partitions = sorted(metadata.partitions) if metadata and not metadata.error else []
        return {p: _end(client, TopicPartition(topic, p)) for p in partitions}
    except KafkaException as error:
        raise Unavailable(f"topic {topic}: the ends of its partitions are not known: {error}") from error
    finally:
        client.close()


@retry(
    retry=retry_if_exception_type(KafkaException),
    wait=wait_fixed(0.2),
    stop=stop_after_delay(_LEADER_PATIENCE),
    reraise=True,
)
def _end(client: Consumer, partition: TopicPartition) -> int:
    return client.get_watermark_offsets(partition, 30)[1]


def fill(bootstrap: str, topic: str, records: int, record: Record) -> Filled:
    """Makes and fills a topic of `PARTITIONS`, unless it is there with as many records.

    `record` gives key and value by number, one at a time; `tests.bench.topics` is much faster, for orders alone.
    """
    existing_ends = ends(bootstrap, topic)
    if existing_ends:
        if sum(existing_ends.values()) != records:
            raise Unavailable(
                f"topic {topic} holds {sum(existing_ends.values())} records, not {records}: take a new directory"
            )
        return Filled(0, 0, 0.0)
    create_topic(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap, **_PRODUCER})
    rng = random.Random(_SEED)
    size = 0
    started = time.monotonic()
    for number in range(records):
        key, value = record(number, rng)
        size += len(value)
        while not _try_produce(producer, topic, key, value, number % PARTITIONS):
            producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if unacknowledged := producer.flush(_PATIENCE):
        raise Unavailable(f"{unacknowledged} records of {topic} were not acknowledged within {_PATIENCE:.0f} s")
    return Filled(records, size, time.monotonic() - started)


def _try_produce(producer: Producer, topic: str, key: bytes, value: bytes, partition: int) -> bool:
    try:
        producer.produce(topic, value, key, partition)
    except BufferError:
        return False
    return True
