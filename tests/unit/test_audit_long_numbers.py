"""Numbers with thousands of digits: the auditor reads each as the writer does, and none stops it."""

from __future__ import annotations

from fractions import Fraction

import pytest
from test_records_fuzz import RULES, SCHEMAS, compare_with_the_auditor

from sink.audit.decode.json_values import json_row
from sink.audit.decode.rules import Rules

ZEROS, NINES = "0" * 5000, "9" * 5000
NUMBERS = [
    f"0.{ZEROS}1",
    f"-0.{ZEROS}1",
    f"1.{ZEROS}",
    f"1.{ZEROS}1",
    f"1.{NINES}",
    f"1{ZEROS}",
    f"1{ZEROS}e-5000",
    f"0.{ZEROS}1e5001",
    f"0.{ZEROS}16777217e5009",
    f"1{ZEROS}1e-5000",
    f"1e-{NINES}",
    f"1e{NINES}",
    f"0e{NINES}",
    f"0e-{NINES}",
    f"-0e-{NINES}",
    f"1e{ZEROS}3",
    f"1e-{ZEROS}3",
    "1e-999999999999",
    "1e-9999999999",
    "1e9999999999",
    "1e-1000000001",
    f"16777217.{ZEROS}1",
    f"16777217.{ZEROS}",
    f"16777216.{NINES}",
    f"3.40282356779733661637539395458142568447{NINES}e38",
    f"1.{'3' * 3998}",
    f"1.{'3' * 4001}",
    f"1714979280000.{NINES}",
    f"-1714979280000.{ZEROS}1",
    f"19849.{ZEROS}1",
    f"19849.{ZEROS}",
]  # fmt: skip


@pytest.mark.parametrize("column", ["f", "d", "dec", "big", "l", "ts", "dt", "s"])
@pytest.mark.parametrize("rules", RULES)
def test_the_auditor_reads_each_long_number_as_the_writer_does(rules: str, column: str) -> None:
    ours, auditors = RULES[rules]
    for number in NUMBERS:
        compare_with_the_auditor(SCHEMAS["flat"], ours, auditors, [f'{{"{column}":{number}}}'.encode()])


@pytest.mark.parametrize("beyond", ["", f"{ZEROS}1"])
def test_a_float_is_the_nearest_one_however_many_digits_decide(beyond: str) -> None:
    halfway = Fraction(2**24 + 1)
    struct = {"type": "struct", "fields": [{"name": "f", "type": "float", "nullable": True, "metadata": {}}]}
    row = json_row(f'{{"f":{int(halfway)}.0{beyond}}}'.encode(), struct, Rules())
    assert row == {"f": 2.0**24 + 2 if beyond else 2.0**24}
