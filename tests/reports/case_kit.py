"""Decodes the records of a case as a worker's task does, and says what a table holds then, without Kafka and Spark.

A case is a directory: `sink.yaml` (settings), `records.jsonl` (`key` and `value`: text, null or `{"b64": ...}`;
`timestamp` in milliseconds), schemas, `subjects.json` (what a registry serves) and `expected.json`: the `rows` of the
table, the offsets that are `bad`, with `reason_contains` texts that the reasons have; or the texts of a refusal
(`refused`). A column that a row leaves out is null.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from sink.config import Settings
from sink.hudi.options import require_usable
from sink.schema.table_schema import IS_DELETED
from sink.write.reading.message_columns import message_columns
from sink.write.rows.changes import ChangeDecoder
from sink.write.rows.record_columns import BadRow, RowDecoder, RowSpec, separate_bad
from sink.write.rows.row_spec import spec_of, table_schema
from tests.one_sink import load
from tests.registry_kit import RegistryRequest, RegistryResponse, StubRegistry

CASES = Path(__file__).parent / "cases"
TOPIC = "t"
_SERVERS = f"""\
zookeeper.connect: 127.0.0.1:2181
kafka.bootstrap.servers: 127.0.0.1:9092
kafka.topic.names: {TOPIC}
target.base.path: /lake/orders
target.table.name: orders
"""
_NOT_FOUND = RegistryResponse(404, {"error_code": 40403, "message": "Schema not found"})

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """A directory with settings, records and what becomes of them."""

    directory: Path

    @property
    def name(self) -> str:
        return self.directory.name

    @cached_property
    def expected(self) -> Mapping[str, Any]:
        return dict(json.loads((self.directory / "expected.json").read_text()))

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.directory / "records.jsonl").read_text().splitlines()]

    @contextmanager
    def settings(self, directory: Path) -> Iterator[Settings]:
        """Yields the settings, from a copy in `directory`, while the registry answers. Raises ConfigError."""
        shutil.copytree(self.directory, directory, dirs_exist_ok=True)
        with self.written() as text:
            yield settings_of_text(directory, text)

    @contextmanager
    def written(self) -> Iterator[str]:
        """Yields the settings as text, while the registry answers."""
        text = (self.directory / "sink.yaml").read_text()
        with StubRegistry(self._answer) as registry:
            has_registry = (self.directory / "subjects.json").exists()
            yield f"schema.registry.url: {registry.url}\n{text}" if has_registry else text

    def _answer(self, request: RegistryRequest) -> RegistryResponse:
        path = request.path.partition("?")[0]
        for subject in json.loads((self.directory / "subjects.json").read_text()):
            text = (self.directory / subject["file"]).read_text()
            document = {"schema": text, "schemaType": subject["type"], "id": subject["id"]}
            if path == f"/subjects/{subject['subject']}/versions/latest":
                return RegistryResponse(200, {**document, "subject": subject["subject"], "version": 1})
            if path == f"/schemas/ids/{subject['id']}":
                return RegistryResponse(200, document)
        return _NOT_FOUND


def settings_of_text(directory: Path, text: str) -> Settings:
    """Loads settings, those of servers apart, from a file in `directory`. Raises ConfigError."""
    file = directory / "sink.yaml"
    file.write_text(_SERVERS + text)
    return load(file, {})


@dataclass(frozen=True)
class Landed:
    """The rows of a table after the records of a case, and the bad ones."""

    rows: list[Row]
    bad: tuple[BadRow, ...]


def landed(settings: Settings, case: Case) -> Landed:
    """Lands the records of a case. Raises ConfigError and TableError for settings that are refused."""
    schema = table_schema(settings.table, settings.records)
    require_usable(settings.table, schema)
    batch = _batch(case.records())
    if settings.operation == "append":
        rows = RowDecoder(spec_of(settings.table, settings.records, schema))
        _, decoded, bad = separate_bad(batch, TOPIC, rows.decode)
        return Landed([] if decoded is None else decoded[0].to_pylist(), bad)
    spec = spec_of(settings.table, settings.records, schema)
    _, changes, bad = separate_bad(batch, TOPIC, ChangeDecoder(spec).decode_batch)
    table = Table(settings.table.ordering)
    if changes is not None:
        for place, change in zip(_places(settings, spec, changes), changes.to_pylist(), strict=True):
            table.apply(place, change)
    return Landed(list(table.rows.values()), bad)


@dataclass
class Table:
    """A table of changed rows, as `docs/how-to/upserts.md` describes it: the row of the greatest ordering values holds,
    among equal ones the latest."""

    ordering: tuple[str, ...]
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)

    def apply(self, place: tuple[str, str], change: Row) -> None:
        known = self.rows.get(place)
        if known is not None and self._order(change) < self._order(known):
            return
        if change[IS_DELETED]:
            self.rows.pop(place, None)
        else:
            self.rows[place] = change

    def _order(self, row: Row) -> tuple[Any, ...]:
        # An incremental snapshot has no position: it is older than every change.
        return tuple((row[name] is not None, row[name]) for name in self.ordering)


def _places(settings: Settings, spec: RowSpec, changes: pa.RecordBatch) -> Iterator[tuple[str, str]]:
    """Yields where the row of each change is: its table partition, if the index looks in one, and its record key."""
    groups = spec.paths.group(changes)
    partitions = changes.column("_sink_partition").cast(pa.string())
    keys = spec.keys.column(changes, TOPIC, partitions, changes.column("_sink_offset").cast(pa.string()))
    for code, key in zip(groups.codes.tolist(), keys.to_pylist(), strict=True):
        yield "" if settings.key_is_global else groups.paths[code], key


def _batch(records: list[dict[str, Any]]) -> pa.RecordBatch:
    messages = [
        Message(
            TOPIC,
            0,
            offset,
            content(record["key"]),
            content(record["value"]),
            None,
            None,
            (TIMESTAMP_CREATE_TIME, record.get("timestamp", 0)),
        )
        for offset, record in enumerate(records)
    ]
    count = len(messages)
    return message_columns(
        messages, np.zeros(count, np.int32), np.arange(count), np.zeros(count, np.uint64), [[]] * count
    )


def content(written: str | dict[str, str] | None) -> bytes | None:
    if isinstance(written, dict):
        return base64.b64decode(written["b64"])
    return None if written is None else written.encode()


def compared(rows: Sequence[Row], expected: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Returns rows and those that are expected, as texts that compare. A column whose name begins with `_` counts only
    where it is expected: the sink, Hudi and connectors have such columns of their own.
    """
    wanted = {name for row in expected for name in row}
    columns = wanted.union(name for row in rows for name in row if not name.startswith("_"))
    return _texts(rows, columns), _texts(expected, columns)


def _texts(rows: Sequence[Row], columns: Collection[str]) -> list[str]:
    """Returns rows as texts of these columns, in an order of their own."""
    return sorted(
        json.dumps({name: as_written(row.get(name)) for name in sorted(columns)}, ensure_ascii=False) for row in rows
    )


def as_written(value: Any) -> Any:
    """Returns a value as `expected.json` has it."""
    if isinstance(value, dict):
        return {name: as_written(inner) for name, inner in value.items()}
    if isinstance(value, list):
        is_map = bool(value) and isinstance(value[0], tuple)
        return as_written(dict(value)) if is_map else [as_written(inner) for inner in value]
    if isinstance(value, datetime):
        text = value.astimezone(timezone.utc).replace(tzinfo=None).isoformat()
        return (text.rstrip("0") if "." in text else text) + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float) and not np.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value
