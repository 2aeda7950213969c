"""Writes the rows that the log's records have to be, in processes of their own, to scratch files.

Guarantee: each record that was added is in a file of rows or in one of bad records, once for each commit that has its
offset. Memory is bounded: so many chunks wait for a process. A chunk whose schema is missing is not written: `reasons`
says why.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import resource
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, count, repeat
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sink.audit.checkpoints import LogPartition
from sink.audit.content.changes import ChangeMaker, Ordering
from sink.audit.content.places import Places, time_text
from sink.audit.content.records import Record, RowMaker
from sink.audit.content.specification import NotComparable, Specification
from sink.audit.decode.rules import Bad
from sink.audit.log_records import Headers, LogRecords, RecordColumns
from sink.audit.orphans import end_with_parent
from sink.audit.rows import PROVENANCE

CHUNK = 20_000
CHUNK_BYTES = 16 << 20
"""A chunk that has one or the other is full."""
_BOUNDED_JOBS = 4
_LONGEST_REASON = 200
PLACED = (("_sink_source", pa.int32()), ("_sink_offset", pa.int64()), ("_sink_commit", pa.int32()))
"""Columns before those of the table: partition, offset, and commit by number."""
PATH, KEY, DELETES = "_sink_path", "_sink_key", "_sink_deletes"
_IS_DELETED = "_hoodie_is_deleted"
"""The column of an upsert table by which Hudi deletes rows."""
BAD_SCHEMA = pa.schema([*PLACED, ("reason", pa.string())])
ASIDE_SCHEMA = pa.schema(PLACED)
"""Records that a repair has left in the errors table, though they are good by its specification."""


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets `[start, end)` that a commit added; `commit` is its number here, `specification` that of its own."""

    start: int
    end: int
    commit: int
    specification: int


@dataclass(frozen=True)
class ExpectedForm:
    """The form of a written row: the table's columns without Hudi's own, and the rules of its places."""

    columns: pa.Schema
    places: Places
    ordering: Ordering | None = None
    """How changes of a key are ordered; None where each record is a row."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*PLACED, (PATH, pa.string()), (KEY, pa.string()), (DELETES, pa.bool_()), *self.columns])


def _numbers() -> array[int]:
    return array("q")


@dataclass(slots=True)
class LogColumns:
    """Records as columns, which take a tenth of the time to send to a process."""

    offsets: array[int] = field(default_factory=_numbers)
    timestamps: array[int] = field(default_factory=_numbers)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    """Numbers of partition and commit, and how many records they are of."""
    size: int = 0
    """Bytes of keys and values."""

    @property
    def is_full(self) -> bool:
        return len(self.offsets) >= CHUNK or self.size >= CHUNK_BYTES

    def add(self, source: int, commit: int, columns: RecordColumns) -> None:
        self.runs.append((source, commit, len(columns.offsets)))
        self.offsets.extend(columns.offsets)
        self.timestamps.extend(columns.timestamps)
        self.keys.extend(columns.keys)
        self.values.extend(columns.values)
        self.headers.extend(columns.headers)
        self.size += sum(sum(map(len, filter(None, parts))) for parts in (columns.keys, columns.values))

    def each(self) -> Iterator[tuple[int, Record]]:
        """Returns the records with the number of their partition."""
        records = map(Record, self.offsets, self.timestamps, self.keys, self.values, self.headers)
        return zip(chain.from_iterable(repeat(source, count) for source, _, count in self.runs), records, strict=True)

    def located(self, kept: Sequence[int]) -> list[pa.Array]:
        """Returns the columns of PLACED for the records of these positions."""
        sources, commits, counts = np.array(self.runs, np.int64).reshape(-1, 3).T
        columns = (np.repeat(sources, counts), np.array(self.offsets), np.repeat(commits, counts))
        return [pa.array(column[kept]).cast(kind) for column, (_, kind) in zip(columns, PLACED, strict=True)]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one specification."""

    specification: int
    records: LogColumns


