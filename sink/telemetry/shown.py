"""Escapes control and format characters in untrusted text, so that a terminal shows them instead of obeying them.

Record values, names (of headers, topics, workers) and error messages may hold escape sequences that move the cursor or
change colours, marks that reverse the direction of text, and line feeds that forge a log line. Guarantee: `shown`
leaves no character of `HIDDEN`; it writes each as Python's escape (`\\x1b`, `\\u202e`). It changes nothing else. A
backslash stays as it is, so text that already contains `\\x1b` looks the same as an escaped one. Raises nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

HIDDEN = (
    "\u0000-\u0008\u000a-\u001f\u007f-\u009f"  # C0 and C1 controls, without the tab
    "\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f"  # soft hyphen, joiners, fillers, vowel separators
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero width, line separators, bidirectional marks
    "\u2800\u3164\uffa0"  # an empty Braille pattern, fillers
    "\ud800-\udfff"  # lone surrogates, which UTF-8 cannot encode
    "\ufe00-\ufe0f\ufeff\ufff0-\ufffb"  # variation selectors, byte order mark, interlinear annotation
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # shorthand and musical format controls, which have no glyph
    "\U000e0000-\U000e0fff"  # tags, more variation selectors
)
"""A class of characters, as in a regular expression: single ones and ranges."""
_UNSAFE = re.compile(f"[{HIDDEN}]")


def shown(text: str) -> str:
    """Returns the text on one line, with every character of `HIDDEN` escaped."""
    return _UNSAFE.sub(_escaped, text)


def shown_lines(text: str) -> str:
    """Returns the text with its line feeds, and every other character of `HIDDEN` escaped."""
    return "\n".join(map(shown, text.split("\n")))


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


class ShownStream:
    """Wraps a text stream: escapes what is written, except for line feeds. `original` is the wrapped stream."""

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
    """Wraps standard output and standard error in ShownStream, and restores them at the end."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = ShownStream(before[0]), ShownStream(before[1])
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
