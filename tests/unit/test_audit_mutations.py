"""The audit can fail: whatever is missing, extra, altered or stale in a table is found, and named."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from coordination.errors import SinkError
from tests.mutations import commits, hudis, logs, rows
from tests.mutations.cells import CELLS, EXCUSED, THINGS, WAYS, Cell
from tests.mutations.edit import Edited
from tests.mutations.kept import KeptTable, unpack

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


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.name) for cell in CELLS])
def test_what_is_broken_is_found_and_named(cell: Cell, kept: Kept, tmp_path: Path) -> None:
    edited = kept(cell.table).copy("broken", tmp_path)
    where = cell.break_it(edited)
    table = KeptTable(edited.directory)
    if cell.kind is None:
        with pytest.raises(SinkError, match=where):
            table.audit()
        return
    report = table.audit()
    listed = "\n".join(f"{finding.kind.name}: {finding.sentence}" for finding in report.findings)
    assert not report.held, listed
    sentences = [finding.sentence for finding in report.failures if finding.kind is cell.kind]
    assert any(where in sentence for sentence in sentences), f"{where}\n{listed}"
