"""Files and functions of the product stay small enough to be read at once."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(file for package in ("coordination", "sink") for file in (ROOT / package).rglob("*.py"))
LINES_OF_A_FILE, LINES_OF_A_FUNCTION = 400, 60


def test_files_stay_under_400_lines() -> None:
    long = [str(file.relative_to(ROOT)) for file in FILES if len(file.read_text().splitlines()) >= LINES_OF_A_FILE]
    assert long == []


def test_functions_stay_under_60_lines() -> None:
    long = [
        f"{file.relative_to(ROOT)}: {node.name}"
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 >= LINES_OF_A_FUNCTION
    ]
    assert long == []


def test_a_class_name_occurs_once() -> None:
    names = Counter(
        node.name
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, times in names.items() if times > 1] == []
