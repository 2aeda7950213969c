"""The kinds of a run: appended events or changes of rows by key, with what beside them; and the sink's settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from tests.chaos.events import Event, appended, changes
from tests.chaos.stores import DISK

APPEND, WIDE, ON_WRITE, ON_READ = "append", "append-wide", "upsert-cow", "upsert-mor"
KINDS = (APPEND, WIDE, ON_WRITE, ON_READ)
MANY = "many"
"""Many sinks in one fleet, which is not a shape of one table."""
BAD = 50
INDEXES: Mapping[str, Mapping[str, object]] = {
    "bloom": {},
    # Hudi's defaults are for large tables: each of these is a task.
    "record": {
        "hoodie.metadata.global.record.level.index.min.filegroup.count": 1,
    },
    "bucket": {"hoodie.bucket.index.num.buckets": 3},
}
REWRITES: Mapping[str, str] = {APPEND: "Clustering", WIDE: "Clustering", ON_READ: "Compaction"}
"""Which service rewrites files. Few keys that are written anew are in one file, and need none."""
OFTEN = {
    "services.interval.commits": 3,
    "hoodie.metadata.compact.max.delta.commits": 3,
    "hoodie.clustering.async.max.commits": 2,
    "hoodie.compact.inline.max.delta.commits": 2,
    "hoodie.clean.commits.retained": 3,
    "hoodie.keep.min.commits": 5,
    "hoodie.keep.max.commits": 8,
}


@dataclass(frozen=True, slots=True)
class Shape:
    kind: str
    in_flight: int = 1
    services: bool = False
    """Whether files are rewritten too, and all services run every few commits; else cleaning and archiving, seldom."""
    bad: int = BAD
    """One of so many records is bad; 0: none is."""
    index: str = ""
    ordered: bool = False
    """Whether a column orders the changes of a key; else the log does, and there are tombstones."""
    store: str = DISK
    """Where the tables are."""

    @classmethod
    def drawn(
        cls, kind: str, chance: Random, bad: int = BAD, services: bool | None = None, index: str | None = None
    ) -> Shape:
        """Draws every value that is not given."""
        in_flight, serves, ordered = chance.choice((1, 2)), chance.random() < 0.5, chance.random() < 0.5
        any_index = chance.choice(list(INDEXES))
        services = serves if services is None else services
        if kind in (APPEND, WIDE):
            return cls(kind, in_flight, services, bad)
        return cls(kind, 1, services, bad, index or any_index, ordered)

    @property
    def appends(self) -> bool:
        return self.kind in (APPEND, WIDE)

    @property
    def partitions(self) -> int:
        """The topic's, when a run begins."""
        return 120 if self.kind == WIDE else 4

    @property
    def rule(self) -> str:
        """The order that an auditor applies changes in."""
        return APPEND if self.appends else "by-at" if self.ordered else "by-log"

    @property
    def progress(self) -> str:
        """The action of a commit that lands records; others are table services'."""
        return "deltacommit" if self.kind == ON_READ else "commit"

    @property
    def service(self) -> str:
        """Which one rewrites files, none: empty."""
        return REWRITES.get(self.kind, "") if self.services else ""

    def events(self, seed: int) -> Iterator[Event]:
        chance = Random(seed)
        if self.appends:
            return appended(chance, self.partitions, self.bad)
        return changes(chance, self.partitions, self.bad, self.ordered)

    def settings(self) -> dict[str, object]:
        given: dict[str, object] = {
            "transactions.in.flight": self.in_flight,
            "services.clustering": self.service == "Clustering",
            "services.compaction": self.service == "Compaction",
        }
        if self.services:
            given |= OFTEN
        if self.bad:
            given |= {"errors.tolerance": "all", "errors.max.per.transaction": 100_000}
        if not self.appends:
            given |= {
                "schema.ddl": "id BIGINT, at BIGINT, number BIGINT, amount DOUBLE",
                "write.operation": "upsert",
                "target.table.type": "copy_on_write" if self.kind == ON_WRITE else "merge_on_read",
                "record.key.fields": "id",
                "index.type": self.index,
                **INDEXES[self.index],
                **({"ordering.field.name": "at"} if self.ordered else {"delete.key.format": "string"}),
            }
        return given
