"""Sends copies of bad records to a Kafka topic, with Kafka Connect's error headers.

Guarantee: every bad record is in the topic at least once, complete, before its transaction commits. The producer is
idempotent, but a repeated publication sends its records again. Voided by the topic's retention and message size. Raises
Unavailable.
"""

from __future__ import annotations

import logging
from typing import Any

import confluent_kafka as ck
from pyspark.sql import DataFrame, Row

from coordination.errors import Unavailable
from sink.config import Settings

LOG = logging.getLogger(__name__)
HEADER = "__connect.errors."
FLUSH_SECONDS = 60.0
_PRODUCER = {"enable.idempotence": True, "message.max.bytes": 1_000_000_000}
"""Only the topic limits the record size, because brokers accepted each of these records once."""
CONVERTERS = {"value": "VALUE_CONVERTER", "key": "KEY_CONVERTER", "headers": "HEADER_CONVERTER"}
"""The stages of Kafka Connect for parts of a record that cannot be read. The sink itself refuses the other kinds."""


def send_dead_letters(settings: Settings, topic: str, rows: DataFrame) -> None:
    """Sends rows of the errors table to the topic, one after another, because each may have many megabytes."""
    place = f"errors.deadletter.topic {topic} at {settings.bootstrap}"
    failed: list[str] = []

    def on_delivery(error: ck.KafkaError | None, _: ck.Message) -> None:
        if error is not None:
            failed.append(error.str())

    try:
        producer = ck.Producer({**settings.kafka_native, **_PRODUCER}, logger=LOG)
        for row in rows.toLocalIterator():
            _produce(
                producer,
                topic=topic,
                value=_bytes(row["value"]),
                key=_bytes(row["_kafka_key"]),
                headers=headers(row, settings.name),
                on_delivery=on_delivery,
            )
        unacknowledged = producer.flush(FLUSH_SECONDS)
    except ck.KafkaException as error:
        raise Unavailable(f"{place}: {error.args[0].str()}") from error
    if failed or unacknowledged:
        reason = failed[0] if failed else f"{unacknowledged} records not acknowledged in time"
        raise Unavailable(f"{place}: {reason}")


def _produce(producer: ck.Producer, **record: Any) -> None:
    while True:
        try:
            producer.produce(**record)
        except BufferError:
            producer.poll(1.0)  # its queue is full
        else:
            producer.poll(0)
            return


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