class ExpectedRows:
    """Takes the records of the log. `ranges` are those that are compared, by partition, with specifications by number;
    what has a text for one is not comparable, for that reason."""

    def __init__(
        self,
        scratch: Path,
        target: ExpectedForm,
        sources: Mapping[LogPartition, int],
        ranges: Mapping[LogPartition, Sequence[Range]],
        specifications: Mapping[int, Specification | str],
    ) -> None:
        self.folder = scratch / "expected"
        self.folder.mkdir()
        self._sources = sources
        self._ranges = {source: deque(sorted(found, key=attrgetter("start"))) for source, found in ranges.items()}
        """Those that lie behind what was read, and those that it has reached."""
        self._reached: dict[LogPartition, list[Range]] = {}
        self.reasons: dict[int, str] = {}
        names = sorted(sources, key=sources.__getitem__)
        for number, spec in specifications.items():
            if isinstance(spec, str):
                self.reasons[number] = spec
            else:
                (self.folder / f"spec-{number}").write_bytes(pickle.dumps((spec, target, names)))
        self._waiting: dict[int, LogColumns] = {}
        self._numbers = count()
        self._jobs, self._memory = _jobs()
        self._pool: ProcessPoolExecutor | None = None
        """Begins with the first chunk that is full: a process takes longer to begin than a small one to decode."""
        self._futures: set[Future[RefusedChunk | None]] = set()

    def add(self, source: LogPartition, records: LogRecords) -> None:
        """Takes records of a partition by rising offset."""
        offsets = records.offsets
        for entry in [each for each in self._met(source, offsets) if each.specification not in self.reasons]:
            low, high = bisect_left(offsets, entry.start), bisect_left(offsets, entry.end)
            if low == high:
                continue
            waiting = self._waiting.setdefault(entry.specification, LogColumns())
            waiting.add(self._sources[source], entry.commit, records.part(low, high))
            if waiting.is_full:
                self._submit(entry.specification)

    def _met(self, source: LogPartition, offsets: Sequence[int]) -> Sequence[Range]:
        """Returns the ranges that have some of the offsets, which never fall from call to call."""
        behind = self._ranges.get(source)
        if behind is None or not offsets:
            return ()
        reached = [entry for entry in self._reached.get(source, ()) if entry.end > offsets[0]]
        while behind and behind[0].start <= offsets[-1]:
            reached.append(behind.popleft())
        self._reached[source] = reached
        return reached

    def _submit(self, specification: int) -> None:
        records = self._waiting.pop(specification)
        chunk = Chunk(specification, records)
        if self._pool is None and not records.is_full:
            self._count(write_chunk(self.folder, next(self._numbers), chunk))
            return
        if self._pool is None:
            # Not by fork: the client of Kafka has threads.
            self._pool = ProcessPoolExecutor(
                self._jobs, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(self._memory,)
            )
        if len(self._futures) >= 2 * self._jobs:
            done, self._futures = wait(self._futures, return_when=FIRST_COMPLETED)
            self._settle(done)
        self._futures.add(self._pool.submit(write_chunk, self.folder, next(self._numbers), chunk))

    def _count(self, chunk: RefusedChunk | None) -> None:
        if chunk is not None:
            self.reasons.setdefault(chunk.specification, chunk.reason)

    def _settle(self, futures: Iterable[Future[RefusedChunk | None]]) -> None:
        for future in futures:
            self._count(future.result())

    def finish(self) -> None:
        """Waits until every record is written."""
        for specification in list(self._waiting):
            self._submit(specification)
        self._settle(wait(self._futures).done)
        self._futures = set()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _jobs() -> tuple[int, int]:
    """Returns how many processes decode, and the bytes that each may have. Where this process has a bound, they are
    four at most, and share as much among them."""
    most, _ = resource.getrlimit(resource.RLIMIT_DATA)
    cores = os.cpu_count() or 2
    if most == resource.RLIM_INFINITY:
        return cores, most
    jobs = min(cores, _BOUNDED_JOBS)
    return jobs, most // jobs


def _begin(memory: int) -> None:
    end_with_parent()
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


class RefusedChunk(NamedTuple):
    """A chunk that cannot be compared."""

    specification: int
    reason: str


