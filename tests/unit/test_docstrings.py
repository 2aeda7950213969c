"""Docstrings name their subject first."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(file for package in ("coordination", "sink", "tests") for file in (ROOT / package).rglob("*.py"))
OPENINGS = ("Of ", "What ", "Whatever ", "Whose ", "Who ", "Whoever ", "Whom ")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_docstring_opens_without_its_subject(file: Path) -> None:
    assert [f"{line}: {text[:50]}" for line, text in _docstrings(file) if text.startswith(OPENINGS)] == []


def _docstrings(file: Path) -> Iterator[tuple[int, str]]:
    """Texts that stand alone as a statement: of modules, classes, functions, attributes and constants."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()
