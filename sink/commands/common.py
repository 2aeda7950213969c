"""Options that the commands of `sink` share, the choice of sinks, and tables of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.table import Table

from sink.config import Settings, load_configuration
from sink.operations.chosen import KnownSinks, choose, choose_one
from sink.telemetry.shown import shown
from sink.telemetry.terminal import quiet

CONFIG_HELP = "Settings: a YAML or .properties file, or a directory of them."
ConfigOption = Annotated[Path, typer.Option("--config", "-c", help=CONFIG_HELP, show_default=False)]
SinkOption = Annotated[
    list[str] | None,
    typer.Option("--sink", "-s", help="The sink, where there are several. A name, or one with * and ?."),
]
SinksOption = Annotated[
    list[str] | None,
    typer.Option("--sink", "-s", help="Only this sink. A name, or one with * and ?. May be repeated."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, with a stable schema.")]


def one_sink(config: Path, names: Sequence[str] | None, columns: bool = True) -> Settings:
    """Returns the one sink of a command. Hides its secrets from now on. Raises ConfigError if there are several."""
    fleet = load_configuration(config, columns=columns, strict=False)
    quiet(fleet.secrets)
    return choose_one(fleet, names or ())


def several_sinks(config: Path, names: Sequence[str] | None) -> KnownSinks:
    """Returns all sinks of a command. Hides their secrets from now on."""
    fleet = load_configuration(config, strict=False)
    quiet(fleet.secrets)
    return choose(fleet, names or ())


def _one_line(cell: RenderableType) -> RenderableType:
    return shown(cell) if isinstance(cell, str) else cell


def text_table(names: Sequence[str], rows: Iterable[Sequence[RenderableType]], title: str | None = None) -> Table:
    """Returns a table without lines. The cells of a column whose name ends with `>` are at its right edge."""
    # Rich wraps a title at the width of its table.
    width = len(title) if title else None
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, min_width=width)
    for name in names:
        table.add_column(name.rstrip(">"), justify="right" if name.endswith(">") else "left")
    for row in rows:
        table.add_row(*map(_one_line, row))
    return table
