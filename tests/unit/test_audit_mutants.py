"""Writer and auditor are two: what breaks one of them shows in the comparison with the other."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from test_audit_contents import audited

from tests.mutations.decoder_mutants import AUDITORS, WRITERS, Mutant
from tests.reports.case_kit import CASES, Case, compared, content, landed


@dataclass(frozen=True)
class Suffixed(Case):
    """A case whose values end with more bytes."""

    suffix: bytes

    def records(self) -> list[dict[str, Any]]:
        records = super().records()
        for record in records if self.suffix else ():
            record["value"] = {"b64": base64.b64encode((content(record["value"]) or b"") + self.suffix).decode()}
        return records


@pytest.mark.parametrize("mutant", [mutant for mutant in AUDITORS if mutant.suffix], ids=lambda mutant: mutant.name)
def test_what_follows_a_value_changes_nothing(mutant: Mutant, tmp_path: Path) -> None:
    case = Suffixed(CASES / mutant.case, mutant.suffix)
    with case.settings(tmp_path / "case") as settings:
        rows, bad = audited(settings, case, tmp_path)
    found, expected = compared(rows.to_pylist(), case.expected["rows"])
    assert (found, sorted(bad)) == (expected, case.expected["bad"])


@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.name) for mutant in AUDITORS])
def test_an_auditors_decoder_that_is_wrong_makes_other_rows(
    mutant: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Suffixed(CASES / mutant.case, mutant.suffix)
    mutant.apply(monkeypatch.setattr)
    with case.settings(tmp_path / "case") as settings:
        rows, bad = audited(settings, case, tmp_path)
    found, expected = compared(rows.to_pylist(), case.expected["rows"])
    assert found != expected or sorted(bad) != case.expected["bad"]


@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.name) for mutant in WRITERS])
def test_a_writers_decoder_that_is_wrong_makes_other_rows_than_the_auditors(
    mutant: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(CASES / mutant.case)
    mutant.apply(monkeypatch.setattr)
    with case.settings(tmp_path / "case") as settings:
        written = landed(settings, case)
        rows, bad = audited(settings, case, tmp_path)
    found, expected = compared(written.rows, rows.to_pylist())
    assert found != expected or sorted(row.row for row in written.bad) != sorted(bad)
