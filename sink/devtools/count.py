"""`python -m sink.devtools.count`: statements, lines and classes by package, and words of the documentation.

A statement is a node of the syntax tree that is one, except a string that stands alone: docstrings do not count
(docs/decisions/0058). Words are those of README.md and of all pages in docs/. `GENERATED` names what `make docs`
writes; all other words count as written by hand. Raises OSError outside a checkout.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import Self

from sink.devtools.page_parts import PARTS, ROOT

PACKAGES = ("coordination", "sink")
DEVTOOLS = "sink/devtools"
HELP = re.compile(
    r"(<!-- help: ?(?P<command>[a-z ]*) -->\n```text\n)(?P<generated>.*?)(^```$)", re.MULTILINE | re.DOTALL
)
"""A command's help text in docs/commands.md."""
_PART = re.compile(r"<!-- begin: [\w-]+ -->(?P<generated>.*?)<!-- end: [\w-]+ -->", re.DOTALL)
GENERATED: Mapping[str, re.Pattern[str]] = {
    "docs/configuration.md": re.compile(r"(?P<generated>.+)", re.DOTALL),
    "docs/hudi-settings.md": re.compile(r"(?P<generated>.+)", re.DOTALL),
    **dict.fromkeys([*PARTS, "docs/how-to/bad-records.md"], _PART),
    "docs/commands.md": HELP,
}
"""The parts of pages that `make docs` writes."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of some source files."""

    statements: int = 0
    lines: int = 0
    classes: int = 0

    def __add__(self, other: Self) -> Size:
        return Size(self.statements + other.statements, self.lines + other.lines, self.classes + other.classes)


def size_of(source: str) -> Size:
    """Returns the size of one file."""
    nodes = list(ast.walk(ast.parse(source)))
    return Size(
        sum(isinstance(node, ast.stmt) and not _is_text(node) for node in nodes),
        len(source.splitlines()),
        sum(isinstance(node, ast.ClassDef) for node in nodes),
    )


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def generated_words(page: str, text: str) -> int:
    """Returns how many of the page's words `make docs` writes. `page` is relative to the checkout."""
    parts = GENERATED[page].finditer(text) if page in GENERATED else ()
    return sum(len(part["generated"].split()) for part in parts)


def words(root: Path = ROOT) -> tuple[int, int]:
    """Returns the words by hand, and the generated ones."""
    by_hand = generated = 0
    for page in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        text = page.read_text()
        count = generated_words(str(page.relative_to(root)), text)
        by_hand, generated = by_hand + len(text.split()) - count, generated + count
    return by_hand, generated


def sizes(root: Path, folder: str) -> dict[str, Size]:
    """Returns the size of each package below the folder."""
    by_package: dict[str, Size] = {}
    for file in sorted((root / folder).rglob("*.py")):
        package = "/".join(file.relative_to(root).parts[:-1][:2])
        by_package[package] = by_package.get(package, Size()) + size_of(file.read_text())
    return by_package


def report(root: Path = ROOT) -> str:
    """Returns the table of packages, the totals and the words."""
    product = {name: size for folder in PACKAGES for name, size in sizes(root, folder).items()}
    devtools = product.pop(DEVTOOLS, Size())
    rows = {
        **product,
        "sink/ without devtools + coordination/": _total(product.values()),
        DEVTOOLS: devtools,
        "tests": _total(sizes(root, "tests").values()),
    }
    lines = [f"{'':40}{'statements':>12}{'lines':>10}{'classes':>10}"]
    lines += [f"{name:40}{size.statements:12,}{size.lines:10,}{size.classes:10,}" for name, size in rows.items()]
    by_hand, generated = words(root)
    return "\n".join([*lines, f"{'words by hand':40}{by_hand:12,}", f"{'words generated':40}{generated:12,}"])


def _total(counted: Iterable[Size]) -> Size:
    return sum(counted, Size())


if __name__ == "__main__":
    print(report())
