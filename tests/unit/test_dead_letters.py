"""The headers of records in the dead-letter topic."""

from __future__ import annotations

import pytest
from pyspark.sql import Row

from sink.bad_records.table import headers


@pytest.mark.parametrize(
    ("kind", "stage", "exception"),
    [
        ("value", "VALUE_CONVERTER", "DataException"),
        ("key", "KEY_CONVERTER", "DataException"),
        ("headers", "HEADER_CONVERTER", "DataException"),
        ("timestamp", "TASK_PUT", "ConnectException"),
        ("partition", "TASK_PUT", "ConnectException"),
        ("record key", "TASK_PUT", "ConnectException"),
    ],
)
def test_every_kind_of_bad_record_has_the_stage_and_the_exception_of_kafka_connect(
    kind: str, stage: str, exception: str
) -> None:
    columns = {"_kafka_topic": "t", "topic_id": "an id", "_kafka_partition": 0, "_kafka_offset": 7}
    row = Row(**columns, _kafka_headers=None, kind=kind, reason="why")
    added = dict(headers(row, "orders"))
    assert added["__connect.errors.stage"] == stage.encode()
    assert added["__connect.errors.exception.class.name"] == f"org.apache.kafka.connect.errors.{exception}".encode()
    assert added["__connect.errors.offset"] == b"7"
    assert added["__connect.errors.topic.id"] == b"an id"
    assert added["__connect.errors.connector.name"] == b"orders"
