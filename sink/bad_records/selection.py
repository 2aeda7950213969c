"""Selects rows of an errors table, for DuckDB by an SQL condition and for Spark by a Boolean column.

Guarantee: both select the same rows. Only `parse_offsets` raises: ConfigError for the text of an option.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import reduce
from operator import and_, eq, ge, le, lt
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from coordination.errors import ConfigError

_OFFSETS_PATTERN = re.compile(r"(\d{1,18})(?:\.\.(\d{1,18}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Selection:
    """Conditions that a row has to meet; None sets no condition."""

    sink: str | None = None
    topic: str | None = None
    partition: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    """This offset is included."""
    since: datetime | None = None
    """Selects Kafka timestamps from this time on. It has a time zone."""
    until: datetime | None = None
    """Selects Kafka timestamps before this time. It has a time zone."""
    kind: str | None = None
    reason: str | None = None
    """A text that the reason contains."""
    include_replayed: bool = False

    def sql(self) -> tuple[str, list[Any]]:
        """Returns the condition for DuckDB, and the values of its parameters."""
        comparisons = list(self._comparisons())
        conditions = [f"{name} {sign} ?" for name, sign, _ in comparisons]
        values = [_utc_without_zone(value) if isinstance(value, datetime) else value for *_, value in comparisons]
        if self.reason is not None:
            conditions.append("contains(reason, ?)")
            values.append(self.reason)
        if not self.include_replayed:
            conditions.append("replayed_instant IS NULL")
        return " AND ".join(conditions) or "true", values

    def column(self) -> Column:
        """Returns the condition for Spark."""
        compare = {"=": eq, ">=": ge, "<=": le, "<": lt}
        conditions = [compare[sign](F.col(name), F.lit(value)) for name, sign, value in self._comparisons()]
        if self.reason is not None:
            conditions.append(F.contains(F.col("reason"), F.lit(self.reason)))
        if not self.include_replayed:
            conditions.append(F.col("replayed_instant").isNull())
        return reduce(and_, conditions, F.lit(True))

    def _comparisons(self) -> Iterator[tuple[str, str, Any]]:
        """Yields a column of the errors table, an operator and a value for each condition that is a comparison."""
        for name, sign, value in (
            ("sink", "=", self.sink),
            ("_kafka_topic", "=", self.topic),
            ("_kafka_partition", "=", self.partition),
            ("_kafka_offset", ">=", self.first_offset),
            ("_kafka_offset", "<=", self.last_offset),
            ("_kafka_timestamp", ">=", self.since),
            ("_kafka_timestamp", "<", self.until),
            ("kind", "=", self.kind),
        ):
            if value is not None:
                yield name, sign, value


def _utc_without_zone(time: datetime) -> datetime:
    """Converts a time to the form in which DuckDB gets the table's timestamps."""
    return time.astimezone(timezone.utc).replace(tzinfo=None)


def parse_offsets(range_text: str | None) -> tuple[int | None, int | None]:
    """Parses the option `--offset`, such as `12` or `12..40`. Returns the first and the last offset, or None twice."""
    if range_text is None:
        return None, None
    match = _OFFSETS_PATTERN.fullmatch(range_text)
    if match is None:
        raise ConfigError(f"--offset {range_text!r} is neither an offset nor a range. Write it like 12 or 12..40.")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ConfigError(f"--offset {range_text} ends before it begins. Write it like {last}..{first}.")
    return first, last
