"""The cost of a stranger's value to a table of many columns, in calls of Python: these do not depend on the machine."""

from __future__ import annotations

import cProfile
import json
import pstats
import tracemalloc
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from sink.decode.fields import Columns, ValueRules
from sink.decode.json.connect_json import ConnectDecoder

COLUMNS = 1000
VALUES = 500
DAYS = "io.debezium.time.Date"


def wide_columns() -> Columns:
    fields = [T.StructField("id", T.LongType()), T.StructField("t", T.TimestampType())]
    fields += [T.StructField(f"c{number}", T.LongType()) for number in range(COLUMNS)]
    return Columns.of(T.StructType(fields), ValueRules())


def in_envelope(number: int, schema: dict[str, object]) -> bytes:
    return json.dumps({"schema": {"type": "struct", **schema}, "payload": {"id": number}}).encode()


def units(number: int) -> list[dict[str, str]]:
    """Returns the fields of a schema that no other value has."""
    names = (f"c{number % 997}", f"c{number // 7 % 997}")
    return [{"field": name, "type": "int64", "name": DAYS} for name in names]


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(lambda number: b'{"id":%d,"t":"nonsense"}' % number, id="a text that is no time"),
        pytest.param(lambda number: b'{"id":0,"id":%d}' % number, id="a member that comes twice"),
        pytest.param(lambda number: b'{"id":"%d"}' % number, id="a text for a number"),
        pytest.param(lambda number: b'{"id":%d,' % number, id="half a document"),
        pytest.param(lambda number: b'{"ID":%d,"C%d":7}' % (number, number), id="names in another case"),
        pytest.param(lambda number: in_envelope(number, {"name": f"n{number}"}), id="a schema of its own name"),
        pytest.param(lambda number: in_envelope(number, {"fields": units(number)}), id="a schema of its own units"),
    ],
)
def test_no_value_costs_as_much_as_a_decoder_of_all_columns(value: Callable[[int], bytes]) -> None:
    decoder = ConnectDecoder(wide_columns())
    values = pa.array([value(number) for number in range(VALUES)], pa.binary())
    with cProfile.Profile() as profile:
        decoded = decoder.decode(values)
    assert len(decoded.rows) + len(decoded.bad) == VALUES
    assert pstats.Stats(profile).total_calls < 2 * COLUMNS * VALUES


def test_records_that_are_decoded_one_by_one_do_not_wait_in_memory_for_the_whole_batch() -> None:
    values = pa.array([b'{"id":0,"id":%d}' % number for number in range(4 * VALUES)], pa.binary())
    decoder = ConnectDecoder(wide_columns())
    tracemalloc.start()
    try:
        decoded = decoder.decode(values)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decoded.rows.column("id").to_pylist() == [*range(4 * VALUES)]
    assert most_bytes < 30 << 20
