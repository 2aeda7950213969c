"""Sends numbered events all the time, and writes down each one that Kafka has acknowledged."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

FLUSH_SECONDS = 120


class Workload:
    """The file has a line `partition offset number` for each acknowledged event."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: float, acknowledged: Path) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        self._topic, self._partitions, self._rate = topic, partitions, rate
        self._file = acknowledged.open("w", buffering=1)
        self._ended = threading.Event()
        self._sending = threading.Lock()
        self._producer = Producer(self._settings)
        self._thread = threading.Thread(target=self._send, name="workload", daemon=True)
        self.acknowledged = 0
        self.ends: dict[int, int] = {}
        """Behind the last acknowledged event of each partition."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends when everything that was sent is acknowledged."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            self._flush()
            self._file.close()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nothing is under way meanwhile, and the topic may be another one afterwards."""
        with self._sending:
            self._flush()
            yield
            self._producer = Producer(self._settings)

    def _flush(self) -> None:
        left = self._producer.flush(FLUSH_SECONDS)
        if left:
            raise RuntimeError(f"{left} events were not acknowledged within {FLUSH_SECONDS} s")

    def _send(self) -> None:
        number, began = 0, time.monotonic()
        while not self._ended.is_set():
            with self._sending:
                due = int((time.monotonic() - began) * self._rate)
                while number < due:
                    self._send_one(number)
                    number += 1
                self._producer.poll(0.02)

    def _send_one(self, number: int) -> None:
        def note(error: KafkaError | None, message: Message) -> None:
            if error is None:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                self._file.write(f"{partition} {offset} {number}\n")
                self.ends[partition] = offset + 1
                self.acknowledged += 1

        event = json.dumps({"id": number, "kind": "buy", "amount": number / 4}).encode()
        while True:
            try:
                self._producer.produce(self._topic, event, partition=number % self._partitions, on_delivery=note)
            except BufferError:
                # Kafka has been away for long: wait for room, lose nothing.
                self._producer.poll(0.5)
            else:
                return
