"""Writes the rows that the log's records have to be, in processes of their own, to scratch files.

Guarantee: each record that was added is in a file of rows or in one of bad records, once for each commit that has its
offset. Memory is bounded: so many chunks wait for a process. A chunk whose schema is missing is not written: `reasons`
says why.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count, repeat
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Message

from coordination.state.model import TopicPartition
from sink.audit.content.changes import ChangeMaker, Ordering
from sink.audit.content.places import Places, time_text
from sink.audit.content.records import Headers, Record, RowMaker
from sink.audit.content.specification import NotComparable, Specification
from sink.audit.decode.rules import Bad

CHUNK = 20_000
_LONGEST_REASON = 200
PLACED = (("_sink_source", pa.int32()), ("_sink_offset", pa.int64()), ("_sink_commit", pa.int32()))
"""Columns before those of the table: partition, offset, and commit by number."""
PATH, KEY, DELETES = "_sink_path", "_sink_key", "_sink_deletes"
BAD_SCHEMA = pa.schema([*PLACED, ("reason", pa.string())])


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets `[start, end)` that a commit added; `commit` is its number here, `specification` that of its own."""

    start: int
    end: int
    commit: int
    specification: int


@dataclass(frozen=True)
class Target:
    """The form of a written row: the table's columns without Hudi's own, and the rules of its places."""

    columns: pa.Schema
    places: Places
    ordering: Ordering | None = None
    """How changes of a key are ordered; None where each record is a row."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*PLACED, (PATH, pa.string()), (KEY, pa.string()), (DELETES, pa.bool_()), *self.columns])


@dataclass(frozen=True, slots=True)
class Records:
    """Records as columns, which take a tenth of the time to send to a process. `commits` has the commit of each."""

    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)

    def add(self, messages: Sequence[Message], offsets: Sequence[int], commit: int) -> None:
        """Asks each message for its headers."""
        self.offsets.extend(offsets)
        self.timestamps.extend(map(itemgetter(1), map(Message.timestamp, messages)))
        self.keys.extend(cast("Iterable[bytes | None]", map(Message.key, messages)))
        self.values.extend(cast("Iterable[bytes | None]", map(Message.value, messages)))
        self.headers.extend(_headers(messages))
        self.commits.extend(repeat(commit, len(offsets)))

    def each(self) -> Iterator[Record]:
        return map(Record, self.offsets, self.timestamps, self.keys, self.values, self.headers)


@dataclass(frozen=True, slots=True)
class Chunk:
    source: int
    topic: str
    partition: int
    specification: int
    records: Records


class ExpectedRows:
    """Takes the records of the log. `ranges` are those that are compared, by partition, with specifications by number;
    what has a text for one is not comparable, for that reason."""

    def __init__(
        self,
        scratch: Path,
        target: Target,
        sources: Mapping[TopicPartition, int],
        ranges: Mapping[TopicPartition, Sequence[Range]],
        specifications: Mapping[int, Specification | str],
    ) -> None:
        self.folder = scratch / "expected"
        self.folder.mkdir()
        self._sources, self._ranges = sources, ranges
        self.reasons: dict[int, str] = {}
        for number, spec in specifications.items():
            if isinstance(spec, str):
                self.reasons[number] = spec
            else:
                (self.folder / f"spec-{number}").write_bytes(pickle.dumps((spec, target)))
        self._waiting: dict[tuple[TopicPartition, int], Records] = {}
        self._numbers = count()
        self._jobs = max(1, (os.cpu_count() or 2))
        self._pool: ProcessPoolExecutor | None = None
        """Begins with the first chunk that is full: a process takes longer to begin than a small one to decode."""
        self._futures: set[Future[NotCompared | None]] = set()

    def add(self, source: TopicPartition, messages: Sequence[Message], offsets: Sequence[int]) -> None:
        """Takes records of a partition by rising offset. Asks each for its headers."""
        for entry in self._ranges.get(source, ()):
            low, high = bisect_left(offsets, entry.start), bisect_left(offsets, entry.end)
            if low == high or entry.specification in self.reasons:
                continue
            records = self._waiting.setdefault((source, entry.specification), Records())
            records.add(messages[low:high], offsets[low:high], entry.commit)
            if len(records.offsets) >= CHUNK:
                self._submit(source, entry.specification)

    def _submit(self, source: TopicPartition, specification: int) -> None:
        records = self._waiting.pop((source, specification))
        number = self._sources[source]
        chunk = Chunk(number, source.topic, source.partition, specification, records)
        if self._pool is None and len(records.offsets) < CHUNK:
            self._count(write_chunk(self.folder, next(self._numbers), chunk))
            return
        if self._pool is None:
            # Not by fork: the client of Kafka has threads.
            self._pool = ProcessPoolExecutor(self._jobs, multiprocessing.get_context("spawn"))
        if len(self._futures) >= 2 * self._jobs:
            done, self._futures = wait(self._futures, return_when=FIRST_COMPLETED)
            self._settle(done)
        self._futures.add(self._pool.submit(write_chunk, self.folder, next(self._numbers), chunk))

    def _count(self, chunk: NotCompared | None) -> None:
        if chunk is not None:
            self.reasons.setdefault(chunk.specification, chunk.reason)

    def _settle(self, futures: Iterable[Future[NotCompared | None]]) -> None:
        for future in futures:
            self._count(future.result())

    def finish(self) -> None:
        """Waits until every record is written."""
        for source, specification in list(self._waiting):
            self._submit(source, specification)
        self._settle(wait(self._futures).done)
        self._futures = set()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _or_none(headers: Headers) -> Headers:
    return headers or ()


def _headers(messages: Sequence[Message]) -> list[Headers]:
    # Not by `message.headers()`: the client sets an exception and returns a list, which only `map` looks for.
    found: list[Headers] = []
    calls = cast("Iterator[list[tuple[str, bytes | None]] | None]", map(Message.headers, messages))
    while len(found) < len(messages):
        try:
            # Not a generator, which an exception ends.
            found.extend(map(_or_none, calls))
        except SystemError as error:
            if not isinstance(error.__cause__, UnicodeDecodeError):
                raise
            found.append(None)
    return found


class NotCompared(NamedTuple):
    """A chunk that cannot be compared."""

    specification: int
    reason: str


def write_chunk(folder: Path, number: int, chunk: Chunk) -> NotCompared | None:
    """Writes a chunk's rows and bad records, unless it cannot be compared."""
    maker = _maker(str(folder / f"spec-{chunk.specification}"))
    rows: list[dict[str, Any]] = []
    bad: list[tuple[int, int, str]] = []
    for record, commit in zip(chunk.records.each(), chunk.records.commits, strict=True):
        try:
            row = maker.row(chunk.topic, chunk.partition, record)
        except Bad as error:
            bad.append((record.offset, commit, str(error)[:_LONGEST_REASON]))
        except NotComparable as error:
            return NotCompared(chunk.specification, str(error))
        else:
            if row is not None:
                row["_sink_offset"], row["_sink_commit"] = record.offset, commit
                rows.append(row)
    if rows:
        columns = [
            pa.repeat(pa.scalar(chunk.source, field.type), len(rows))
            if field.name == "_sink_source"
            else column([row.get(field.name) for row in rows], field.type)
            for field in maker.target.schema
        ]
        pq.write_table(pa.table(columns, maker.target.schema), folder / f"rows-{number}.parquet", compression="lz4")
    if bad:
        offsets, commits, reasons = zip(*bad, strict=True)
        table = {
            "_sink_source": [chunk.source] * len(bad),
            "_sink_offset": offsets,
            "_sink_commit": commits,
            "reason": reasons,
        }
        pq.write_table(pa.table(table, BAD_SCHEMA), folder / f"bad-{number}.parquet")
    return None


