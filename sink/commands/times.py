"""Parses times in the options of a command. Raises ConfigError."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from coordination.errors import ConfigError

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}(:\d{2}(:\d{2}(\.\d{3}(\d{3})?)?)?)?)?(Z|[+-]\d{2}:\d{2})?\Z", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def parse_time(option: str, text: str) -> datetime:
    """Parses an ISO 8601 text to a UTC time. A text without a zone is UTC."""
    try:
        if not _TIME.match(text):
            raise ValueError(text)
        parsed = datetime.fromisoformat(_with_minutes(text.replace("Z", "+00:00")))
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except (ValueError, OverflowError) as error:
        # OverflowError: the zone shifts the time out of Python's calendar.
        raise ConfigError(
            f"{option} {text!r} is not a time. Write 2026-11-25T14:30:00Z, or 2026-11-25 for midnight UTC."
        ) from error


def parse_log_time(option: str, text: str) -> datetime:
    """Parses a time at which Kafka is asked for offsets: it takes times before 1970 for the end of the log."""
    at = parse_time(option, text)
    if at < _EPOCH:
        raise ConfigError(f"{option} {text!r} lies before 1970, where Kafka's times begin. Correct the year.")
    return at


def _with_minutes(text: str) -> str:
    """Adds midnight to a date with a zone: Python's parser needs a time."""
    return f"{text[:10]}T00:00{text[10:]}" if re.fullmatch(r".{10}[+-].*", text) else text
