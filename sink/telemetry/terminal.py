"""A console for people, and libraries that stay silent, for the commands."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

from rich.console import Console

from sink.telemetry.logs import configure
from sink.telemetry.redaction import Redactor


def quiet(secrets: Iterable[str] = ()) -> None:
    """Silences libraries, unless something is badly wrong: a command reports by itself."""
    configure("error", "console", Redactor(tuple(secrets)))
    logging.getLogger().setLevel(logging.CRITICAL)


def console() -> Console:
    """Makes a console for people; as wide as it takes when it does not go to a terminal, so that nothing is cut."""
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False)
