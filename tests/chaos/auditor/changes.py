"""Changes of rows by key: every key has the row that its last change says, with that one's place in the log, or none.

The last is the one with the greatest `at`, among equals the latest in the log; or the latest in the log anyway.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tests.chaos.auditor.log import Sent

COLUMNS = ("id", "at", "number", "amount", "_kafka_partition", "_kafka_offset")
Row = tuple[Any, ...]
"""As `COLUMNS`."""
FINDINGS = ("lost", "duplicated", "mistaken", "undeleted")


def find(rows: Sequence[Row], sent: Iterable[Sent], ordered: bool) -> dict[str, list[object]]:
    """By finding, which keys. A key that is there and should not be counts as undeleted."""
    wanted, landed = expected(sent, ordered), {row[0]: row for row in rows}
    repeated = Counter(row[0] for row in rows)
    return {
        "lost": [key for key in wanted if key not in landed],
        "duplicated": [key for key, count in repeated.items() for _ in range(count - 1)],
        "mistaken": [(landed[key], row) for key, row in wanted.items() if landed.get(key, row) != row],
        "undeleted": [row for key, row in landed.items() if key not in wanted],
    }


def expected(sent: Iterable[Sent], ordered: bool) -> dict[int, Row]:
    """The row of each key that has one, after these events in the order of the log."""
    last: dict[int, dict[str, Any]] = {}
    for each in sent:
        if each.mark == "bad":
            continue
        if each.mark == "tombstone":
            last.pop(int(each.text), None)
            continue
        change = json.loads(each.text)
        change["_kafka_partition"], change["_kafka_offset"] = each.place
        if not ordered or change["at"] >= last.get(change["id"], change)["at"]:
            last[change["id"]] = change
    rows = (change for change in last.values() if not change.get("_hoodie_is_deleted"))
    return {change["id"]: tuple(change[name] for name in COLUMNS) for change in rows}
