"""Docstrings name their subject first."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(file for package in ("coordination", "sink", "tests") for file in (ROOT / package).rglob("*.py"))
OPENINGS = ("Of ", "What ", "Whatever ", "Whose ", "Who ", "Whoever ", "Whom ")


def test_no_docstring_opens_without_its_subject() -> None:
    texts = ((f"{file.relative_to(ROOT)}:{line}", text) for file in FILES for line, text in _docstrings(file))
    assert [f"{location}: {text[:50]}" for location, text in texts if text.startswith(OPENINGS)] == []


def _docstrings(file: Path) -> Iterator[tuple[int, str]]:
    """Yields line and text of each docstring: of modules, classes, functions, attributes and constants."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()
