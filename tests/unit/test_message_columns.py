"""Messages as columns, in a case for which a test can hardly fill a topic."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from sink.decode.formats import ValueFormat
from sink.layout.partition_paths import PartitionPaths
from sink.layout.record_keys import RecordKeys
from sink.schema.table_schema import parse_ddl
from sink.write.reading.message_columns import message_columns
from sink.write.rows.record_columns import RowDecoder, RowSpec, separate_bad

MIB = 1 << 20
NONE = -1
FIRST, LAST = -62_135_596_800_000, 253_402_300_799_999
"""The first and the last millisecond of the years 0001 to 9999."""


def test_values_that_no_column_can_hold_are_an_error_and_no_wrong_column() -> None:
    """The error counts as a failure for memory: the next attempt holds less."""
    times = (TIMESTAMP_CREATE_TIME, 0)
    messages = [Message("orders", 0, 0, None, bytes(MIB), None, None, times)] * 2048
    with pytest.raises(pa.ArrowCapacityError):
        columns_of(messages)


def test_a_timestamp_that_no_reader_shows_makes_a_bad_record_and_none_makes_null() -> None:
    """Nanoseconds and microseconds, where Kafka counts milliseconds; the last milliseconds of years, and the next."""
    beyond = (1_700_000_000_000_000_000, 1_700_000_000_000_000, LAST + 1, FIRST - 1, -(2**63), 2**63 - 1)
    times = (NONE, *beyond, 1_700_000_000_000, LAST, FIRST, 0, -2)
    values = [b'{"id": %d}' % number for number in range(len(times))]
    messages = [
        Message("orders", 0, offset, None, value, None, None, (TIMESTAMP_CREATE_TIME, time))
        for offset, (time, value) in enumerate(zip(times, values, strict=True))
    ]
    spec = RowSpec(parse_ddl("id bigint"), ValueFormat("json"), RecordKeys((), False), PartitionPaths((), True, False))
    _, decoded, bad_rows = separate_bad(columns_of(messages), "orders", RowDecoder(spec).decode)
    assert [(bad.row, bad.kind) for bad in bad_rows] == [(row, "timestamp") for row in range(1, 1 + len(beyond))]
    assert all("Have the producer count milliseconds" in bad.reason for bad in bad_rows)
    assert decoded is not None
    micros = decoded[0].column("_kafka_timestamp").cast(pa.int64()).to_pylist()
    assert micros == [None, *(time * 1000 for time in times[1 + len(beyond) :])]


def test_a_bad_timestamp_is_the_reason_also_where_the_value_is_bad() -> None:
    """The errors table has null for it: a replay with a repaired value must not take that for no timestamp."""
    message = Message("orders", 0, 0, None, b"{", None, None, (TIMESTAMP_CREATE_TIME, 2**63 - 1))
    spec = RowSpec(parse_ddl("id bigint"), ValueFormat("json"), RecordKeys((), False), PartitionPaths((), True, False))
    _, _, (bad,) = separate_bad(columns_of([message]), "orders", RowDecoder(spec).decode)
    assert bad.kind == "timestamp"


def columns_of(messages: list[Message]) -> pa.RecordBatch:
    count = len(messages)
    return message_columns(messages, np.zeros(count, np.int32), np.arange(count), np.zeros(count, np.uint64), None)
