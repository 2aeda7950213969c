"""The plan of a plain Spark peer, as data that travels to its process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from tests.bench.orders import DDL

TABLE = "orders"


@dataclass(frozen=True)
class Plan:
    """`hudi`: options of a stream into Hudi; None: one batch to Parquet. `source`: more options of the reader.

    `avro` is the schema of Avro values behind the header of Confluent's serializers; without it, values are JSON of
    `ddl`.
    """

    hudi: Mapping[str, str] | None = None
    source: Mapping[str, str] = field(default_factory=dict)
    ddl: str = DDL
    avro: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        return cls(**json.loads(text))


PARQUET = Plan()
_DOCUMENTED = {
    "hoodie.table.name": TABLE,
    "hoodie.datasource.write.table.name": TABLE,
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.insert.shuffle.parallelism": "2",
}
"""https://hudi.apache.org/docs/writing_tables_streaming_writes, but not partitioned, as no peer is."""
_BULK = {**_DOCUMENTED, "hoodie.datasource.write.operation": "bulk_insert"}
_AS_THE_SINK = {
    "hoodie.parquet.compression.codec": "zstd",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
}
_FETCH = {"kafka.max.poll.records": "10000", "kafka.max.partition.fetch.bytes": str(16 << 20)}
UPSERT = Plan({**_DOCUMENTED, "hoodie.datasource.write.operation": "upsert"})
BULK = Plan(_BULK)
TUNED = Plan({**_BULK, **_AS_THE_SINK, "hoodie.bulkinsert.sort.mode": "NONE"}, _FETCH)


def changes(table_type: str, index: Mapping[str, str], transaction: int) -> Plan:
    """Returns upserts with the settings that the sink has, `transaction` records at a time."""
    options = {
        **_DOCUMENTED,
        **_AS_THE_SINK,
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.datasource.write.table.type": table_type,
        "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.datasource.compaction.async.enable": "false",
        "hoodie.compact.inline": "false",
        **index,
    }
    return Plan(options, {**_FETCH, "maxOffsetsPerTrigger": str(transaction)})


def partitioned(field_name: str, ddl: str, options: Mapping[str, str]) -> Plan:
    """Returns `TUNED` into a table partition for each value. Without the sort, each task holds a file of each open."""
    assert TUNED.hudi is not None
    by_partition = {
        "hoodie.datasource.write.partitionpath.field": field_name,
        "hoodie.bulkinsert.sort.mode": "PARTITION_SORT",
    }
    return Plan({**TUNED.hudi, **by_partition, **options}, _FETCH, ddl)
