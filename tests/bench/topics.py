"""Large topics of orders, filled fast: values are made a hundred thousand at a time, and a partition gets its records
in runs, which become the producer's batches.

Guarantee: equal topics get equal bytes; every partition gets exactly `partition_records`, and batches of `BATCH`
whatever the number of partitions, so that topics differ in nothing else. A topic that is already there with that many
records is used as it is. Raises `Unavailable`.
"""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Producer

from coordination.errors import Unavailable
from tests.bench.orders import DDL, EVENTS, Filled, create_topic, ends

BATCH = 1000
"""Consecutive records of one partition."""
REGIONS_DDL = f"{DDL}, region STRING"
_CHUNK = 100_000
_SEED = 1
_PATIENCE = 300.0
_PRODUCER = {
    "linger.ms": 50,
    "queue.buffering.max.messages": 500_000,
    "compression.type": "lz4",
    "batch.num.messages": BATCH,
    "message.max.bytes": 16 << 20,
}


@dataclass(frozen=True, slots=True)
class Topic:
    """`regions`: how many values the column `region` has; 0: no such column. Every `large_every`th record is of
    `large_bytes`, which do not compress; 0: none is."""

    name: str
    partitions: int
    partition_records: int
    regions: int = 0
    large_every: int = 0
    large_bytes: int = 0

    @property
    def records(self) -> int:
        return self.partitions * self.partition_records

    @property
    def large(self) -> int:
        return -(-self.records // self.large_every) if self.large_every else 0


def fill(bootstrap: str, topic: Topic) -> Filled:
    """Makes and fills the topic, unless it is there with as many records in each partition."""
    existing_ends = ends(bootstrap, topic.name)
    if existing_ends:
        if existing_ends != dict.fromkeys(range(topic.partitions), topic.partition_records):
            raise Unavailable(f"topic {topic.name} holds other records than {topic}: take a new directory")
        return Filled(0, 0, 0.0)
    create_topic(bootstrap, topic.name, topic.partitions)
    producer = Producer({"bootstrap.servers": bootstrap, **_PRODUCER})
    started, size = time.monotonic(), 0
    records = orders(topic)
    for partition, count in runs(topic.partitions, topic.partition_records):
        for _ in range(count):
            key, value = next(records)
            size += len(value)
            while not _try_produce(producer, topic.name, key, value, partition):
                producer.poll(0.1)
        producer.poll(0)
    if unacknowledged := producer.flush(_PATIENCE):
        raise Unavailable(f"{unacknowledged} records of {topic.name} were not acknowledged within {_PATIENCE:.0f} s")
    return Filled(topic.records, size, time.monotonic() - started)


def runs(partitions: int, partition_records: int) -> Iterator[tuple[int, int]]:
    """Yields partition and number of records, in the order in which they are sent."""
    for begin in range(0, partition_records, BATCH):
        for partition in range(partitions):
            yield partition, min(BATCH, partition_records - begin)


def orders(topic: Topic) -> Iterator[tuple[bytes, bytes]]:
    """Yields keys and values by number, from 0."""
    filler = base64.b64encode(random.Random(_SEED).randbytes(topic.large_bytes)) if topic.large_every else b""
    number = 0
    for begin in range(0, topic.records, _CHUNK):
        keys, values = chunk(begin, min(_CHUNK, topic.records - begin), topic.regions)
        for key, value in zip(keys, values, strict=True):
            if topic.large_every and number % topic.large_every == 0:
                value = _enlarged(value, filler, number, topic.large_bytes)
            yield key, value
            number += 1


def chunk(begin: int, count: int, regions: int = 0) -> tuple[list[bytes], list[bytes]]:
    """Returns keys and values of the orders with these numbers: those of `tests.bench.orders`, drawn differently."""
    rng = np.random.default_rng((_SEED, begin))
    numbers = np.arange(begin, begin + count)
    users = pa.array(rng.integers(0, 1_000_000, count)).cast(pa.string())
    names = pa.array(EVENTS).take(pa.array(rng.integers(0, len(EVENTS), count)))
    amounts = pa.array(np.round(rng.random(count) * 1000, 2)).cast(pa.string())
    parts = [
        '{"id":',
        pa.array(numbers).cast(pa.string()),
        ',"user":',
        users,
        ',"event":"',
        names,
        '","amount":',
        amounts,
        ',"ts":',
        pa.array(1_700_000_000_000 + numbers).cast(pa.string()),
    ]
    if regions:
        parts += [',"region":"region-', pa.array(rng.integers(0, regions, count)).cast(pa.string()), '"']
    # The URL comes last: a large record has a longer one.
    parts += [',"url":"https://example.com/item/', users, "?ref=", pa.array(numbers % 97).cast(pa.string()), '"}']
    values = pc.binary_join_element_wise(*(pa.scalar(part) if isinstance(part, str) else part for part in parts), "")
    return users.cast(pa.binary()).to_pylist(), values.cast(pa.binary()).to_pylist()


def _enlarged(value: bytes, filler: bytes, number: int, size: int) -> bytes:
    """Returns the value with filler, `size` bytes. Each begins elsewhere in the filler, so that no two are alike."""
    missing = size - len(value)
    begin = number % (len(filler) - missing)
    return value[:-2] + filler[begin : begin + missing] + b'"}'


def _try_produce(producer: Producer, topic: str, key: bytes, value: bytes, partition: int) -> bool:
    try:
        producer.produce(topic, value, key, partition)
    except BufferError:
        return False
    return True
