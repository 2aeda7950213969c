"""The table of a seed: its type, index, partitions, and the settings of its sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

COLUMNS = "id BIGINT, at BIGINT, region STRING, number INT"
WIDENED = (("note STRING", "number BIGINT"), ("number BIGINT", "note STRING"))
ADDED = ("note STRING", "ratio DOUBLE")
"""Columns that a sequence adds, or whose type it widens, in this order. In a merge-on-read table no type can change."""
_INDEXES: Mapping[str, Mapping[str, str]] = {
    "bloom": {"index.type": "bloom"},
    "bucket": {"index.type": "bucket", "hoodie.bucket.index.num.buckets": "2"},
    "record": {
        "index.type": "record",
        # Hudi's defaults are for large tables: each of these is a task.
        "hoodie.metadata.global.record.level.index.min.filegroup.count": "1",
    },
}
_EAGER = {
    "hoodie.compact.inline.max.delta.commits": "1",
    "hoodie.clustering.async.max.commits": "1",
    "hoodie.clustering.plan.strategy.single.group.clustering.enabled": "true",
    "hoodie.metadata.compact.max.delta.commits": "4",
    "hoodie.metadata.index.column.stats.enable": "false",
}


@dataclass(frozen=True)
class Profile:
    """The choices that hold for a whole sequence."""

    operation: str
    """append or upsert."""
    merges_on_read: bool
    index: str
    """bloom, bucket or record; empty for appends."""
    partitioned: bool
    ordered: bool
    metadata: bool
    clustering: bool
    keep: int
    """Commits that cleaning keeps; archiving keeps a few more."""
    evolution: tuple[str, ...] = ADDED
    hive_style: bool = False
    on_s3: bool = False

    @classmethod
    def of(cls, random: Random, s3_share: float = 0.0) -> Profile:
        operation = random.choice(("append", "upsert", "upsert", "upsert"))
        index = random.choice(sorted(_INDEXES)) if operation == "upsert" else ""
        merges_on_read = operation == "upsert" and random.random() < 0.7
        partitioned, ordered = random.random() < 0.5, operation == "upsert" and random.random() < 0.3
        has_metadata = index == "record" or random.random() < 0.7
        if merges_on_read and index == "bloom":
            # It is refused.
            index = "record" if has_metadata else "bucket"
        return cls(
            operation=operation,
            merges_on_read=merges_on_read,
            index=index,
            partitioned=partitioned,
            ordered=ordered,
            metadata=has_metadata,
            clustering=index != "bucket" and random.random() < 0.6,
            keep=random.choice((1, 2, 3)),
            evolution=random.choice((ADDED,) if merges_on_read else (ADDED, *WIDENED)),
            hive_style=random.random() < 0.3,
            on_s3=random.random() < s3_share,
        )

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of which each value has one row."""
        return ("region", "id") if self.partitioned and self.index != "record" else ("id",)

    @property
    def has_tombstones(self) -> bool:
        """Whether a Kafka key says which row is deleted, and nothing has to order the deletion."""
        return self.operation == "upsert" and not self.ordered and self.key == ("id",)

    @property
    def services(self) -> tuple[str, ...]:
        """Services that rewrite or delete something, by their actions on the timeline."""
        compaction = ("compaction",) if self.merges_on_read else ()
        return (*compaction, *(("clustering",) if self.clustering else ()), "clean", "archive")

    def directory(self, region: str) -> str:
        """Returns the directory of a table partition."""
        return f"region={region}" if self.hive_style else region

    def columns(self, evolved: int) -> str:
        """Returns the columns after so many steps of the evolution."""
        columns = dict(column.split(" ", 1) for column in COLUMNS.split(", "))
        columns |= dict(column.split(" ", 1) for column in self.evolution[:evolved])
        return ", ".join(f"{name} {kind}" for name, kind in columns.items())

    def settings(self) -> dict[str, str]:
        """Returns a sink's settings for this table, without its addresses."""
        settings = {
            "write.operation": self.operation,
            "record.key.fields": "id",
            "target.table.type": "merge_on_read" if self.merges_on_read else "copy_on_write",
            "hoodie.metadata.enable": str(self.metadata).lower(),
            "services.clustering": str(self.clustering).lower(),
            "hoodie.clean.commits.retained": str(self.keep),
            "hoodie.keep.min.commits": str(self.keep + 1),
            "hoodie.keep.max.commits": str(self.keep + 2),
            **_EAGER,
        }
        if self.partitioned:
            settings |= {"partition.field.name": "region", "partition.hive.style": str(self.hive_style).lower()}
        if self.ordered:
            settings["ordering.field.name"] = "at"
        elif self.has_tombstones:
            settings["delete.key.format"] = "string"
        return {**settings, **(_INDEXES[self.index] if self.index else {})}

    def __str__(self) -> str:
        kind = "merge on read" if self.merges_on_read else "copy on write"
        return ", ".join(
            filter(
                None,
                (
                    self.operation,
                    kind,
                    self.index,
                    "partitioned" if self.partitioned else "",
                    "ordered" if self.ordered else "",
                    "metadata table" if self.metadata else "",
                    "clustering" if self.clustering else "",
                    f"keeps {self.keep}",
                    "S3" if self.on_s3 else "",
                ),
            )
        )
