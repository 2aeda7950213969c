"""Appended events: every good one is a row once, with its amount and the place that Kafka gave it; no bad one is.

An event that was never acknowledged may be there, but not twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.chaos.auditor.log import Sent

COLUMNS = ("id", "amount", "_kafka_partition", "_kafka_offset")
FINDINGS = ("lost", "duplicated", "mistaken", "bad_landed")


def find(rows: Sequence[tuple[Any, ...]], sent: Sequence[Sent]) -> dict[str, list[object]]:
    """By finding, which numbers or places."""
    wanted: dict[int, tuple[Any, ...]] = {}
    for each in sent:
        if each.mark == "good":
            event = json.loads(each.text)
            wanted[event["id"]] = (event["amount"], *each.place)
    landed = {number: rest for number, *rest in rows}
    bad = {each.place for each in sent if each.mark == "bad"}
    repeated = Counter(number for number, *_ in rows)
    return {
        "lost": [number for number in wanted if number not in landed],
        "duplicated": [number for number, count in repeated.items() for _ in range(count - 1)],
        "mistaken": [number for number, rest in wanted.items() if tuple(landed.get(number, rest)) != rest],
        "bad_landed": [tuple(place) for number, _, *place in rows if number not in wanted and tuple(place) in bad],
    }
