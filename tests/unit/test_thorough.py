"""The list of tests that only `make test-all` runs names tests that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.thorough import MOVED, is_thorough

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("pattern", MOVED)
def test_each_pattern_names_a_file_and_words_of_a_test_in_it(pattern: str) -> None:
    path, _, rest = pattern.partition(".py")
    text = (ROOT / f"{path}.py").read_text()
    words = [part for part in rest.partition("[")[0].split("*") if part]
    assert [word for word in words if word not in text] == []
    assert rest == "*" or "pytest.mark.steps" not in text, "all steps of a file run, or none"


def test_a_bracket_of_an_id_is_a_bracket() -> None:
    test = "tests/integration/test_errors_table.py::test_a_task_with_more_bad_records_than_a_transaction_may_have_stops"
    assert is_thorough(f"{test}[hudi]")
    assert not is_thorough(f"{test}[arrow]")
