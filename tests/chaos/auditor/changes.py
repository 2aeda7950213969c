"""Changes of rows by key: every key has the row of its last change, with that change's position in Kafka, or none.

A key's last change has the greatest `at`, and among equals it is the latest in the log; without an order it is the
latest in the log.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tests.chaos.auditor.log import SentEvent

COLUMNS = ("id", "at", "number", "amount", "note", "weight", "_kafka_partition", "_kafka_offset")
"""A run that adds no columns has no `note` and no `weight`."""
Row = tuple[Any, ...]
"""Values in the order of `COLUMNS`."""
FINDINGS = ("lost", "duplicated", "mistaken", "undeleted")


def find(rows: Sequence[Row], events: Iterable[SentEvent], ordered: bool) -> dict[str, list[object]]:
    """Returns, by finding, the keys or rows. A key that is there and should not be counts as undeleted."""
    wanted, landed = expected(events, ordered), {row[0]: row for row in rows}
    repeated = Counter(row[0] for row in rows)
    return {
        "lost": [key for key in wanted if key not in landed],
        "duplicated": [key for key, count in repeated.items() for _ in range(count - 1)],
        "mistaken": [(landed[key], row) for key, row in wanted.items() if landed.get(key, row) != row],
        "undeleted": [row for key, row in landed.items() if key not in wanted],
    }


def expected(events: Iterable[SentEvent], ordered: bool) -> dict[int, Row]:
    """Returns the row of each key that has one after these events, which are in the order of the log."""
    last: dict[int, dict[str, Any]] = {}
    for event in events:
        if event.mark == "bad":
            continue
        if event.mark == "tombstone":
            last.pop(int(event.text), None)
            continue
        change = json.loads(event.text)
        change["_kafka_partition"], change["_kafka_offset"] = event.position
        if not ordered or change["at"] >= last.get(change["id"], change)["at"]:
            last[change["id"]] = change
    rows = (change for change in last.values() if not change.get("_hoodie_is_deleted"))
    return {change["id"]: tuple(change.get(name) for name in COLUMNS) for change in rows}
