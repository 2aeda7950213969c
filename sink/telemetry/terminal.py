"""A console for people, and libraries that stay silent, for the commands."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

from rich.console import Console

from sink.telemetry.logs import configure
from sink.telemetry.redaction import Redactor


def quiet(secrets: Iterable[str] = ()) -> None:
    """Silences libraries, except for critical events: a command reports its errors itself."""
    configure("error", "console", Redactor(tuple(secrets)))
    logging.getLogger().setLevel(logging.CRITICAL)


def console() -> Console:
    """Returns a console for people. Without a terminal it is 200 columns wide, so that no line is cut."""
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False)
