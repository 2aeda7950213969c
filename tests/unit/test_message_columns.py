"""Messages as columns, in a case for which a test can hardly fill a topic."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from sink.decode.formats import ValueFormat
from sink.layout.partition_paths import PartitionPaths
from sink.layout.record_keys import RecordKeys
from sink.schema import parse_ddl
from sink.write.kafka_reader import message_columns
from sink.write.record_columns import RowDecoder, RowSpec, separate_bad

MIB = 1 << 20
LAST = (2**63 - 1) // 1000


def test_values_that_no_column_can_hold_are_an_error_and_no_wrong_column() -> None:
    """The error counts as a failure for memory: the next attempt holds less."""
    times = (TIMESTAMP_CREATE_TIME, 0)
    messages = [Message("orders", 0, 0, None, bytes(MIB), None, None, times)] * 2048
    with pytest.raises(pa.ArrowCapacityError):
        columns_of(messages)


def test_a_timestamp_that_no_column_can_hold_makes_a_bad_record() -> None:
    """Nanoseconds, where Kafka counts milliseconds, and the last milliseconds that fit, with the next ones."""
    times = (-1, 1_700_000_000_000_000_000, 1_700_000_000_000, LAST, LAST + 1, -LAST, -LAST - 1, -(2**63), 2**63 - 1)
    values = [b'{"id": %d}' % number for number in range(len(times))]
    messages = [
        Message("orders", 0, offset, None, value, None, None, (TIMESTAMP_CREATE_TIME, time))
        for offset, (time, value) in enumerate(zip(times, values, strict=True))
    ]
    spec = RowSpec(parse_ddl("id bigint"), ValueFormat("json"), RecordKeys((), False), PartitionPaths((), True, False))
    _, decoded, bad_rows = separate_bad(columns_of(messages), "orders", RowDecoder(spec).decode)
    assert [(bad.row, bad.kind) for bad in bad_rows] == [(row, "timestamp") for row in (1, 4, 6, 7, 8)]
    assert decoded is not None
    micros = decoded[0].column("_kafka_timestamp").cast(pa.int64()).to_pylist()
    assert micros == [times[row] * 1000 for row in (0, 2, 3, 5)]


def columns_of(messages: list[Message]) -> pa.RecordBatch:
    count = len(messages)
    return message_columns(messages, np.zeros(count, np.int32), np.arange(count), np.zeros(count, np.uint64), None)
