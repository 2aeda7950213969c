"""Options that the commands of `sink` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", help="Settings: a YAML or .properties file.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, with a stable schema.")]