@lru_cache(16)
def _maker(path: str) -> PlacedMaker:
    return PlacedMaker(*pickle.loads(Path(path).read_bytes()))


class PlacedMaker:
    """Makes the rows, or the changes of rows, of one commit with their places."""

    def __init__(self, spec: Specification, target: Target) -> None:
        self.target = target
        self._spec = spec
        self._rows = RowMaker(spec)
        self._changes = None if target.ordering is None else ChangeMaker(spec, target.places, target.ordering)

    def row(self, topic: str, partition: int, record: Record) -> dict[str, Any] | None:
        """Returns the row of a record with its place; None if it changes nothing. Raises Bad and NotComparable."""
        if self._changes is None:
            return self._placed(self._rows.row(topic, partition, record)) | {DELETES: False}
        change = self._changes.change(topic, partition, record)
        if change is None:
            return None
        row, places = change.row, self.target.places
        is_global = self.target.ordering is not None and self.target.ordering.is_global
        if change.deletes and is_global:
            # Its row is found by the key alone.
            sources = {*places.partitions, *([self._spec.time.field] if self._spec.time else [])}
            row = {name: None if name in sources.difference(places.keys) else value for name, value in row.items()}
        placed = self._placed(row)
        if change.before is not None and not is_global:
            earlier = {name: value for name, value in change.before.items() if name in row}
            with suppress(Bad):
                if self._placed({**row, **earlier})[PATH] != placed[PATH]:
                    placed[PATH] = None
            if placed[PATH] is None:
                raise Bad("an update that moves its row to another partition")
        return placed | {DELETES: change.deletes}

    def _placed(self, row: dict[str, Any]) -> dict[str, Any]:
        time, places = self._spec.time, self.target.places
        if time is not None:
            row = {**row, time.column: time_text(time, row, self._spec.rules)}
        return {**row, PATH: places.path(row), KEY: places.key(row)}


def column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Returns a column of these values. The entries of maps come by their keys: writers keep no order of them."""
    return pa.array([_with_pairs(value, kind) for value in values] if has_map(kind) else values, kind)


@lru_cache(256)
def has_map(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(has_map(kind.field(number).type) for number in range(kind.num_fields))


def _with_pairs(value: Any, kind: pa.DataType) -> Any:
    """Returns a value whose maps are lists of pairs, as Arrow takes them."""
    if value is None or not has_map(kind):
        return value
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return sorted(((key, _with_pairs(inner, kind.item_type)) for key, inner in pairs), key=itemgetter(0))
    if pa.types.is_struct(kind):
        return {
            field.name: _with_pairs(value.get(field.name), field.type)
            for field in (kind.field(number) for number in range(kind.num_fields))
        }
    return [_with_pairs(inner, kind.value_type) for inner in value]
