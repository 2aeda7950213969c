"""A sink's settings as far as those need them who look at it from outside, or ask it for something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sink.config import Settings


@dataclass(frozen=True, slots=True)
class ObservedSink:
    """`catalog` is the table's name in its catalogue, which also identifies the catalogue; None without one.
    `normal_wait`, `commit_allowance`, `services_overdue` and `open_limit` are seconds: the most that a record waits
    where nothing is wrong, after which a commit is overdue, after which a table service is, and after which an open
    Kafka transaction is a fault.
    """

    name: str
    ensemble: str
    root_znode: str
    base_path: str
    topics: tuple[str, ...]
    topic_pattern: str | None
    kafka: Mapping[str, str] = field(repr=False)
    config_digest: str
    catalog: str | None
    tolerance: str
    normal_wait: float
    commit_allowance: float
    services_overdue: float
    open_limit: float

    @property
    def fleet_znode(self) -> str:
        """The path below which all sinks of the fleet keep their state."""
        return self.root_znode.rpartition("/")[0]


def observed_sink(settings: Settings) -> ObservedSink:
    return ObservedSink(
        settings.name,
        settings.zookeeper,
        settings.root_znode,
        settings.base_path,
        settings.topics,
        settings.topic_pattern,
        settings.kafka_native,
        settings.config_digest,
        settings.catalog_name if settings.catalogued else None,
        settings.errors_tolerance,
        settings.normal_wait,
        settings.commit_allowance,
        settings.services_overdue_ms / 1000,
        settings.open_seconds,
    )
