"""Appended events: every good one is one row, with its amount and its position in Kafka; no bad one is a row.

An event that was never acknowledged may be there, but not twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.chaos.auditor.log import SentEvent

COLUMNS = ("id", "amount", "note", "weight", "_kafka_partition", "_kafka_offset")
"""A run that adds no columns has no `note` and no `weight`."""
FINDINGS = ("lost", "duplicated", "mistaken", "bad_landed", "from_another_cluster")
FIRST_OTHER_ID = 10**12
"""Events of another cluster have this id or a larger one."""


def find(rows: Sequence[tuple[Any, ...]], events: Sequence[SentEvent]) -> dict[str, list[object]]:
    """Returns, by finding, the numbers or positions."""
    wanted: dict[int, tuple[Any, ...]] = {}
    for event in events:
        if event.mark == "good":
            value = json.loads(event.text)
            wanted[value["id"]] = (*(value.get(name) for name in COLUMNS[1:-2]), *event.position)
    landed = {number: row for number, *row in rows}
    bad = {event.position for event in events if event.mark == "bad"}
    repeated = Counter(number for number, *_ in rows)
    positions = [(row[0], tuple(row[-2:])) for row in rows]
    return {
        "lost": [number for number in wanted if number not in landed],
        "duplicated": [number for number, count in repeated.items() for _ in range(count - 1)],
        "mistaken": [number for number, row in wanted.items() if tuple(landed.get(number, row)) != row],
        "from_another_cluster": [number for number in landed if number is not None and number >= FIRST_OTHER_ID],
        "bad_landed": [position for number, position in positions if number not in wanted and position in bad],
    }
