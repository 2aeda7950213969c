"""Every error has one grammar: `place: problem. Fix.`"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from coordination.errors import in_sentences

ROOT = Path(__file__).resolve().parents[2]
ERRORS = {"Unavailable", "Corrupt", "Conflict", "OutcomeUnknown", "ServiceBlocked", "Halt", "Problem", "TryAgain"}
SECOND_SENTENCE = re.compile(r"\. [A-Z`]")
ENDS = (".", "?", "}")


def _text(node: ast.expr) -> str:
    """Returns a string as it is written, with `{}` for each value in it; empty for what is no string."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return ""


def _sentences() -> Iterator[tuple[str, str]]:
    """Yields where an error is made, and its text."""
    for package in ("coordination", "sink"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call):
                    name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                    if name in ERRORS or name.endswith("Error"):
                        yield from ((f"{path.relative_to(ROOT)}:{node.lineno}", _text(each)) for each in node.args)


def test_an_error_within_another_one_keeps_one_full_stop() -> None:
    assert in_sentences("a", "Do b.", "c: d?", "e") == "a. Do b. c: d? e."


def test_a_fix_is_a_sentence_of_its_own() -> None:
    sentences = [(place, text) for place, text in _sentences() if text]
    assert len(sentences) > 400
    assert [place for place, text in sentences if "; " in text] == []


def test_what_has_a_fix_ends_with_a_full_stop() -> None:
    broken = [place for place, text in _sentences() if SECOND_SENTENCE.search(text) and not text.endswith(ENDS)]
    assert broken == []
