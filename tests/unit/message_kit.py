"""Records in the columns that the writer's decoders take, without a topic."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from sink.operations.samples import columns_of


def record_columns(*records: tuple[Any, Any], topic: str = "orders") -> pa.RecordBatch:
    """Returns records of one partition, of keys and values: bytes and None as they are, the rest as JSON."""
    times = (TIMESTAMP_CREATE_TIME, 1)
    messages = [
        Message(topic, 0, offset, _bytes(key), _bytes(value), None, None, times)
        for offset, (key, value) in enumerate(records)
    ]
    return columns_of(messages, headers=False)


def _bytes(part: Any) -> bytes | None:
    return part if part is None or isinstance(part, bytes) else json.dumps(part).encode()
