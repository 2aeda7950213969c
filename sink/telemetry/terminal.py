"""A console for people, and libraries that stay silent, for the commands."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from sink.telemetry.logs import configure
from sink.telemetry.redaction import Redactor
from sink.telemetry.shown import ShownStream, shown_lines


def quiet(secrets: Iterable[str] = ()) -> None:
    """Silences libraries, except for critical events: a command reports its errors itself."""
    configure("error", "console", Redactor(tuple(secrets)))
    logging.getLogger().setLevel(logging.CRITICAL)


class ShowingConsole(Console):
    """A console whose own escapes are obeyed, and those of the text shown."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else shown_lines(text), style, control)


def console() -> Console:
    """Returns a console for people. Without a terminal it is 200 columns wide, so that no line is cut."""
    stream = sys.stdout.original if isinstance(sys.stdout, ShownStream) else sys.stdout
    width = None if stream.isatty() else 200
    return ShowingConsole(file=stream, width=width, highlight=False, markup=False, emoji=False)
