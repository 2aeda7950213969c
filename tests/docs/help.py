"""Writes the help texts into docs/commands.md: `python -m tests.docs.help`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import typer
from typer.testing import CliRunner

from sink.cli import app
from tests.docs.pages import COMMANDS, with_help

WIDTH = "100"


def help_of(command: str) -> str:
    """Returns the help text of `sink <command>`."""
    environment = {**os.environ, "COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH, "NO_COLOR": "1"}
    result = CliRunner().invoke(app, [*command.split(), "--help"], prog_name="sink", env=environment)
    if result.exit_code != 0:
        raise ValueError(f"sink {command} --help: {result.output}")
    return "".join(f"{line.rstrip()}\n" for line in result.output.strip().splitlines())


def commands() -> Iterator[str]:
    """Yields every command that can be typed; "" is `sink` itself."""
    yield from _with_subcommands(typer.main.get_command(app), "")


def _with_subcommands(command: object, name: str) -> Iterator[str]:
    yield name
    for part, subcommand in getattr(command, "commands", {}).items():
        yield from _with_subcommands(subcommand, f"{name} {part}".strip())


def main() -> None:
    COMMANDS.write_text(with_help(COMMANDS.read_text(), help_of))


if __name__ == "__main__":
    main()
