"""The sink and plain Spark with the same work, pair by pair: Avro, upserts, many table partitions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tests.bench.lab import Load
from tests.bench.spark_plan import Plan, changes, partitioned
from tests.bench.workloads import AVRO, AVRO_ORDERS, CHANGES, KEYS, REGIONAL, Workload

MILLION = 1_000_000
NO_STATISTICS = {"hoodie.metadata.index.column.stats.enable": "false"}
"""Recommended by docs/how-to/partitioning.md: Hudi takes minutes for the statistics of 20,000 files."""
_UPSERTED = Load(2 * MILLION, KEYS, MILLION)


@dataclass(frozen=True)
class Pair:
    """`wanted`: how many times the peer's rate the sink has to reach. `keys`: the keys of the table, one row each."""

    name: str
    description: str
    workload: Workload
    load: Load
    settings: Mapping[str, object]
    peer: Plan
    wanted: float = 1.0
    keys: int = 0

    @property
    def sink(self) -> str:
        return f"{self.name}-sink"

    @property
    def spark(self) -> str:
        return f"{self.name}-spark"


def _upserts(name: str, description: str, table_type: str, index: str, options: Mapping[str, str]) -> Pair:
    """`options`: the peer's options of the index. The sink gets those for which it has no setting of its own."""
    settings = {
        "write.operation": "upsert",
        "record.key.fields": "id",
        "ordering.field.name": "ts",
        "target.table.type": table_type,
        "index.type": index,
        **{name: value for name, value in options.items() if name.startswith("hoodie.bucket.")},
    }
    plan = changes(table_type.upper(), options, _UPSERTED.transaction)
    return Pair(name, description, CHANGES, _UPSERTED, settings, plan, keys=KEYS)


PAIRS = (
    Pair(
        "avro",
        "Avro with a Schema Registry; the peer: a Spark batch, `from_avro` to Parquet (zstd), no guarantees",
        AVRO_ORDERS,
        Load(6 * MILLION, 3 * MILLION, 3 * MILLION),
        {"value.format": "avro-confluent"},
        Plan(avro=json.dumps(AVRO)),
        wanted=1.2,
    ),
    _upserts("cow-bloom", "upserts, copy on write, bloom", "copy_on_write", "bloom", {"hoodie.index.type": "BLOOM"}),
    _upserts(
        "mor-record",
        "upserts, merge on read, record index",
        "merge_on_read",
        "record",
        {
            "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
            "hoodie.metadata.global.record.level.index.enable": "true",
        },
    ),
    _upserts(
        "mor-bucket",
        "upserts, merge on read, 16 buckets",
        "merge_on_read",
        "bucket",
        {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "16"},
    ),
    Pair(
        "partitions",
        "5,000 table partitions, appended; the peer: `bulk_insert`",
        REGIONAL,
        Load(MILLION, MILLION, MILLION),
        {"partition.field.name": "region", **NO_STATISTICS},
        partitioned("region", REGIONAL.ddl, NO_STATISTICS),
    ),
)
