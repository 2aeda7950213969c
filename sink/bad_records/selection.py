"""Selects rows of an errors table, as an SQL condition for DuckDB and as a column for Spark.

Guarantee: both select the same rows. Raises ConfigError for an invalid offset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from coordination.errors import ConfigError

_OFFSETS = re.compile(r"(\d{1,18})(?:\.\.(\d{1,18}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Selection:
    """Conditions, all of which must hold. `low` and `high` are inclusive offsets; times are timestamps of records."""

    sink: str | None = None
    topic: str | None = None
    partition: int | None = None
    low: int | None = None
    high: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    kind: str | None = None
    reason: str | None = None
    """A part of the reason."""
    replayed: bool = False
    """Whether to include replayed rows."""

    def sql(self) -> tuple[str, list[Any]]:
        """Returns the condition for DuckDB, and its parameters. Times are in UTC there."""
        comparisons = list(self._comparisons())
        parts = [f"{name} {sign} ?" for name, sign, _ in comparisons]
        values = [_naive(value) if isinstance(value, datetime) else value for *_, value in comparisons]
        if self.reason is not None:
            parts.append("contains(reason, ?)")
            values.append(self.reason)
        if not self.replayed:
            parts.append("replayed_instant IS NULL")
        return " AND ".join(parts) or "true", values

    def column(self) -> Column:
        """Returns the condition for Spark."""
        signs = {"=": "__eq__", ">=": "__ge__", "<=": "__le__", "<": "__lt__"}
        parts = [getattr(F.col(name), signs[sign])(F.lit(value)) for name, sign, value in self._comparisons()]
        if self.reason is not None:
            parts.append(F.contains(F.col("reason"), F.lit(self.reason)))
        if not self.replayed:
            parts.append(F.col("replayed_instant").isNull())
        return reduce(and_, parts, F.lit(True))

    def _comparisons(self) -> Iterator[tuple[str, str, Any]]:
        for name, sign, value in (
            ("sink", "=", self.sink),
            ("_kafka_topic", "=", self.topic),
            ("_kafka_partition", "=", self.partition),
            ("_kafka_offset", ">=", self.low),
            ("_kafka_offset", "<=", self.high),
            ("_kafka_timestamp", ">=", self.since),
            ("_kafka_timestamp", "<", self.until),
            ("kind", "=", self.kind),
        ):
            if value is not None:
                yield name, sign, value


def _naive(time: datetime) -> datetime:
    return time.astimezone(timezone.utc).replace(tzinfo=None)


def offsets(range_text: str | None) -> tuple[int | None, int | None]:
    """Parses `12` or `12..40`, both ends included."""
    if range_text is None:
        return None, None
    match = _OFFSETS.fullmatch(range_text)
    if match is None:
        raise ConfigError(f"--offset {range_text!r} is neither an offset nor a range. Write it like 12 or 12..40.")
    return int(match[1]), int(match[2] or match[1])
