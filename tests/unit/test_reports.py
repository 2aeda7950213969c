"""Inputs made after public reports of people who land topics: each value lands as it was meant, or its record is bad
with a reason that names a way out."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from coordination.errors import SinkError
from tests.reports.case_kit import CASES, Case, compared, landed


def _parameters() -> list[Any]:
    return [pytest.param(Case(path), id=path.name) for path in sorted(CASES.iterdir())]


@pytest.mark.parametrize("case", _parameters())
def test_what_topics_hold_lands_as_it_was_meant_or_is_bad_with_a_reason(case: Case, tmp_path: Path) -> None:
    expected = case.expected
    with ExitStack() as stack:
        if "refused" in expected:
            refusal = stack.enter_context(pytest.raises(SinkError))
        found = landed(stack.enter_context(case.settings(tmp_path)), case)
    if "refused" in expected:
        assert not [text for text in expected["refused"] if text not in str(refusal.value)], refusal.value
        return
    reasons = {str(bad.row): bad.reason for bad in found.bad}
    assert [bad.row for bad in found.bad] == expected["bad"], reasons
    rows, expected_rows = compared(found.rows, expected["rows"])
    assert rows == expected_rows
    for offset, wanted in expected.get("reason_contains", {}).items():
        assert not [text for text in wanted if text not in reasons[offset]], reasons[offset]
