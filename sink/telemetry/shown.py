"""Shows text of strangers instead of obeying it.

Record values, names of headers, topics and workers, and texts of errors may hold escapes that move a terminal's cursor
or colour it, marks that reverse the order of letters, and line feeds that forge a line. Guarantee: `shown` leaves none
of them, and what it writes instead says which it was, as Python writes it (`\\x1b`, `\\u202e`). Text without them stays
the same object's text. Raises nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

_HIDDEN = (
    "\x00-\x08\x0a-\x1f\x7f-\x9f"  # controls of ASCII and of Latin-1, without the tab
    "\u00ad\u061c\u180e"  # soft hyphen, Arabic letter mark, Mongolian separator
    "\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f"  # widths of zero, line ends, directions
    "\ufeff\ufff9-\ufffb"
    "\ud800-\udfff"  # half a pair, which no encoding takes
    "\U000e0000-\U000e007f"  # tags
)
_OBEYED = re.compile(f"[{_HIDDEN}]")
_OBEYED_BUT_LINES = re.compile(f"(?!\n)[{_HIDDEN}]")


def shown(text: str) -> str:
    """Returns the text on one line, with everything visible."""
    return _OBEYED.sub(_name, text)


def shown_lines(text: str) -> str:
    """Returns a text of several lines, with everything else visible."""
    return _OBEYED_BUT_LINES.sub(_name, text)


def _name(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


class ShownStream:
    """A text stream in which everything but line feeds is visible."""

    def __init__(self, stream: TextIO) -> None:
        self.original = stream

    def write(self, text: str) -> int:
        self.original.write(shown_lines(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


@contextmanager
def shown_output() -> Iterator[None]:
    """Has standard output and standard error show what is written to them."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = ShownStream(before[0]), ShownStream(before[1])
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
