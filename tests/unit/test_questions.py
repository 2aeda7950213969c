"""The questions of `docs/questions.tsv` are answered: each names a page and words of the answer that stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

HEADER, *ROWS = [line.split("\t") for line in (DOCS / "questions.tsv").read_text().splitlines()]


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def _section(page: str, anchor: str) -> str:
    """Returns the text below the heading of that anchor, or the line that has it; empty if the page has no such."""
    for line in page.splitlines():
        if f'<a id="{anchor}"></a>' in line:
            return line
    blanked = FENCE.sub(lambda fence: re.sub(r"^#", " ", fence[0], flags=re.MULTILINE), page)
    headings = list(re.finditer(r"^(#+) (.+)$", blanked, re.MULTILINE))
    for index, heading in enumerate(headings):
        if _slug(heading[2]) == anchor:
            following = (later.start() for later in headings[index + 1 :] if len(later[1]) <= len(heading[1]))
            return page[heading.start() : next(following, len(page))]
    return ""


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_each_question_is_answered_where_it_says(row: list[str]) -> None:
    _, place, words = row
    path, _, anchor = place.partition("#")
    page = (ROOT / path).read_text()
    answer = _section(page, anchor) if anchor else page
    assert answer, f"{path} has no #{anchor}"
    assert [word for word in words.split(" | ") if word not in answer] == []


def test_there_is_a_question_for_every_page() -> None:
    asked = {place.partition("#")[0] for _, place, _ in ROWS}
    pages = {str(page.relative_to(ROOT)) for page in [ROOT / "README.md", *DOCS.rglob("*.md")]}
    assert {page for page in pages - asked if not re.match(r"docs/decisions/\d", page)} == set()
    assert len(ROWS) >= 50
    assert HEADER == ["question", "page", "words of the answer"]
