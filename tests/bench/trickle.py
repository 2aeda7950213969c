"""A producer that sends orders at a fixed rate, and notes when each was sent, its partition and its offset.

Raises `Unavailable` when records are not acknowledged.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, Producer

from coordination.errors import Unavailable
from tests.bench.orders import PARTITIONS, order

ACKNOWLEDGE_SECONDS = 30
PAUSE_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class SentRecord:
    """`at` is the wall-clock second at which the record was handed to the client."""

    partition: int
    offset: int
    at: float


class Trickle:
    """Serves one thread at a time."""

    def __init__(self, bootstrap: str, topic: str, rate: float, partitions: int = PARTITIONS) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._topic = topic
        self._partitions = partitions
        self._rate = rate
        self._next = 0
        self._rng = random.Random(0)
        self._sent: list[SentRecord] = []

    def run(self, seconds: float) -> list[SentRecord]:
        """Sends for `seconds`. Returns the sent records when all are acknowledged."""
        self._sent = []
        self._send_while(lambda count: count < seconds * self._rate)
        return self._wait_acknowledged()

    def run_until(self, ended: threading.Event) -> None:
        self._send_while(lambda _: not ended.is_set())
        self._wait_acknowledged()

    def _send_while(self, keep_going: Callable[[int], bool]) -> None:
        """Sends all due records at once, then pauses: the cores belong to the measured program."""
        started, count = time.time(), 0
        while keep_going(count):
            while keep_going(count) and started + count / self._rate <= time.time():
                self._send()
                count += 1
            self._producer.poll(0)
            time.sleep(PAUSE_SECONDS)

    def _send(self) -> None:
        now = time.time()
        key, value = order(self._next, self._rng)

        def note(error: KafkaError | None, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            if error is None and partition is not None and offset is not None:
                self._sent.append(SentRecord(partition, offset, now))

        self._producer.produce(self._topic, value, key, self._next % self._partitions, on_delivery=note)
        self._next += 1

    def _wait_acknowledged(self) -> list[SentRecord]:
        if unacknowledged := self._producer.flush(ACKNOWLEDGE_SECONDS):
            problem = f"{unacknowledged} records of the trickle were not acknowledged"
            raise Unavailable(f"{problem} within {ACKNOWLEDGE_SECONDS} s")
        return self._sent
