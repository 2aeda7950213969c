"""What the commands of `sink` share: options, quiet logs, and a ZooKeeper session that only looks.

Errors: Unavailable when ZooKeeper does not answer in time, with its address.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from rich.console import Console

from coordination.errors import Unavailable
from sink.clients.zookeeper import Complaints, new_client
from sink.config import Settings
from sink.telemetry.logs import configure
from sink.telemetry.redaction import Redactor

CONNECT_SECONDS = 10.0

ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", help="Settings: a YAML or .properties file.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, with a stable schema.")]


def quiet(settings: Settings | None = None) -> None:
    """A command says what it has to say itself: libraries stay silent, unless something is badly wrong."""
    configure("error", "console", Redactor(settings.secrets if settings else ()))
    logging.getLogger().setLevel(logging.CRITICAL)


def console() -> Console:
    """For people; as wide as it takes when it does not go to a terminal, so that nothing is cut."""
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False)


def sink_root(settings: Settings) -> str:
    return f"{settings.zookeeper_root.rstrip('/')}/{settings.name}"


@contextmanager
def zookeeper(settings: Settings, seconds: float = CONNECT_SECONDS) -> Iterator[KazooClient]:
    """A started client."""
    complaints = Complaints()
    client = new_client(settings, complaints, max_delay=1.0)
    try:
        client.start(timeout=seconds)
    except KazooTimeoutError as error:
        client.close()
        raise Unavailable(
            f"ZooKeeper at {settings.zookeeper} did not answer within {seconds:g} s ({complaints.last}); start it or"
            " correct zookeeper.*"
        ) from error
    try:
        yield client
    finally:
        client.stop()
        client.close()
