"""Documents, messages and comments are idiomatic English: no word or phrase is a translation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPARED = "longer|older|newer|fresher|larger|smaller|earlier|later|sooner|other|more|less|one"
TRANSLATIONS = {
    r"mend(s|ed|ing)?": "fix",
    r"whoever": "name the actor",
    r"(tell(s|ing)?|told) of": "report",
    r"ail(s|ed|ing)?": "is impaired",
    r"(bring(s|ing)?|brought) about": "create",
    r"is called so": "is named",
    r"is not meant": "say what is meant",
    r"is well again": "has recovered",
    rf"(?<!there )(is|are|was|were) no (?!{COMPARED})[\w{{]+": "is not a",
    r"(is|are|was|were) not told(?! apart)": "does not say",
    r"takes? no part": "has not joined, does not",
}
SHOWN = {".py", ".md", ".html", ".tsv", ".js"}


def pages() -> Iterator[Path]:
    for room in ("sink", "coordination", "docs"):
        yield from (path for path in sorted((ROOT / room).rglob("*")) if path.suffix in SHOWN)
    yield ROOT / "README.md"


@pytest.mark.parametrize("words", TRANSLATIONS)
def test_no_page_and_no_line_of_code_has_a_translation(words: str) -> None:
    pattern = re.compile(rf"\b{words}\b", re.IGNORECASE)
    found = [
        f"{page.relative_to(ROOT)}: {match[0]!r}"
        for page in pages()
        for match in pattern.finditer(re.sub(r"[\s#]+", " ", page.read_text()))
    ]
    assert not found, f"write {TRANSLATIONS[words]!r} instead"
