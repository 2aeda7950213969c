"""The table properties that note where the sink puts a row, and where its writers queue: Hudi stores none of them.

Guarantee: the same settings give the same values in every worker. Rows that were put by another value are not found
where the settings look for them, so that their keys would get a second row; writers with another lock would not wait
for each other. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass

from sink.hudi.specification import LOCK_BASE_PATH, LOCK_KEY, TableSpecification

LOCK = "sink.table.lock"
LOCK_IDENTITY = "sink.table.lock.identity"
BUCKETS = "sink.bucket.index.num.buckets"
HASH_FIELD = "sink.bucket.index.hash.field"
PARTITION_TIME = "sink.partition.time"


@dataclass(frozen=True, slots=True)
class Placement:
    """A property's value by the settings, empty if they have none. `label` names it for people, `remedy` the settings
    that decide it."""

    label: str
    value: str
    remedy: str

    def noted_as(self, noted: str) -> str:
        """Returns the value as a table would have noted it: a unit that was added later decides nothing."""
        return noted if self.value.startswith(f"{noted}, ") else self.value


def notes(table: TableSpecification) -> dict[str, Placement]:
    """Returns everything that a table notes of these settings, by the names of the properties."""
    return {LOCK: Placement("lock", table.lock.path, f"{LOCK_BASE_PATH}, {LOCK_KEY}"), **placements(table)}


def placements(table: TableSpecification) -> dict[str, Placement]:
    """Returns the placements by the names of their properties."""
    time = table.partition_time
    parts = () if time is None else (time.field, time.format, time.zone, *([time.unit] if time.unit else []))
    time_text = ", ".join(parts)
    return {
        BUCKETS: Placement("buckets", _of_buckets(table, "num.buckets"), "index.type, hoodie.bucket.index.num.buckets"),
        HASH_FIELD: Placement("bucket hash field", _of_buckets(table, "hash.field"), "hoodie.bucket.index.hash.field"),
        PARTITION_TIME: Placement(
            "partitions by time",
            time_text,
            "partition.time.field, partition.time.format, partition.time.zone, time.unit",
        ),
    }


def _of_buckets(table: TableSpecification, name: str) -> str:
    if not table.upserts or table.index != "bucket":
        return ""
    return table.options.get(f"hoodie.bucket.index.{name}", "")
