"""Rows that no table partition takes."""

from __future__ import annotations

from collections.abc import Mapping


class BadPartition(Exception):
    """Values that cannot be a directory: why, by row; the first one's reason is the error's text."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        self.row = min(reasons)
        self.reasons = reasons
        super().__init__(reasons[self.row])
