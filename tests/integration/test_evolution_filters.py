"""Readers find the rows of before and after a change of columns, whatever they filter by, also once a clustering has
written both into one file."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hudi import HudiReadOptions, HudiTableBuilder
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tests.integration.landing_kit import Landing
from tests.integration.sinktable import make_settings, produce
from tests.integration.table_kit import CLUSTERING, by_name, connected

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900), pytest.mark.thorough]

PUSHES = "spark.sql.parquet.filterPushdown.decimal"
CHANGES: Mapping[str, tuple[str, str, list[Any], list[Any]]] = {
    "whole": ("INT", "BIGINT", [-5, 2**31 - 1], [-(2**40), 2**40, 5]),
    "number": ("INT", "DOUBLE", [-5, 7], [-1e300, 1e300, 6.5]),
    "real": ("FLOAT", "DOUBLE", [-0.5, 0.5], [-1e300, 1e300, 0.1]),
    "near": ("DECIMAL(7,2)", "DECIMAL(9,2)", ["-1.25", "99999.89"], ["-9999999.25", "9999999.25", "1.00"]),
    "far": ("DECIMAL(9,2)", "DECIMAL(18,2)", ["-1.25", "1234567.89"], ["-9876543210.25", "9876543210.25", "1.00"]),
}
"""Types and values of before and after, by column."""
OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {"=": operator.eq, "<": operator.lt, ">": operator.gt}
NESTED = {
    "place.city = 'Bern'": {0, 1},
    "place.lat > 46": {2, 3, 4},
    "place.lat < 46": set(),
    "place.lat IS NULL": {0, 1},
}


@pytest.fixture(params=[False, True], ids=["two files", "clustered"])
def evolved(
    request: Any, spark: SparkSession, kafka: Any, zookeeper: Any, topic: Callable[[], str], tmp_path: Path
) -> Landing:
    """A table of five rows, the first two in a file of before; or all in a file of after."""
    name = topic()
    rows = [{column: CHANGES[column][2][number] for column in CHANGES} for number in range(2)]
    rows += [{column: CHANGES[column][3][number] for column in CHANGES} for number in range(3)]
    places = [{"city": "Bern"}] * 2 + [{"city": "Ulm", "lat": 48.4}] * 3
    records = [{"id": number, "place": places[number], **row} for number, row in enumerate(rows)]
    produce(kafka.address, name, [json.dumps(record) for record in records])
    with connected(zookeeper.address) as client:

        def opened(which: int, place: str) -> Landing:
            ddl = ", ".join(["id INT", place, *(f"{column} {change[which]}" for column, change in CHANGES.items())])
            more = {"zookeeper__connect": zookeeper.address, "schema__widen__decimals": "true", **CLUSTERING}
            settings = make_settings(tmp_path, kafka.address, name, ddl, **more)
            return Landing(spark, settings, client)

        opened(0, "place STRUCT<city: STRING>").land(1, name, 0, 2)
        after = opened(1, "place STRUCT<city: STRING, lat: DOUBLE>")
        after.land(2, name, 2, 5)
        if request.param:
            assert by_name(after.table.services())["clustering"].instant
        files = set(after.read(metadata=False).inputFiles())
        assert len(files) == (1 if request.param else 2)
    return after


def values(column: str) -> list[Any]:
    kind, _, before, after = CHANGES[column]
    exact = Decimal if kind.startswith("DECIMAL") else lambda value: value
    return [exact(value) for value in (*before, *after)]


def filters(column: str) -> list[tuple[str, Any, set[int]]]:
    """Returns operator, literal and the ids that pass, for each value of the column."""
    return [
        (sign, literal, {number for number, value in enumerate(values(column)) if passes(value, literal)})
        for literal in values(column)
        for sign, passes in OPERATORS.items()
    ]


@pytest.mark.parametrize("column", CHANGES)
def test_spark_and_hudi_rs_find_rows_on_both_sides_of_the_old_range(
    evolved: Landing, spark: SparkSession, column: str
) -> None:
    spark.conf.set(PUSHES, "false")
    frame, uri = evolved.read(), Path(evolved.settings.base_path).as_uri()
    for sign, literal, expected in filters(column):
        rows = frame.where(f"{column} {sign} CAST('{literal}' AS {CHANGES[column][1]})").select("id").collect()
        assert {row["id"] for row in rows} == expected, (sign, literal)
        options = HudiReadOptions(filters=[(column, sign, str(literal))])
        batches = HudiTableBuilder.from_base_uri(uri).build().read(options)
        assert {row["id"] for batch in batches for row in batch.to_pylist()} == expected, (sign, literal)


def test_spark_finds_rows_by_a_field_that_came_later_and_by_a_decimal_only_as_the_setting_says(
    evolved: Landing, spark: SparkSession
) -> None:
    frame = evolved.read()
    for condition, expected in NESTED.items():
        assert {row["id"] for row in frame.where(condition).select("id").collect()} == expected, condition
    spark.conf.set(PUSHES, "true")
    for sign, literal, expected in filters("near"):
        rows = frame.where(f"near {sign} CAST('{literal}' AS DECIMAL(9,2))").select("id").collect()
        assert {row["id"] for row in rows} == expected, (sign, literal)
    if len(set(frame.inputFiles())) > 1:
        with pytest.raises(Py4JJavaError, match="Job aborted"):
            frame.where("far < CAST('9876543210.25' AS DECIMAL(18,2))").select("id").collect()
        return
    for sign, literal, expected in filters("far"):
        rows = frame.where(f"far {sign} CAST('{literal}' AS DECIMAL(18,2))").select("id").collect()
        assert {row["id"] for row in rows} == expected, (sign, literal)
