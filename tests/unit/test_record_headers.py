"""Records whose headers the client cannot read, from a broker in this process to the reader and the decoder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from coordination.state.model import Slice, WriteTask
from sink.decode.formats import ValueFormat
from sink.layout.partition_paths import PartitionPaths
from sink.layout.record_keys import RecordKeys
from sink.schema.table_schema import parse_ddl
from sink.write.reading.headers_column import unreadable_headers
from sink.write.reading.kafka_consumer import ConsumerSettings, KeptConsumer
from sink.write.reading.kafka_reader import ReadLimits, TaskReader
from sink.write.reading.record_headers import UNREADABLE
from sink.write.rows.record_columns import BadRow, RowDecoder, RowSpec, separate_bad
from tests.header_kit import mock_cluster, mock_identity, produce_with_headers

MIB = 1 << 20
TIMES = 50
"""Often enough that CPython specializes the code of the calls."""
RECORDS = [(b'{"id":0}', [b"a"]), (b'{"id":1}', [b"b", b"k\xff"]), (b'{"id":2}', []), (b'{"id":3}', [b"\xc3\xa4"])]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    owner, address = mock_cluster()
    produce_with_headers(address, "t", RECORDS * TIMES)
    yield address
    owner.flush()


def read(address: str, headers: bool) -> pa.RecordBatch:
    settings = ConsumerSettings({"bootstrap.servers": address}, "g").for_reading(MIB, 1)
    consumer = KeptConsumer(settings)
    try:
        _, topic_id = mock_identity(address, "t")
        consumer.client.expect("", {"t": topic_id})
        task = WriteTask((Slice("t", 0, 0, 4 * TIMES, topic_id, 0),))
        [batch] = TaskReader(consumer, task, ReadLimits(MIB, MIB, MIB), headers)
        return batch.records
    finally:
        consumer.client.close()


def test_a_record_whose_header_name_is_not_utf8_is_read_and_the_others_keep_their_headers(address: str) -> None:
    batch = read(address, headers=True)
    names = [headers and [header["key"] for header in headers] for headers in batch.column("headers").to_pylist()]
    assert names == [["a"], [None], None, ["ä"]] * TIMES
    assert unreadable_headers(batch.slice(0, 4)) == {1: UNREADABLE}
    assert unreadable_headers(batch.slice(1, 2)) == {0: UNREADABLE}


def test_a_record_whose_headers_cannot_be_read_is_bad_and_the_others_are_rows(address: str) -> None:
    schema = replace(parse_ddl("id bigint", provenance=False), headers=True)
    decoder = RowDecoder(RowSpec(schema, ValueFormat("json"), RecordKeys((), False), PartitionPaths((), True, False)))
    _, decoded, bad = separate_bad(read(address, headers=True), "t", decoder.decode)
    assert bad == tuple(BadRow(row, "headers", UNREADABLE) for row in range(1, 4 * TIMES, 4))
    assert decoded is not None
    assert decoded[0].column("id").to_pylist() == [0, 2, 3] * TIMES


def test_a_sink_that_needs_no_headers_lands_the_record(address: str) -> None:
    batch = read(address, headers=False)
    assert unreadable_headers(batch) == {}
    assert batch.num_rows == 4 * TIMES
