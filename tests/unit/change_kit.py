"""Makes changes of rows from settings and records, without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from sink.config import Settings
from sink.write.rows.changes import ChangeDecoder
from sink.write.rows.record_columns import BadRow, separate_bad
from sink.write.rows.row_spec import spec_of, table_schema
from tests.one_sink import load

DDL = "id bigint, name string not null, at bigint"

Record = tuple[Any, Any]
"""Key and value: bytes, text, None, or a value that becomes JSON."""


def settings_of(directory: Path, **more: str) -> Settings:
    """Loads settings: `__` in a name of `more` is a dot, and an empty value removes the setting."""
    properties = {
        "zookeeper.connect": "127.0.0.1:2181",
        "kafka.bootstrap.servers": "127.0.0.1:9092",
        "kafka.topic.names": "t",
        "target.base.path": str(directory / "table"),
        "target.table.name": "orders",
        "schema.ddl": DDL,
        "write.operation": "upsert",
        "record.key.fields": "id",
        "provenance.columns": "false",
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    file = directory / "sink.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items() if value))
    return load(file, {})


def changes_of(settings: Settings, records: Sequence[Record]) -> list[dict[str, Any]]:
    """Returns the rows, each with its offset but without topic and partition. Asserts that no record is bad."""
    rows, bad = separated(settings, records)
    assert not bad
    return rows


def separated(settings: Settings, records: Sequence[Record]) -> tuple[list[dict[str, Any]], tuple[BadRow, ...]]:
    """Returns the rows of the good records, and the bad records with their reasons."""
    schema = table_schema(settings.table, settings.records)
    changes = ChangeDecoder(spec_of(settings.table, settings.records, schema))
    _, decoded, bad = separate_bad(batch_of(records), "t", changes.decode_batch)
    rows = [] if decoded is None else decoded.to_pylist()
    for row in rows:
        row["offset"] = row.pop("_sink_offset")
        del row["_sink_topic"], row["_sink_partition"]
    return rows, bad


def batch_of(records: Sequence[Record]) -> pa.RecordBatch:
    count = len(records)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([_bytes(key) for key, _ in records], pa.binary()),
            "value": pa.array([_bytes(value) for _, value in records], pa.binary()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
            "digest": pa.array([0] * count, pa.int64()),
        }
    )


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()
