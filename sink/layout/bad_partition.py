"""The error for rows whose values cannot be a partition path."""

from __future__ import annotations

from collections.abc import Mapping


class BadPartition(Exception):
    """Rows whose partition path cannot be a directory, with the reason of each; the text is the first reason."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        self.reasons = reasons
        super().__init__(reasons[min(reasons)])
