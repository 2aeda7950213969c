"""The counter of statements, classes and words."""

from __future__ import annotations

import re
from pathlib import Path

from sink.devtools import page_parts, settings_reference
from sink.devtools.count import GENERATED, ROOT, Size, generated_words, report, size_of, words
from tests.docs.pages import helped, with_help

SOURCE = '''"""A docstring."""

class Thing:
    """Another one."""

    number: int = 1

    def double(self) -> int:
        """A third."""
        if self.number:
            return 2 * self.number
        return 0
'''


def test_docstrings_are_no_statements() -> None:
    # The class, its field, its method, the branch and the two returns.
    assert size_of(SOURCE) == Size(statements=6, lines=12, classes=1)


def test_words_between_the_marks_of_make_docs_are_generated(tmp_path: Path) -> None:
    (tmp_path / "docs" / "how-to").mkdir(parents=True)
    (tmp_path / "README.md").write_text("four words by hand")
    (tmp_path / "docs" / "configuration.md").write_text("three generated words")
    (tmp_path / "docs" / "commands.md").write_text("By hand.\n\n<!-- help: status -->\n```text\nUsage: sink\n```\n")
    (tmp_path / "docs" / "how-to" / "page.md").write_text("<!-- help: status -->\n```text\nnot generated\n```\n")
    marks = len(["<!--", "help:", "status", "-->", "```text", "```"])
    assert words(tmp_path) == (4 + 2 + marks + 2 + marks, 3 + 2)


def test_each_generated_part_is_what_its_generator_writes() -> None:
    def text_of(page: str) -> str:
        return (ROOT / page).read_text()

    def emptied(page: str) -> str:
        return GENERATED[page].sub(lambda match: match[0].replace(match["generated"], ""), text_of(page))

    assert text_of("docs/configuration.md") == settings_reference.reference()
    assert all(page_parts.render(page, emptied(page)) == text_of(page) for page in page_parts.PARTS)
    assert helped(emptied("docs/commands.md")) == helped(text_of("docs/commands.md"))
    assert with_help(text_of("docs/commands.md"), lambda _: "") == emptied("docs/commands.md")
    assert all(generated_words(page, text_of(page)) for page in GENERATED)


def test_the_counter_knows_each_page_that_make_docs_writes() -> None:
    recipe = re.search(r"^docs:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    written = set(re.findall(r"docs/[\w-]+\.md(?=$)", recipe[1], re.MULTILINE))
    others = {"docs/commands.md": "tests.docs.help", "docs/how-to/bad-records.md": "tests.docs.reasons"}
    assert written | others.keys() | page_parts.PARTS.keys() == GENERATED.keys()
    assert all(module in recipe[1] for module in others.values())
    assert "sink.devtools.page_parts" in recipe[1]


def test_the_report_has_packages_totals_and_words() -> None:
    text = report()
    for name in (
        "coordination/state",
        "sink/write",
        "sink/ without devtools + coordination/",
        "tests",
        "words by hand",
    ):
        assert re.search(rf"^{re.escape(name)} +[\d,]+", text, re.MULTILINE), name
