"""Sends events all the time, and writes down each one that Kafka has acknowledged."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from tests.chaos.events import Event

FLUSH_SECONDS = 120


class Workload:
    """The file's first line is `rule`, by which the table is made of the events. After it comes a line
    `round partition offset good|bad value` or `round partition offset tombstone key` for each acknowledged event.
    Offsets may begin anew with each round.
    """

    def __init__(self, bootstrap: str, topic: str, rate: float, events: Iterator[Event], rule: str, file: Path) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        self._topic, self._rate, self._events = topic, rate, events
        self._file = file.open("w", buffering=1)
        self._file.write(f"{rule}\n")
        self._ended = threading.Event()
        self._sending = threading.Lock()
        self._producer = Producer(self._settings)
        self._thread = threading.Thread(target=self._send, name="workload", daemon=True)
        self._round = 0
        self.acknowledged = 0
        self.unsure = 0
        """Events without an acknowledgement: Kafka may have them or not."""
        self.end_offsets: dict[int, int] = {}
        """The offset after the last acknowledged event of each partition."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops sending, and returns once everything that was sent is acknowledged."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            self._flush()
            self._file.close()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Sends nothing meanwhile, with nothing in flight; the topic may be another one afterwards."""
        with self._sending:
            self._flush()
            yield
            self._round += 1
            self._producer = Producer(self._settings)

    def _flush(self) -> None:
        unacknowledged = self._producer.flush(FLUSH_SECONDS)
        if unacknowledged:
            raise RuntimeError(f"{unacknowledged} events were not acknowledged within {FLUSH_SECONDS} s")

    def _send(self) -> None:
        sent, began = 0, time.monotonic()
        while not self._ended.is_set():
            with self._sending:
                due = int((time.monotonic() - began) * self._rate)
                while sent < due:
                    self._send_one(next(self._events))
                    sent += 1
                self._producer.poll(0.02)

    def _send_one(self, event: Event) -> None:
        mark = "bad" if event.bad else "tombstone" if event.value is None else "good"
        text = (event.key if event.value is None else event.value) or b""

        def note(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.unsure += 1
                return
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self._file.write(f"{self._round} {partition} {offset} {mark} {text.decode()}\n")
            self.end_offsets[partition] = offset + 1
            self.acknowledged += 1

        while True:
            try:
                self._producer.produce(self._topic, event.value, event.key, event.partition, on_delivery=note)
            except BufferError:
                # Kafka has been away for long: wait until the producer has room for the event.
                self._producer.poll(0.5)
            else:
                return
