"""The audit can fail: whatever is missing, extra, altered or stale in a table is found, and named."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from sink.audit.report import Report
from tests.mutations import commits, hudis, logs, rows
from tests.mutations.auditor_mutants import BLIND, NAN, WRONG, Blind, Wrong
from tests.mutations.cells import CELLS, EXCUSED, THINGS, WAYS, Cell
from tests.mutations.decoder_mutants import AUDITORS, WRITERS
from tests.mutations.edit import Edited
from tests.mutations.kept import KeptTable, unpack

DOCS = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
TABLES = ("appends", "merged", "copied")
MODULES = (commits, hudis, logs, rows)
"""They fill the table of mutations."""
Kept = Callable[[str], Edited]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    directory = tmp_path_factory.mktemp("kept")
    tables = {name: Edited(unpack(name, directory)) for name in TABLES}
    return tables.__getitem__


@pytest.mark.parametrize("name", TABLES)
def test_a_healthy_table_holds(name: str, kept: Kept) -> None:
    report = KeptTable(kept(name).directory).audit()
    assert report.held, report.findings
    assert report.content is not None
    assert report.content.compared == report.rows > 0


def test_each_thing_breaks_in_each_way_and_few_are_excused() -> None:
    found = [(cell.thing, cell.way) for cell in CELLS]
    assert len(found) == len(set(found))
    assert sorted([*found, *EXCUSED]) == sorted(product(THINGS, WAYS))
    assert len(EXCUSED) <= 6


def test_the_docs_list_what_is_excused_and_how_much_is_found() -> None:
    listed: dict[tuple[str, str], list[str]] = {}
    for (thing, way), reason in EXCUSED.items():
        listed.setdefault((thing, reason), []).append(way)
    lines = [f"- **{thing}** ({', '.join(ways)}): {reason}." for (thing, reason), ways in listed.items()]
    assert "\n".join(lines) in DOCS
    assert f"Of the {len(CELLS) + len(EXCUSED)} cells the audit finds {len(CELLS)} " in DOCS
    mutants = len(WRONG) + len(BLIND) + len(AUDITORS)
    assert f"are broken by {mutants} mutants, the writer's decoders by {len(WRITERS)}:" in DOCS


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.name) for cell in CELLS])
def test_what_is_broken_is_found_and_named(cell: Cell, kept: Kept, tmp_path: Path) -> None:
    found, report = looked_for(cell, kept, tmp_path)
    listed = "\n".join(f"{finding.kind.name}: {finding.sentence}" for finding in report.findings)
    assert not report.held, listed
    assert found, listed


def looked_for(cell: Cell, kept: Kept, directory: Path) -> tuple[bool, Report]:
    """Breaks a table. Returns whether the audit names what is broken."""
    edited = kept(cell.table).copy("broken", directory)
    where = cell.break_it(edited)
    report = KeptTable(edited.directory).audit()
    return any(where in finding.sentence for finding in report.failures if finding.kind is cell.kind), report


@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.name) for mutant in WRONG])
def test_an_auditor_that_is_wrong_finds_fault_with_a_healthy_table(
    mutant: Wrong, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant.apply(monkeypatch.setattr)
    assert KeptTable(kept(mutant.table).directory).audit().failures


@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.name) for mutant in BLIND])
def test_an_auditor_that_sees_less_loses_a_mutation(
    mutant: Blind, kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [cell] = [cell for cell in (*CELLS, mutant.cell) if mutant.cell in (cell, getattr(cell, "name", ""))][:1]
    assert isinstance(cell, Cell)
    mutant.apply(monkeypatch.setattr)
    found, report = looked_for(cell, kept, tmp_path)
    assert not found, report.findings


def test_a_nan_is_found(kept: Kept, tmp_path: Path) -> None:
    found, report = looked_for(NAN, kept, tmp_path)
    assert found, report.findings
