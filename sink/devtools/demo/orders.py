"""Order events for the demo and the benchmarks: a number always gives the same event.

`Feed` produces them to a topic from its own thread, evenly over the partitions, at a given rate. An event counts as
produced when the broker has acknowledged it. Raises `Unavailable` if the broker refuses, or none answers.
`python -m sink.devtools.demo.orders` is a producer for the command line.
"""

from __future__ import annotations

import concurrent.futures
import logging
import sys
import threading
import time
from collections.abc import Iterator

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from coordination.errors import SinkError, Unavailable
from sink.devtools.local.kafka import kafka_answers

DDL = (
    "order_id BIGINT, customer_id BIGINT, item STRING, quantity INT, price DOUBLE, country STRING, placed_at TIMESTAMP"
)
ITEMS = ("keyboard", "monitor", "desk", "lamp", "notebook", "chair", "cable", "headset")
COUNTRIES = ("AT", "BR", "CH", "DE", "FR", "IN", "JP", "US")
CHUNK = 500
ANSWER_SECONDS = 10.0
ACKNOWLEDGE_SECONDS = 60.0
EXIT_CANNOT = 2
_NOWHERE = logging.getLogger(f"{__name__}.producer")
_NOWHERE.addHandler(logging.NullHandler())
_NOWHERE.propagate = False


def events(first: int, count: int) -> Iterator[bytes]:
    """Yields events `first` to `first + count - 1` as JSON, about 150 bytes each."""
    for number in range(first, first + count):
        hashed = (number * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        second, milli = divmod(number * 7, 1000)
        minute, second = divmod(second, 60)
        hour, minute = divmod(minute, 60)
        yield (
            f'{{"order_id": {number}, "customer_id": {hashed >> 44}, "item": "{ITEMS[hashed >> 20 & 7]}", '
            f'"quantity": {1 + (hashed >> 24 & 7)}, "price": {(hashed >> 28 & 0x3FFFF) / 100}, '
            f'"country": "{COUNTRIES[hashed >> 16 & 7]}", '
            f'"placed_at": "2026-01-{1 + hour // 24:02d}T'
            f'{hour % 24:02d}:{minute:02d}:{second:02d}.{milli:03d}Z"}}'
        ).encode()


class Feed:
    """Produces `count` events to `topic`, at most `rate` a second."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, count: int, rate: float) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 50,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 200_000,
                "enable.idempotence": True,
                "message.timeout.ms": int(ACKNOWLEDGE_SECONDS * 1000),
            },
            logger=_NOWHERE,
        )
        self._topic = topic
        self._partitions = partitions
        self._count = count
        self._rate = rate
        self._stop = threading.Event()
        self._refusal: str | None = None
        self._acknowledged = 0
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    @property
    def produced(self) -> int:
        """The number of acknowledged events. Raises `Unavailable` if the broker refused one."""
        if self._refusal:
            raise Unavailable(f"topic {self._topic}: Kafka does not take the events: {self._refusal}")
        return self._acknowledged

    @property
    def done(self) -> bool:
        return self.produced == self._count

    def stop(self) -> None:
        """Stops early, and drops the events in the producer's queue."""
        self._stop.set()
        if self.started:
            self._producer.purge()
            self._thread.join(ACKNOWLEDGE_SECONDS)

    def _run(self) -> None:
        started = time.monotonic()
        for first in range(0, self._count, CHUNK):
            if self._stop.wait(max(0.0, started + first / self._rate - time.monotonic())):
                return
            for index, event in enumerate(events(first, min(CHUNK, self._count - first)), first):
                self._send(event, index % self._partitions)
        self._producer.flush(ACKNOWLEDGE_SECONDS)

    def _send(self, event: bytes, partition: int) -> None:
        while not self._stop.is_set():
            try:
                self._producer.produce(self._topic, event, partition=partition, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.1)  # the queue is full: wait for acknowledgements
                continue
            except KafkaException as error:
                self._refusal = error.args[0].str()
                self._stop.set()
                return
            self._producer.poll(0)
            return

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self._acknowledged += 1
        else:
            self._refusal = str(error)


def make_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Makes the topic unless it is there. Raises `Unavailable`."""
    if not kafka_answers(bootstrap, ANSWER_SECONDS):
        raise Unavailable(
            f"no Kafka broker answers at {bootstrap} within {ANSWER_SECONDS:.0f} s. Start one or correct --bootstrap."
        )
    new_topic = NewTopic(topic, num_partitions=partitions, replication_factor=1)
    try:
        with AdminClient({"bootstrap.servers": bootstrap}, logger=_NOWHERE) as admin:
            admin.create_topics([new_topic])[topic].result(timeout=ACKNOWLEDGE_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise Unavailable(f"topic {topic} cannot be made at {bootstrap}: {error.args[0].str()}") from error
    except concurrent.futures.TimeoutError as error:
        raise Unavailable(f"topic {topic} was not made at {bootstrap} in {ACKNOWLEDGE_SECONDS:.0f} s") from error


def produce(
    bootstrap: str = typer.Option(..., help="Kafka brokers: host:port,..."),
    topic: str = typer.Option("orders", help="Made if it is not there."),
    partitions: int = typer.Option(6, min=1, help="As many are made, and written to."),
    records: int = typer.Option(500_000, min=1, help="How many events."),
    rate: float = typer.Option(10_000.0, min=1.0, help="Events a second."),
) -> None:
    """Produce order events to a topic."""
    make_topic(bootstrap, topic, partitions)
    feed = Feed(bootstrap, topic, partitions, records, rate)
    feed.start()
    while not feed.done:
        time.sleep(0.2)
    typer.echo(f"{feed.produced:,} events produced to {topic}")


def main() -> None:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(produce)
    try:
        app()
    except SinkError as error:
        print(f"sink.devtools.demo.orders: {error}", file=sys.stderr)
        sys.exit(EXIT_CANNOT)


if __name__ == "__main__":
    main()
