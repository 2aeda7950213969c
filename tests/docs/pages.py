"""Finds and replaces the parts of a page that a command printed.

A page says `<!-- help: status -->` before the block of a help text, and writes a command that was run as the line
`$ sink status ...` of a `console` block, with its output below. `<!-- wait: ... -->` before such a block is a command
that is run first and not shown. Raises ValueError for a page whose parts cannot be told.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ROOT / "docs" / "commands.md"
TUTORIAL = ROOT / "docs" / "tutorial.md"
PICTURE = ROOT / "docs" / "demo.svg"

_HELP = re.compile(r"(<!-- help: ?(?P<command>[a-z ]*) -->\n```text\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(
    r"(?:^<!-- wait: (?P<wait>[^\n]+) -->\n)?^```console\n(?P<content>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A command as a page shows it: what is typed, and what has to be true before."""

    typed: str
    wait: str


def with_help(page: str, help_of: Callable[[str], str]) -> str:
    """The page with the help text of every command that it asks for."""
    return _HELP.sub(lambda found: f"{found[1]}{help_of(found['command'])}{found[4]}", page)


def helped(page: str) -> set[str]:
    """The commands whose help texts the page shows."""
    return {found["command"] for found in _HELP.finditer(page)}


def with_outputs(page: str, run: Callable[[Shown], str]) -> str:
    """The page with what its commands print, run in the order of the page."""

    def block(found: re.Match[str]) -> str:
        wait = found["wait"] or ""
        typed = _typed(found["content"])
        return f"{_wait(wait)}```console\n{''.join(each + run(Shown(_script(each), wait)) for each in typed)}```"

    return _BLOCK.sub(block, page)


def _wait(command: str) -> str:
    return f"<!-- wait: {command} -->\n" if command else ""


def _typed(content: str) -> list[str]:
    """Typed text: a line that begins with `$ `, and those after it that begin with `> `."""
    commands: list[str] = []
    goes_on = False
    for line in content.splitlines(keepends=True):
        if line.startswith("$ "):
            commands.append(line)
            goes_on = True
        elif goes_on and line.startswith((">\n", "> ")):
            commands[-1] += line
        else:
            goes_on = False
    if not commands:
        raise ValueError(f"a console block without a command:\n{content}")
    return commands


def _script(typed: str) -> str:
    return "".join(line[1:].removeprefix(" ") for line in typed.splitlines(keepends=True))
