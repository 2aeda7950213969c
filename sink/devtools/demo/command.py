"""`sink demo`: servers, a fleet, a killed coordinator and an audit, on this machine.

Exit status 0 if the audit held, 1 if not.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class DemoStorage(Enum):
    """The names of `sink.devtools.demo.tables`, which is imported only when there is a demo."""

    LOCAL = "local"
    S3 = "s3"


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave servers and fleet running and print their addresses.")
    ] = False,
    records: Annotated[int, typer.Option(min=1000, help="How many events to land.")] = 500_000,
    directory: Annotated[
        Path | None,
        typer.Option(help="Where table and logs stay. Default: a new temporary one.", show_default=False),
    ] = None,
    storage: Annotated[
        DemoStorage, typer.Option(help="Where the table is: in the directory, or on an S3 server of the demo's own.")
    ] = DemoStorage.LOCAL,
) -> None:
    """Land events exactly once, kill the coordinator on the way, and prove it."""
    # Imported here: the demo pulls in the servers, which no other command needs.
    from sink.devtools.demo.play import run

    raise typer.Exit(run(keep, records, directory, storage=storage.value))
