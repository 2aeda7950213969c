"""Finds and replaces the parts of a page that a command printed.

A page says `<!-- help: status -->` before the block of a help text, and writes a command that was run as the line
`$ sink status ...` of a `console` block, with its output below. `<!-- wait: ... -->` before such a block is a command
that is run first and not shown. Raises ValueError for a console block without a command.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sink.devtools.count import HELP

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ROOT / "docs" / "commands.md"
TUTORIAL = ROOT / "docs" / "tutorial.md"
PICTURE = ROOT / "docs" / "demo.svg"

_BLOCK = re.compile(
    r"(?:^<!-- wait: (?P<wait>[^\n]+) -->\n)?^```console\n(?P<content>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A command as a page shows it: the typed text, and the command that runs before it."""

    typed: str
    wait: str


def with_help(page: str, help_of: Callable[[str], str]) -> str:
    """Returns the page with the help texts of the commands that it names."""
    return HELP.sub(lambda match: f"{match[1]}{help_of(match['command'])}{match[4]}", page)


def helped(page: str) -> set[str]:
    """Returns the commands whose help texts the page shows."""
    return {match["command"] for match in HELP.finditer(page)}


def with_outputs(page: str, run: Callable[[Shown], str]) -> str:
    """Returns the page with the output of its commands, which run in the order of the page."""

    def block(match: re.Match[str]) -> str:
        wait = match["wait"] or ""
        shown = (typed + run(Shown(_script(typed), wait)) for typed in _typed_commands(match["content"]))
        return f"{_wait_comment(wait)}```console\n{''.join(shown)}```"

    return _BLOCK.sub(block, page)


def _wait_comment(command: str) -> str:
    return f"<!-- wait: {command} -->\n" if command else ""


def _typed_commands(content: str) -> list[str]:
    """Returns each line that begins with `$ `, with the lines after it that begin with `> `."""
    commands: list[str] = []
    continues = False
    for line in content.splitlines(keepends=True):
        if line.startswith("$ "):
            commands.append(line)
            continues = True
        elif continues and line.startswith((">\n", "> ")):
            commands[-1] += line
        else:
            continues = False
    if not commands:
        raise ValueError(f"a console block without a command:\n{content}")
    return commands


def _script(typed: str) -> str:
    return "".join(line[1:].removeprefix(" ") for line in typed.splitlines(keepends=True))
