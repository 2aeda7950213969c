"""The errors table: every bad event is there once, as it was sent, under the place that Kafka gave it; no good one is.

Rows of transactions that the table has not committed do not count, as the sink says of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from tests.chaos.auditor.log import Sent

COLUMNS = ("value", "_kafka_partition", "_kafka_offset", "instant")
FINDINGS = ("bad_lost", "bad_duplicated", "bad_mistaken", "good_set_aside")


def find(rows: Sequence[tuple[Any, ...]], sent: Sequence[Sent], committed: Collection[str]) -> dict[str, list[object]]:
    """By finding, which events."""
    held = [((value or b"").decode(), (partition, offset)) for value, partition, offset, at in rows if at in committed]
    places, repeated = dict(held), Counter(value for value, _ in held)
    bad = {each.text: each.place for each in sent if each.mark == "bad"}
    good = {each.text for each in sent if each.mark == "good"}
    return {
        "bad_lost": [text for text in bad if text not in places],
        "bad_duplicated": [text for text, count in repeated.items() for _ in range(count - 1)],
        "bad_mistaken": [text for text, place in bad.items() if places.get(text, place) != place],
        "good_set_aside": [text for text in places if text in good],
    }
