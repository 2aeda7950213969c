"""Records of the benchmark's topics, besides the orders of `tests.bench.orders`.

Guarantee: equal counts give equal bytes, evenly spread. The numbers of a topic rise from 0, and record `number` goes to
partition `number % PARTITIONS`; so does every change of a key.
"""

from __future__ import annotations

import json
import random
import struct
from dataclasses import dataclass
from io import BytesIO

import fastavro

from tests.bench.orders import DDL, PARTITIONS, Record, event

KEYS = 5_000_000
REGIONS = 5_000
SCHEMA_ID = 1
"""The registry is new in every run, so that the first schema has this id."""
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": "long"},
        {"name": "event", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "ts", "type": "long"},
        {"name": "url", "type": "string"},
    ],
}
_FRAME = struct.pack(">bI", 0, SCHEMA_ID)
_PARSED = fastavro.parse_schema(AVRO)


@dataclass(frozen=True)
class Workload:
    """`name` is the topic's. `registered`: its schema stands in a registry."""

    name: str
    record: Record
    ddl: str = DDL
    registered: bool = False


def avro_order(number: int, rng: random.Random) -> tuple[bytes, bytes]:
    """Returns an order in Avro behind the header of Confluent's serializers."""
    fields = event(number, rng)
    stream = BytesIO()
    stream.write(_FRAME)
    fastavro.schemaless_writer(stream, _PARSED, fields)
    return str(fields["user"]).encode(), stream.getvalue()


def change(number: int, rng: random.Random) -> tuple[bytes, bytes]:
    """Returns key and value. The first `KEYS` numbers make a row each; every later one changes a row, drawn evenly."""
    key = number if number < KEYS else PARTITIONS * rng.randrange(KEYS // PARTITIONS) + number % PARTITIONS
    fields = {**event(number, rng), "id": key}
    return str(key).encode(), json.dumps(fields).encode()


def regional_order(number: int, rng: random.Random) -> tuple[bytes, bytes]:
    """Returns an order from one of `REGIONS` regions, drawn evenly."""
    fields = {**event(number, rng), "region": f"region-{rng.randrange(REGIONS)}"}
    return str(fields["user"]).encode(), json.dumps(fields).encode()


AVRO_ORDERS = Workload("avro", avro_order, registered=True)
CHANGES = Workload("changes", change)
REGIONAL = Workload("regional", regional_order, f"{DDL}, region STRING")
