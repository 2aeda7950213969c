"""Parses times in the options of a command. Raises ConfigError."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from coordination.errors import ConfigError

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}(:\d{2}(:\d{2}(\.\d{3}(\d{3})?)?)?)?)?(Z|[+-]\d{2}:\d{2})?\Z", re.ASCII)


def parse_time(option: str, text: str) -> datetime:
    """Parses an ISO 8601 text to a UTC time. A text without a zone is UTC."""
    try:
        if not _TIME.match(text):
            raise ValueError(text)
        at = datetime.fromisoformat(_with_minutes(text.replace("Z", "+00:00")))
        return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except (ValueError, OverflowError) as error:
        # OverflowError: the zone shifts the time out of Python's calendar.
        raise ConfigError(
            f"{option} {text!r} is not a time; write 2026-11-25T14:30:00Z, or 2026-11-25 for midnight UTC"
        ) from error


def _with_minutes(text: str) -> str:
    """Adds midnight to a date with a zone: Python's parser needs a time."""
    return f"{text[:10]}T00:00{text[10:]}" if re.fullmatch(r".{10}[+-].*", text) else text
