"""The glossary and the code use the same words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"\| \*\*(.+?) \| (.*?) \| .+ \|")


@pytest.fixture(scope="module")
def names_of_terms() -> dict[str, list[str]]:
    """Returns the names in the code, by term."""
    rows = map(ROW.fullmatch, (ROOT / "docs" / "glossary.md").read_text().splitlines())
    return {row[1].replace("**", ""): re.findall(r"`(\w+)`", row[2]) for row in rows if row}


def _defined() -> Iterator[str]:
    """Yields the names that modules of the sink define: of modules, classes, functions, fields and constants."""
    for package in ("coordination", "sink"):
        for path in (ROOT / package).rglob("*.py"):
            yield path.stem
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef | ast.FunctionDef):
                    yield node.name
                elif isinstance(node, ast.AnnAssign | ast.Assign):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    yield from (target.id for target in targets if isinstance(target, ast.Name))


def test_the_code_has_a_name_for_every_term(names_of_terms: dict[str, list[str]]) -> None:
    assert len(names_of_terms) > 40
    assert [term for term, names in names_of_terms.items() if not names] == []
    defined = set(_defined())
    assert {term: names for term, names in names_of_terms.items() if not defined.issuperset(names)} == {}


def test_every_class_of_the_model_belongs_to_a_term(names_of_terms: dict[str, list[str]]) -> None:
    model = ast.parse((ROOT / "coordination" / "state" / "model.py").read_text())
    classes = {node.name for node in model.body if isinstance(node, ast.ClassDef)}
    assert classes - {name for names in names_of_terms.values() for name in names} == set()
