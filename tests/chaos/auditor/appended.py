"""Appended events: every good one is one row, with its amount and its position in Kafka; no bad one is a row.

An event that was never acknowledged may be there, but not twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.chaos.auditor.log import SentEvent

COLUMNS = ("id", "amount", "_kafka_partition", "_kafka_offset")
FINDINGS = ("lost", "duplicated", "mistaken", "bad_landed")


def find(rows: Sequence[tuple[Any, ...]], events: Sequence[SentEvent]) -> dict[str, list[object]]:
    """Returns, by finding, the numbers or positions."""
    wanted: dict[int, tuple[Any, ...]] = {}
    for event in events:
        if event.mark == "good":
            value = json.loads(event.text)
            wanted[value["id"]] = (value["amount"], *event.position)
    landed = {number: row for number, *row in rows}
    bad = {event.position for event in events if event.mark == "bad"}
    repeated = Counter(number for number, *_ in rows)
    return {
        "lost": [number for number in wanted if number not in landed],
        "duplicated": [number for number, count in repeated.items() for _ in range(count - 1)],
        "mistaken": [number for number, row in wanted.items() if tuple(landed.get(number, row)) != row],
        "bad_landed": [
            tuple(position) for number, _, *position in rows if number not in wanted and tuple(position) in bad
        ],
    }
