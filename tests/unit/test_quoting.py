"""Reasons of bad records describe values by type and length where `errors.quote.values` is false."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from change_kit import batch_of, settings_of

from sink.decode.column_records import schema_ids
from sink.decode.cursors import Cursors
from sink.decode.quoting import Quotes, quoted, quoting
from sink.write.rows.record_columns import separate_bad
from sink.write.rows.row_spec import spec_of, table_schema

CANARY = "4929123412341234"
APPEND = {"write__operation": "append", "record__key__fields": ""}
KEYED = {"delete__key__format": "json"}
BAD: Mapping[str, tuple[str, Any, Any, dict[str, str]]] = {
    "a text in a number": ("id int", None, {"id": f"card {CANARY}"}, APPEND),
    "a number in a text's place": ("id array<int>", None, {"id": int(CANARY)}, APPEND),
    "a number that does not fit": ("id int", None, {"id": int(CANARY)}, APPEND),
    "a decimal that does not fit": ("id decimal(5,2)", None, {"id": CANARY}, APPEND),
    "no decimal": ("id decimal(5,2)", None, {"id": f"x{CANARY}"}, APPEND),
    "no date": ("id date", None, {"id": CANARY + "x"}, APPEND),
    "no timestamp": ("id timestamp", None, {"id": CANARY + "x"}, APPEND),
    "no time zone": ("id timestamp", None, {"id": f"2024-01-01T00:00:00[{CANARY}]"}, APPEND),
    "no zone's offset": ("id timestamp", None, {"id": "2024-01-01T00:00:00+49:29"}, APPEND),
    "no object": ("id int", None, f'"{CANARY}"', APPEND),
    "no JSON": ("id int", None, CANARY + "x", APPEND),
    "within a structure": ("a struct<b: array<int>>", None, {"a": {"b": [CANARY]}}, APPEND),
    "a part of a path": ("id string", None, {"id": f"{CANARY}:"}, {**APPEND, "partition__field__name": "id"}),
    "a long part of a path": ("id string", None, {"id": CANARY * 20}, {**APPEND, "partition__field__name": "id"}),
    "a time that no partition has": (
        "id bigint",
        None,
        {"id": int(f"{CANARY}000")},
        {**APPEND, "partition__time__field": "id", "time__unit": "s"},
    ),
    "a key of another type": ("id int", f'"{CANARY}"', None, KEYED),
    "a key that is not a number": ("id int", {"id": CANARY}, None, KEYED),
    "an unknown operation": (
        "id int",
        None,
        {"op": CANARY, "after": {"id": 1}},
        {"value__envelope": "debezium"},
    ),
}


def reasons(directory: Path, kind: str, **more: str) -> list[str]:
    ddl, key, value, settings = BAD[kind]
    loaded = settings_of(directory, **{"schema__ddl": ddl, **settings, **more})
    schema = table_schema(loaded.table, loaded.records)
    spec = spec_of(loaded.table, loaded.records, schema)
    _, _, bad = separate_bad(batch_of([(key, value)]), "t", spec.decoder())
    return [row.reason for row in bad]


@pytest.mark.parametrize("kind", BAD)
def test_no_reason_quotes_a_value(tmp_path: Path, kind: str) -> None:
    (with_value,) = reasons(tmp_path, kind)
    (without,) = reasons(tmp_path, kind, errors__quote__values="false")
    assert CANARY[:4] not in without
    assert "49:29" not in without
    if without != with_value:
        assert re.search(r"\bof \d+ characters\b", without), without


def test_most_reasons_quote_the_value_by_default(tmp_path: Path) -> None:
    quoting_kinds = [kind for kind in BAD if re.search(r"4929|49:29", reasons(tmp_path, kind)[0])]
    assert len(quoting_kinds) >= len(BAD) - 4, set(BAD) - set(quoting_kinds)


def test_a_value_without_a_header_does_not_show_its_first_byte() -> None:
    values = Cursors(pa.array([CANARY.encode()], pa.binary()))
    with quoting(Quotes.LENGTHS):
        schema_ids(values, np.arange(1))
    begins = "its first byte is neither 0 nor 1. A schema registry's header begins with 0 or 1"
    assert [reason.startswith(begins) for reason in values.reasons.values()] == [True]


def test_a_value_is_quoted_unless_the_settings_say_otherwise() -> None:
    assert quoted("twelve", "'twelve'") == "'twelve'"
    with quoting(Quotes.LENGTHS):
        assert quoted("twelve", "'twelve'", "a string") == "a string of 6 characters"
        with quoting(Quotes.VALUES):
            assert quoted("twelve", "'twelve'") == "'twelve'"
    assert quoted(12, "12") == "12"
