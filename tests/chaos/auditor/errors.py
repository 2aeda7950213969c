"""The errors table: every bad event is there once, as it was sent, at its position in Kafka; no good one is.

Rows of transactions that the table has not committed do not count: the sink promises nothing about them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from tests.chaos.auditor.log import SentEvent

COLUMNS = ("value", "_kafka_partition", "_kafka_offset", "instant")
FINDINGS = ("bad_lost", "bad_duplicated", "bad_mistaken", "good_set_aside")


def find(
    rows: Sequence[tuple[Any, ...]], events: Sequence[SentEvent], committed: Collection[str]
) -> dict[str, list[object]]:
    """Returns, by finding, the texts of the events."""
    published = [
        ((value or b"").decode(), (partition, offset))
        for value, partition, offset, instant in rows
        if instant in committed
    ]
    positions, repeated = dict(published), Counter(value for value, _ in published)
    bad = {event.text: event.position for event in events if event.mark == "bad"}
    good = {event.text for event in events if event.mark == "good"}
    return {
        "bad_lost": [text for text in bad if text not in positions],
        "bad_duplicated": [text for text, count in repeated.items() for _ in range(count - 1)],
        "bad_mistaken": [text for text, position in bad.items() if positions.get(text, position) != position],
        "good_set_aside": [text for text in positions if text in good],
    }
