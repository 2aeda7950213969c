"""Each table that a defect broke is found by the audit, and by what. `test_audit_contents.py` has those of values."""

from __future__ import annotations

from pathlib import Path

import pytest

from sink.audit.audit import audit
from sink.audit.report import FindingKind
from tests.mutations.kept import reading
from tests.mutations.old_tables import BROKEN, broken_log, has_log, unpack_broken

FOUND = {
    "compaction-lost-updates": (FindingKind.FILE_UNSEEN, "was merged from 1 log files, and hides 3"),
    "compaction-lost-column": (FindingKind.COLUMNS, "column added of commit 20261127081131917"),
    "clustering-lost-column": (FindingKind.COLUMNS, 'column number has type ["int", "null"] in commit'),
    "another-cluster": (FindingKind.CELL, "column kind: the table has 'wrong', the log 'right'"),
    "recreated-in-mid-read": (FindingKind.CELL, "column kind: the table has 'new', the log 'old'"),
    "late-files-after-clustering": (
        FindingKind.FILE_UNNAMED,
        "belongs to a file group that 20261127135014600 replaced",
    ),
    "archive-set-back": (FindingKind.BROKEN_CHAIN, "extends number 3, but the timeline has number 2"),
}
CELLS = {
    "another-cluster": {"kind": 879},
    "recreated-in-mid-read": {"id": 1754, "kind": 40_375, "amount": 1754},
}
"""How many rows differ in each column."""


def test_no_kept_table_is_left_out() -> None:
    assert {path.name.removesuffix(".tar.xz") for path in BROKEN.glob("*.tar.xz")} == {*FOUND, "values"}


@pytest.mark.parametrize("name", FOUND)
def test_a_kept_table_is_found(name: str, tmp_path: Path) -> None:
    edited = unpack_broken(name, tmp_path)
    kind, text = FOUND[name]
    if has_log(name):
        with reading(broken_log(name, edited)) as access:
            report = audit(str(edited.table), access=access, content=True)
    else:
        report = audit(str(edited.table))
    assert any(text in finding.sentence for finding in report.failures if finding.kind is kind), report.failures
    if name in CELLS:
        assert report.content is not None
        assert report.content.counts == CELLS[name]
