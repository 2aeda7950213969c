"""Sends copies of bad records to a Kafka topic, with Kafka Connect's error headers.

Guarantee: every bad record is in the topic at least once, complete, before its transaction commits. The producer is
idempotent, but a repeated publication sends its records again. Voided by the topic's retention and message size. Raises
Unavailable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
from pyspark.sql import DataFrame, Row

from coordination.errors import Unavailable
from sink.config import Settings

LOG = logging.getLogger(__name__)
DeliveryCallback = Callable[[Any, Any], None]
HEADER = "__connect.errors."
FLUSH_SECONDS = 60.0
_PRODUCER = {"enable.idempotence": True, "message.max.bytes": 1_000_000_000}
"""Only the topic limits the record size, because brokers accepted each of these records once."""
CONVERTERS = {"value": "VALUE_CONVERTER", "key": "KEY_CONVERTER", "headers": "HEADER_CONVERTER"}
"""The stages of Kafka Connect for parts of a record that cannot be read. The sink itself refuses the other kinds."""


class DeadLetters:
    """Sends bad records to `errors.deadletter.topic`. Connects with the first record."""

    def __init__(self, settings: Settings) -> None:
        assert settings.errors_topic is not None
        self._settings = settings
        self._topic = settings.errors_topic

    def send(self, rows: DataFrame) -> None:
        """Sends rows of the errors table, one after another, because each may have many megabytes."""
        failed: list[str] = []

        def on_delivery(error: ck.KafkaError | None, _: ck.Message) -> None:
            if error is not None:
                failed.append(error.str())

        try:
            producer = ck.Producer({**self._settings.kafka_native, **_PRODUCER}, logger=LOG)
            for row in rows.toLocalIterator():
                self._produce(producer, row, on_delivery)
            unacknowledged = producer.flush(FLUSH_SECONDS)
        except ck.KafkaException as error:
            raise Unavailable(f"{self._topic_address}: {error.args[0].str()}") from error
        if failed or unacknowledged:
            reason = failed[0] if failed else f"{unacknowledged} records not acknowledged in time"
            raise Unavailable(f"{self._topic_address}: {reason}")

    def _produce(self, producer: ck.Producer, row: Row, on_delivery: DeliveryCallback) -> None:
        value, key = _bytes(row["value"]), _bytes(row["_kafka_key"])
        added = headers(row, self._settings.name)
        while True:
            try:
                producer.produce(self._topic, value, key, on_delivery=on_delivery, headers=added)
            except BufferError:
                producer.poll(1.0)  # its queue is full
            else:
                producer.poll(0)
                return

    @property
    def _topic_address(self) -> str:
        return f"errors.deadletter.topic {self._topic} at {self._settings.bootstrap}"


def headers(row: Row, sink: str) -> list[tuple[str, str | bytes | None]]:
    """Returns the record's own headers, followed by Kafka Connect's."""
    stage = CONVERTERS.get(row["kind"], "TASK_PUT")
    # The exceptions of Kafka Connect's converters and sinks, for which tools look in these headers.
    exception = "ConnectException" if stage == "TASK_PUT" else "DataException"
    connect = {
        "topic": row["_kafka_topic"],
        "partition": row["_kafka_partition"],
        "offset": row["_kafka_offset"],
        "connector.name": sink,
        "task.id": 0,
        "stage": stage,
        "class.name": "sink",
        "exception.class.name": f"org.apache.kafka.connect.errors.{exception}",
        "exception.message": row["reason"],
    }
    record_headers = ((header["key"], _bytes(header["value"])) for header in row["_kafka_headers"] or ())
    return [*record_headers, *((HEADER + name, str(value).encode()) for name, value in connect.items())]


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
