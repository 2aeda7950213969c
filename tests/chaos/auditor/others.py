"""Rows of another job: each that was acknowledged to it is there, once. Their ids are negative."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FINDINGS = ("others_lost", "others_duplicated")
Rows = list[tuple[Any, ...]]


def split(rows: Sequence[tuple[Any, ...]]) -> tuple[Rows, Rows]:
    """Returns the sink's rows and those of the other job. The id is the first column."""
    others = [row for row in rows if row[0] is not None and row[0] < 0]
    return [row for row in rows if row[0] is None or row[0] >= 0], others


def find(rows: Rows, acknowledged: Path) -> dict[str, list[object]]:
    """Returns ids by finding. The file has an id a line; a run without another job has none."""
    found = Counter(row[0] for row in rows)
    wanted = {int(line) for line in acknowledged.read_text().split()} if acknowledged.exists() else set()
    return {
        "others_lost": sorted(wanted - found.keys()),
        "others_duplicated": [number for number, count in found.items() if count > 1],
    }