def write_chunk(folder: Path, number: int, chunk: Chunk) -> RefusedChunk | None:
    """Writes a chunk's rows and bad records, unless it cannot be compared."""
    maker = _maker(str(folder / f"spec-{chunk.specification}"))
    rows: list[dict[str, Any]] = []
    good: list[int] = []
    bad: dict[int, str] = {}
    records = chunk.records
    for position, (source, record) in enumerate(records.each()):
        try:
            row = maker.row(source, record)
        except Bad as error:
            bad[position] = str(error)[:_LONGEST_REASON]
        except NotComparable as error:
            return RefusedChunk(chunk.specification, str(error))
        except MemoryError:
            # It says nothing of the record: the audit has no answer.
            raise
        except Exception as error:  # noqa: BLE001 (a defect of this module must not hide what the audit has found)
            reason = f"the auditor cannot decode the record of offset {record.offset} ({type(error).__name__}: {error})"
            return RefusedChunk(chunk.specification, reason[:_LONGEST_REASON])
        else:
            if row is not None:
                good.append(position)
                rows.append(row)
    schema = maker.target.schema
    names = schema.names[len(PLACED) :]
    if rows:
        try:
            located = records.located(good)
            known = maker.by_place(*located[:2])
            columns = [
                known[name].cast(schema.field(name).type)
                if name in known
                else column([row.get(name) for row in rows], schema.field(name).type)
                for name in names
            ]
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            return RefusedChunk(chunk.specification, "a column of the table is narrower than in their commit")
        table = pa.table([*located, *columns], schema)
        pq.write_table(table, folder / f"rows-{number}.parquet", compression="lz4")
    if bad:
        table = pa.table([*records.located([*bad]), pa.array(bad.values(), pa.string())], BAD_SCHEMA)
        pq.write_table(table, folder / f"bad-{number}.parquet")
    return None


@lru_cache(16)
def _maker(path: str) -> PlacedMaker:
    return PlacedMaker(*pickle.loads(Path(path).read_bytes()))


class PlacedMaker:
    """Makes the rows, or the changes of rows, of one commit with their places."""

    def __init__(self, spec: Specification, target: ExpectedForm, names: Sequence[LogPartition]) -> None:
        """`names` are the partitions by number."""
        self.target = target
        self._names = names
        self._spec = spec
        self._changes = None if target.ordering is None else ChangeMaker(spec, target.places, target.ordering)
        needed = {*target.places.partitions, *((spec.time.field,) if spec.time else ())}
        is_needed = self._changes is not None or not needed.isdisjoint(PROVENANCE)
        self._by_place = frozenset(() if is_needed else spec.added).intersection(PROVENANCE)
        """Columns that are made of many records at once."""
        self._has_key_of_place = self._by_place.issuperset(target.places.keys)
        self._rows = RowMaker(spec, self._by_place)

    def by_place(self, numbers: pa.Array, offsets: pa.Array) -> dict[str, pa.Array]:
        """Returns the columns of rows that follow from partition, by number, and offset alone; `row` has no others."""
        topics = pa.array([source.topic for source in self._names]).take(numbers)
        partitions = pa.array([source.partition for source in self._names]).take(numbers)
        known = dict(zip(PROVENANCE, (topics, partitions, offsets), strict=True))
        columns = {name: known[name] for name in self._by_place}
        if self._has_key_of_place:
            columns[KEY] = self.target.places.keys_of_places(self._names, numbers, offsets)
        return columns

    def row(self, source: int, record: Record) -> dict[str, Any] | None:
        """Returns the row of a record with its place; None if it changes nothing. Raises Bad and NotComparable."""
        topic, partition = self._names[source].topic, self._names[source].partition
        if self._changes is None:
            row = self._placed(self._rows.row(topic, partition, record))
            row[DELETES] = False
            return row
        change = self._changes.change(topic, partition, record)
        if change is None:
            return None
        row, places = change.row, self.target.places
        if _IS_DELETED in row:
            row[_IS_DELETED] = change.deletes
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
        placed[DELETES] = change.deletes
        return placed

    def _placed(self, row: dict[str, Any]) -> dict[str, Any]:
        """Adds the places to a row, and returns it."""
        time, places = self._spec.time, self.target.places
        if time is not None:
            row[time.column] = time_text(time, row, self._spec.rules)
        row[PATH] = places.path(row)
        if not self._has_key_of_place:
            row[KEY] = places.key(row)
        return row


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
