"""Topics of a sink as its entries name them, where these can be read. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from sink.config.files import Entry
from sink.config.values import topic_names, topic_regex


def names_in(entries: Mapping[str, Entry]) -> tuple[str, ...]:
    """Returns `kafka.topic.names`; empty where there are none, or none that can be used."""
    try:
        return topic_names(entries["kafka.topic.names"].value)
    except (KeyError, ValueError):
        return ()


def regex_in(entries: Mapping[str, Entry]) -> str | None:
    """Returns `kafka.topic.regex`; None where there is none, or none that can be used."""
    try:
        return topic_regex(entries["kafka.topic.regex"].value)
    except (KeyError, ValueError):
        return None
