"""The kinds of a run: appended events, or changes of rows by key; their options, and the sink's settings for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from tests.chaos.events import Event, Evolution, appended, changes
from tests.chaos.stores import DISK
from tests.fleet import SCHEMA

APPEND, WIDE, ON_WRITE, ON_READ = "append", "append-wide", "upsert-cow", "upsert-mor"
KINDS = (APPEND, WIDE, ON_WRITE, ON_READ)
MANY = "many"
"""Many sinks in one fleet: a kind of run, but no shape of one table."""
BAD = 50
INDEXES: Mapping[str, Mapping[str, object]] = {
    "bloom": {},
    # Hudi's default is for large tables, and each file group of the index is a task.
    "record": {
        "hoodie.metadata.global.record.level.index.min.filegroup.count": 1,
    },
    "bucket": {"hoodie.bucket.index.num.buckets": 3},
}
REWRITES: Mapping[str, str] = {APPEND: "Clustering", WIDE: "Clustering", ON_READ: "Compaction"}
"""The service that rewrites files, by kind. Copy-on-write rewrites its one file of few keys anyway, and needs none."""
ADDED = ("note STRING", "weight BIGINT")
WIDENED = ("note STRING", "weight INT", "weight BIGINT")
"""Steps of an evolution. In a merge-on-read table no type can change."""
FREQUENT_SERVICES = {
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
    """Whether a service rewrites files and all services run every few commits; else Hudi cleans and archives seldom."""
    bad: int = BAD
    """One record of so many is bad; 0: none is."""
    index: str = ""
    ordered: bool = False
    """Whether a column orders the changes of a key; else the log does, and the load has tombstones."""
    store: str = DISK
    """The store of the tables, one of `STORES`."""
    evolves: bool = False
    """Whether the table gets columns in the course of the run."""
    shared: bool = False
    """Whether another job writes to the table."""
    brokers: int = 1
    """Three are a cluster with unclean elections, beside which there is another cluster."""
    rate: float = 300.0
    """Events a second."""

    @classmethod
    def draw(
        cls,
        kind: str,
        chance: Random,
        bad: int = BAD,
        services: bool | None = None,
        index: str | None = None,
        evolves: bool | None = None,
        shared: bool | None = None,
    ) -> Shape:
        """Draws every value that is None."""
        in_flight, random_services, ordered = chance.choice((1, 2)), chance.random() < 0.5, chance.random() < 0.5
        random_index = chance.choice([name for name in INDEXES if kind == ON_WRITE or name != "bloom"])
        services = random_services if services is None else services
        random_evolves, random_shared = chance.random() < 0.5, chance.random() < 0.5
        evolves = random_evolves if evolves is None else evolves
        shared = random_shared if shared is None else shared
        if kind in (APPEND, WIDE):
            return cls(kind, in_flight, services, bad, evolves=evolves, shared=shared)
        return cls(kind, 1, services, bad, index or random_index, ordered, evolves=evolves, shared=shared)

    @property
    def appends(self) -> bool:
        return self.kind in (APPEND, WIDE)

    @property
    def partitions(self) -> int:
        """The topic's partitions when a run begins."""
        return 120 if self.kind == WIDE else 4

    @property
    def rule(self) -> str:
        """The rule by which the auditor makes the table of the events."""
        return APPEND if self.appends else "by-at" if self.ordered else "by-log"

    @property
    def commit_action(self) -> str:
        """The Hudi action of a commit that lands records; table services have other actions."""
        return "deltacommit" if self.kind == ON_READ else "commit"

    @property
    def service(self) -> str:
        """The service that rewrites files; empty without one."""
        return REWRITES.get(self.kind, "") if self.services else ""

    def evolution(self) -> Evolution:
        return Evolution((ADDED if self.kind == ON_READ else WIDENED) if self.evolves else ())

    def columns(self, evolved: Mapping[str, str]) -> str:
        """Returns the table's columns with those of its evolution."""
        columns = SCHEMA if self.appends else "id BIGINT, at BIGINT, number BIGINT, amount DOUBLE"
        return ", ".join((columns, *(f"{name} {kind}" for name, kind in evolved.items())))

    def events(self, seed: int, evolution: Evolution) -> Iterator[Event]:
        chance = Random(seed)
        if self.appends:
            return appended(chance, self.partitions, self.bad, evolution.values)
        return changes(chance, self.partitions, self.bad, self.ordered, evolution.values)

    def settings(self) -> dict[str, object]:
        settings: dict[str, object] = {
            "schema.ddl": self.columns({}),
            "transactions.in.flight": self.in_flight,
            "services.clustering": self.service == "Clustering",
            "services.compaction": self.service == "Compaction",
        }
        if self.services:
            settings |= FREQUENT_SERVICES
        if self.bad:
            settings |= {"errors.tolerance": "all", "errors.max.per.transaction": 100_000}
        if not self.appends:
            settings |= {
                "write.operation": "upsert",
                "target.table.type": "copy_on_write" if self.kind == ON_WRITE else "merge_on_read",
                "record.key.fields": "id",
                "index.type": self.index,
                **INDEXES[self.index],
                **({"ordering.field.name": "at"} if self.ordered else {"delete.key.format": "string"}),
            }
        return settings
