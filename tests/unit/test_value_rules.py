"""Settings of what values mean: for all columns, for one of them, misspelt, and left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from settings_kit import minimal_settings

from coordination.errors import ConfigError
from sink.config.record_formats import value_rules
from sink.decode.fields import NO_PATH, NO_RULES, Columns
from sink.schema.table_schema import parse_ddl
from sink.write.rows.row_spec import spec_of
from sink.write.rows.value_rules import left_open

DDL = "id bigint, at timestamp, price decimal(9,2), place struct<since: timestamp, days: array<date>>"


def test_a_column_has_its_own_value_and_the_others_the_common_one(tmp_path: Path) -> None:
    settings = minimal_settings(
        tmp_path, schema__ddl=DDL, time__unit="ms, place.since=us", date__unit="place.days=days"
    )
    fields = {
        field.path: field.rule for field in Columns.of(parse_ddl(DDL).value_struct, value_rules(settings)).all_fields
    }
    assert (fields["at"].time_unit, fields["place.since"].time_unit) == ("ms", "us")
    assert (fields["at"].date_unit, fields["place.days"].date_unit) == (None, "days")


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ({"time.unit": "millis"}, "names 'millis'. Use one of s, ms, us, ns, or column=value"),
        ({"time.unit": "ms, us"}, "names a column twice, or two values for all columns. Keep one"),
        ({"time.unit": "at=ms, at=us"}, "names a column twice"),
        ({"decimal.format": "price=hex"}, "names 'hex'. Use one of numeric, base64"),
        ({"time.unit": "price=ms"}, "time.unit: 'price' is not a column of type TIMESTAMP"),
        ({"time.unit": "id=ms"}, "time.unit: 'id' is not a column of type TIMESTAMP"),
        ({"date.unit": "place.since=days"}, "date.unit: 'place.since' is not a column of type DATE"),
        ({"decimal.format": "gone=numeric"}, "decimal.format: 'gone' is not a column of type DECIMAL"),
    ],
)
def test_a_value_or_a_column_that_cannot_be_is_named(tmp_path: Path, setting: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        settings = minimal_settings(tmp_path, schema__ddl=DDL, **setting)
        spec_of(settings.table, settings.records, parse_ddl(DDL))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            {},
            [
                "time.unit is not set: a number in at, place.since is a bad record. Texts are read.",
                "date.unit is not set: a number in place.days is a bad record. Texts are read.",
                "decimal.format is not set: a text in price is a bad record. Numbers are read.",
            ],
        ),
        (
            {"time__unit": "at=ms", "date__unit": "days", "decimal__format": "numeric"},
            ["time.unit is not set: a number in place.since is a bad record. Texts are read."],
        ),
        ({"value__format": "avro-confluent", "schema__registry__url": "http://registry"}, []),
    ],
    ids=["nothing set", "some set", "a format whose types say it"],
)
def test_what_a_configuration_leaves_open_is_told_with_its_columns(
    tmp_path: Path, more: dict[str, str], expected: list[str]
) -> None:
    assert left_open(minimal_settings(tmp_path, schema__ddl=DDL, **more).records.form, parse_ddl(DDL)) == expected


def test_a_path_ends_where_nobody_would_write_it() -> None:
    deep = "x int"
    for _ in range(3):
        deep = f"{'n' * 600} struct<{deep}>"
    paths = [field.path for field in Columns.of(parse_ddl(deep).value_struct, NO_RULES).all_fields]
    assert [path if path == NO_PATH else len(path) for path in paths] == [600, NO_PATH, NO_PATH, NO_PATH]
