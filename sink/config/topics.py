"""Reads the topics of a sink from its entries. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from sink.config.files import Entry
from sink.config.values import topic_names, topic_regex


def names_in(entries: Mapping[str, Entry]) -> tuple[str, ...]:
    """Returns `kafka.topic.names`, or nothing if it is missing or malformed."""
    try:
        return topic_names(entries["kafka.topic.names"].value)
    except (KeyError, ValueError):
        return ()


def regex_in(entries: Mapping[str, Entry]) -> str | None:
    """Returns `kafka.topic.regex`, or None if it is missing or malformed."""
    try:
        return topic_regex(entries["kafka.topic.regex"].value)
    except (KeyError, ValueError):
        return None
