"""A producer that sends orders at a fixed rate, and remembers when each was sent and where it
went.

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
class Sent:
    """`at` is the wall-clock second at which the record was handed to the client."""

    partition: int
    offset: int
    at: float


class Trickle:
    """One thread at a time."""

    def __init__(self, bootstrap: str, topic: str, rate: float, partitions: int = PARTITIONS) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._topic = topic
        self._partitions = partitions
        self._rate = rate
        self._next = 0
        self._chance = random.Random(0)
        self._sent: list[Sent] = []

    def run(self, seconds: float) -> list[Sent]:
        """The records of these seconds; returns when all are acknowledged."""
        self._sent = []
        self._send_while(lambda count: count < seconds * self._rate)
        return self._acknowledged()

    def run_until(self, ended: threading.Event) -> None:
        self._send_while(lambda _: not ended.is_set())
        self._acknowledged()

    def _send_while(self, going: Callable[[int], bool]) -> None:
        """Sends all due records at once, then pauses: the cores belong to the measured program."""
        started, count = time.time(), 0
        while going(count):
            while going(count) and started + count / self._rate <= time.time():
                self._send()
                count += 1
            self._producer.poll(0)
            time.sleep(PAUSE_SECONDS)

    def _send(self) -> None:
        now = time.time()
        key, value = order(self._next, self._chance)

        def note(error: KafkaError | None, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            if error is None and partition is not None and offset is not None:
                self._sent.append(Sent(partition, offset, now))

        self._producer.produce(self._topic, value, key, self._next % self._partitions, on_delivery=note)
        self._next += 1

    def _acknowledged(self) -> list[Sent]:
        if left := self._producer.flush(ACKNOWLEDGE_SECONDS):
            raise Unavailable(f"{left} records of the trickle were not acknowledged within {ACKNOWLEDGE_SECONDS} s")
        return self._sent
