"""The peers by name: what each is, and how it is run. Raises `ConfigError` for an unknown name."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from coordination.errors import ConfigError
from tests.bench import connect_run, sink_run, spark_runs
from tests.bench.cases import TABLE_PARTITIONS, ShapeSelection
from tests.bench.lab import Lab
from tests.bench.results import Run
from tests.bench.sink_run import ROW_WRITER, TWO_IN_FLIGHT, WITHOUT_META, Variant
from tests.bench.spark_plan import BULK, PARQUET, TUNED, UPSERT, Plan
from tests.bench.topics import REGIONS_DDL

SPREAD = {"schema.ddl": REGIONS_DDL, "partition.field.name": "region"}


@dataclass(frozen=True, slots=True)
class Peer:
    """`selection`: the topics that it reads."""

    name: str
    description: str
    start: Callable[[Lab, str, int], Run]
    selection: ShapeSelection = ShapeSelection.NARROW

    def run(self, lab: Lab, number: int) -> Run:
        return self.start(lab, self.name, number)


def _spark(name: str, description: str, plan: Plan) -> Peer:
    return Peer(name, description, lambda lab, peer, number: spark_runs.run(lab, peer, number, plan))


def _sink(
    name: str,
    description: str,
    workers: int,
    settings: Mapping[str, object] | None = None,
    parts: int = 1,
    selection: ShapeSelection = ShapeSelection.NARROW,
) -> Peer:
    table_partitions = TABLE_PARTITIONS if selection is ShapeSelection.SPREAD else 1

    def start(lab: Lab, peer: str, number: int) -> Run:
        variant = Variant(workers, max(1, lab.cores // workers), parts, settings or {}, table_partitions)
        return sink_run.run(lab, peer, number, variant)

    return Peer(name, description, start, selection)


ALL = (
    _spark("a", "Spark batch, Kafka to Parquet (zstd), no guarantees", PARQUET),
    _spark("b", "Structured Streaming to Hudi, as documented (upsert)", UPSERT),
    _spark("b-bulk", "Structured Streaming to Hudi, with `bulk_insert`", BULK),
    _spark("c", "Structured Streaming to Hudi, tuned as the sink is", TUNED),
    _sink("d", "sink, 1 worker, Arrow writer", 1, selection=ShapeSelection.EVERYWHERE),
    _sink("d-nometa", "sink, 1 worker, Arrow writer, no meta fields", 1, WITHOUT_META),
    _sink("d-row", "sink, 1 worker, Hudi's row writer", 1, ROW_WRITER),
    _sink("d-row-nometa", "sink, 1 worker, Hudi's row writer, no meta fields", 1, {**ROW_WRITER, **WITHOUT_META}),
    _sink("d-two", "sink, 1 worker, two transactions in flight", 1, TWO_IN_FLIGHT),
    _sink("d-half", "sink, 1 worker, transactions half as large", 1, parts=2),
    _sink("d-half-two", "sink, 1 worker, half as large and two in flight", 1, TWO_IN_FLIGHT, parts=2),
    _sink(
        "d-spread", f"sink, 1 worker, {TABLE_PARTITIONS} table partitions", 1, SPREAD, selection=ShapeSelection.SPREAD
    ),
    _sink("e", "sink, 2 workers of one core, Arrow writer", 2),
    _sink("e-two", "sink, 2 workers of one core, two transactions in flight", 2, TWO_IN_FLIGHT),
    Peer("f", "Kafka Connect, Iceberg sink, 2 tasks", connect_run.run, ShapeSelection.EVERYWHERE),
)
USUAL = ("d", "d-spread", "e", "f")
"""The peers that are compared by default."""


def select_peers(names: Sequence[str]) -> list[Peer]:
    """Selects peers by name; `d*` takes all that begin with `d`. Raises `ConfigError` for an unknown name."""
    if unknown := [name for name in names if not fnmatch.filter([peer.name for peer in ALL], name)]:
        available = ", ".join(peer.name for peer in ALL)
        raise ConfigError(f"--peers: {', '.join(unknown)} not known; there are {available}")
    return [peer for peer in ALL if any(fnmatch.fnmatchcase(peer.name, name) for name in names)]
