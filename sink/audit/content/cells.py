"""Holds the rows of a table against the rows that the log's records have to be, cell by cell, in DuckDB.

Guarantee: every row of the table is compared, or counted with the reason why not; every row that the log asks for is in
the table, or is a finding. Both sides have the table's own types. DuckDB compares hashes of 64 bits of the flat columns
of whole rows, nested columns themselves, and of rows that differ each cell. Memory is bounded: it spills to the scratch
folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sink.audit.content.changes import Ordering
from sink.audit.content.expected import ASIDE_SCHEMA, BAD_SCHEMA, DELETES, KEY, PATH, ExpectedForm, column, has_map
from sink.audit.content.fold import fold, name_first_commits, number_commits
from sink.audit.content.owners import NO_COMMIT, OTHER_WRITERS, Coordinates, part
from sink.audit.content.records import UNKNOWN_SCHEMA
from sink.audit.content.repairs import as_before
from sink.audit.content.widening import as_float
from sink.audit.report import COUNTED_REPAIRS, LEFT_OUT, AuditFindings, ContentCount, FindingKind
from sink.audit.rows import MEMORY, PROVENANCE, Stream

COMMIT_TIME = "_hoodie_commit_time"
META = {KEY: "_hoodie_record_key", PATH: "_hoodie_partition_path"}
META_COLUMNS = (COMMIT_TIME, *META.values())
COORDINATES = "_sink_source, _sink_offset, _sink_commit"
_SHOWN = 20
_SHOWN_OF_A_COLUMN = 3
_LONGEST = 80


class TableRows:
    """Writes the rows of the table to scratch files, in the columns and types of `target`."""

    def __init__(self, scratch: Path, target: ExpectedForm, coordinates: Coordinates, has_meta: bool) -> None:
        self.folder = scratch / "table"
        self.folder.mkdir()
        self._target, self._coordinates, self._has_meta = target, coordinates, has_meta
        self._schema = pa.schema([*target.schema, ("_sink_file", pa.int32())])
        self.files: list[str] = []

    def add(self, partition: str, path: str, stream: Stream) -> None:
        """Raises what hudi-rs raises."""
        number = len(self.files)
        self.files.append(path)
        with pq.ParquetWriter(self.folder / f"rows-{number}.parquet", self._schema, compression="lz4") as writer:
            for batch in stream():
                if batch.num_rows:
                    writer.write_batch(self._normal(partition, number, batch))

    def _normal(self, partition: str, file: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        count = batch.num_rows

        def constant(value: Any, kind: pa.DataType) -> pa.Array:
            return pa.repeat(pa.scalar(value, kind), count)

        sources = self._numbers(batch)
        columns: dict[str, pa.Array] = {
            "_sink_source": sources,
            "_sink_offset": batch.column(PROVENANCE[2]),
            "_sink_commit": self._commits(batch, sources) if self._has_meta else constant(NO_COMMIT, pa.int32()),
            PATH: constant(partition, pa.string()),
            "_sink_file": constant(file, pa.int32()),
        }
        if self._has_meta:
            columns[KEY] = batch.column(META[KEY])
            # A row whose own path is another one than that of its file is nowhere.
            own = batch.column(META[PATH]).cast(pa.string())
            columns[PATH] = pc.if_else(
                pc.equal(own, partition), own, pc.binary_join_element_wise(own, partition, " in ")
            )
        for wanted in self._target.columns:
            if wanted.name in batch.schema.names:
                found = batch.column(wanted.name)
                columns[wanted.name] = column(found.to_pylist(), wanted.type) if has_map(wanted.type) else found
        arrays = [
            columns[field.name].cast(field.type) if field.name in columns else pa.nulls(count, field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _numbers(self, batch: pa.RecordBatch) -> pa.Array:
        topics = pc.dictionary_encode(batch.column(PROVENANCE[0]).cast(pa.string()))
        texts = pc.binary_join_element_wise(
            topics.cast(pa.string()), batch.column(PROVENANCE[1]).cast(pa.string()), "\0"
        )
        encoded = pc.dictionary_encode(texts)
        known = {f"{source.topic}\0{source.partition}": number for source, number in self._coordinates.sources.items()}
        numbers = pa.array([known.get(text) for text in encoded.dictionary.to_pylist()], pa.int32())
        return numbers.take(encoded.indices)

    def _commits(self, batch: pa.RecordBatch, sources: pa.Array) -> pa.Array:
        encoded = pc.dictionary_encode(batch.column(COMMIT_TIME).cast(pa.string()))
        instants, known = encoded.dictionary.to_pylist(), self._coordinates
        commits = pa.array([known.commits.get(text) for text in instants], pa.int32()).take(encoded.indices)
        for position, instant in enumerate(instants):
            if instant in known.again:
                # The row counts as one of the commit that landed its record first.
                rows = pc.equal(encoded.indices, position)
                offsets = batch.column(PROVENANCE[2])
                places = sources.filter(rows), offsets.filter(rows)
                commits = pc.replace_with_mask(commits, rows, as_before(known.again, instant, *places, known.sources))
        return commits


@dataclass(frozen=True)
class Unread:
    """Why rows have no record to be compared with. `firsts`: the first offset of each partition that the log still
    has, by number; `reason`: why the record of a row of a partition and commit is not there; `left_out`: partitions and
    commits that are not compared."""

    firsts: Mapping[int, int]
    reason: Callable[[int, int], str]
    left_out: Collection[tuple[int, int]] = ()


@dataclass
class Comparison:
    """Compares, and collects findings. `removed` is how many rows commits of other writers can have deleted. Without
    `is_suffix` later changes of a key may be left out: its row may be that of none that is compared."""

    scratch: Path
    target: ExpectedForm
    table: TableRows
    expected: Path
    coordinates: Coordinates
    has_meta: bool
    findings: AuditFindings
    removed: int = 0
    is_suffix: bool = True
    floats: Mapping[str, Collection[int]] = field(default_factory=dict)
    """The commits in which a column of DOUBLEs was one of FLOATs."""
    _counts: Counter[str] = field(default_factory=Counter)

    def run(self, unread: Unread) -> ContentCount:
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": MEMORY,
            "preserve_insertion_order": False,
            "threads": 2,
        }
        with closing(duckdb.connect(str(self.scratch / "content.duckdb"), config=settings)) as self.connection:
            self._views()
            rows = self._one("SELECT count(*) FROM landed")
            different = self._differing()
            self._bad_that_landed()
            not_compared = self._without_record(unread)
            absent = self._absent() if self.is_suffix or self.target.ordering is None else 0
            compared = self._one("SELECT count(*) FROM paired")
            bad = self._one("SELECT count(*) FROM bad")
        counts = {name: number for name, number in self._counts.items() if number}
        return ContentCount(rows, compared, different, absent, bad, counts, not_compared)

    def _one(self, query: str) -> int:
        [(value,)] = self.connection.execute(query).fetchall()
        return int(value)

    def _views(self) -> None:
        """`stored` are the rows of the table, `landed` the same by the commits of their records, `changes` what the
        log's good records say but those `aside`, `wanted` those that the table has to have, `known` all of them, `bad`
        the other records, and `paired` the coordinates of both sides."""
        landed_schema = pa.schema([*self.target.schema, ("_sink_file", pa.int32())])
        for view, folder, kind, schema in (
            ("stored", self.table.folder, "rows", landed_schema),
            ("aside", self.expected, "aside", ASIDE_SCHEMA),
            ("good", self.expected, "rows", self.target.schema),
            ("refused", self.expected, "bad", BAD_SCHEMA),
        ):
            pq.write_table(schema.empty_table(), folder / f"{kind}-none.parquet")
            files = f"read_parquet('{folder}/{kind}-*.parquet')"
            self.connection.execute(f"CREATE VIEW {view} AS FROM {files}")
        self.connection.execute(f"CREATE VIEW changes AS FROM good ANTI JOIN aside USING ({COORDINATES})")
        counted = ""
        if self.target.ordering is not None:
            number_commits(self.connection, self.coordinates.positions)
            counted = f"WHERE NOT {DELETES}"
        name_first_commits(self.connection, self.target.ordering if self.has_meta else None)
        if self.target.ordering is not None and self.is_suffix:
            fold(self.connection, self.target.ordering)
            counted = f"SEMI JOIN winners USING ({COORDINATES})"
        # Without Hudi's own columns a row does not say of which commit it is.
        columns = "*" if self.has_meta else f"* REPLACE ({NO_COMMIT} AS _sink_commit)"
        for view, origin in (("wanted", f"changes {counted}"), ("known", "changes"), ("bad", "refused")):
            self.connection.execute(f"CREATE VIEW {view} AS SELECT {columns} FROM {origin}")
        self.connection.execute(f"CREATE VIEW undecoded AS FROM bad WHERE reason = '{UNKNOWN_SCHEMA}'")
        nested = [_quoted(field.name) for field in self.target.columns if field.type.num_fields]
        flat = [part for name in self.compared if _quoted(name) not in nested for part in self._parts(name)]
        # To DuckDB a list that is null, an empty one and one of a null have one hash.
        selected = ", ".join((COORDINATES, f"hash({', '.join(flat)}) AS hash", *nested))
        same = " AND ".join(("l.hash = w.hash", *(f"l.{name} IS NOT DISTINCT FROM w.{name}" for name in nested)))
        self.connection.execute(
            f"""
            CREATE TEMP TABLE paired AS SELECT {COORDINATES}, {same} AS same
            FROM (SELECT {selected} FROM landed) l JOIN (SELECT {selected} FROM wanted) w USING ({COORDINATES})
            """
        )

    def _parts(self, name: str, side: str = "") -> list[str]:
        """Returns the expressions whose values are those of a column: -0.0 equals 0.0."""
        cell = f"{side}{_quoted(name)}"
        if commits := self.floats.get(name):
            cell = as_float(cell, f"{side}_sink_commit", commits)
        is_float = name in self.target.columns.names and pa.types.is_floating(self.target.columns.field(name).type)
        return [cell, f"({cell} = 0 AND signbit({cell}))"] if is_float else [cell]

    @property
    def compared(self) -> list[str]:
        """The names of the columns that are compared."""
        return [*([KEY] if self.has_meta else []), PATH, *self.target.columns.names]

    def _differing(self) -> int:
        """Reports cells that differ, by column, the first ones with both values. Returns the number of rows."""
        total = self._one("SELECT count(*) FROM paired WHERE NOT same")
        if not total:
            return 0
        self._note_repairs("FROM paired WHERE NOT same")
        different = f"SEMI JOIN (FROM paired WHERE NOT same) USING ({COORDINATES})"
        joined = f"FROM (FROM landed {different}) l JOIN (FROM wanted {different}) w USING ({COORDINATES})"
        for name in self.compared:
            cells = f"l.{_quoted(name)}", f"w.{_quoted(name)}"
            parts = zip(self._parts(name, "l."), self._parts(name, "w."), strict=True)
            differs = f"{joined} WHERE {' OR '.join(f'{found} IS DISTINCT FROM {wanted}' for found, wanted in parts)}"
            number = self._one(f"SELECT count(*) {differs}")
            if not number:
                continue
            shown = META.get(name, name)
            self._counts[shown] = number
            texts = ", ".join(f"CAST({cell} AS VARCHAR)" for cell in cells)
            for place, file, found, wanted in self._places(f"{texts} {differs}", _SHOWN_OF_A_COLUMN):
                self.findings.add(
                    FindingKind.CELL,
                    f"{place} column {shown}: the table has {_shown(found)}, the log {_shown(wanted)} ({file});"
                    f" {number:,} rows differ in it",
                )
        return total

    def _bad_that_landed(self) -> None:
        joined = f"FROM landed l JOIN bad b USING ({COORDINATES}) ANTI JOIN undecoded USING ({COORDINATES})"
        self._counts["bad records that landed"] = self._one(f"SELECT count(*) {joined}")
        for place, file, reason in self._places(f"b.reason {joined}"):
            self.findings.add(
                FindingKind.LANDED_BAD, f"{place} is in the table, and its record is none of a row: {reason} ({file})"
            )

    def _without_record(self, unread: Unread) -> Mapping[str, int]:
        """Counts the rows that have no record to be compared with, by reason. Reports those whose record is not the one
        that counts for its key."""
        self.connection.execute(
            f"""
            CREATE TEMP TABLE unpaired AS SELECT {self._unpaired_columns()} FROM landed
            ANTI JOIN paired USING ({COORDINATES})
            ANTI JOIN (FROM bad ANTI JOIN undecoded USING ({COORDINATES})) USING ({COORDINATES});
            CREATE TEMP TABLE stale AS FROM unpaired SEMI JOIN known USING ({COORDINATES});
            CREATE TEMP TABLE recordless AS FROM unpaired ANTI JOIN known USING ({COORDINATES})
            """
        )
        self._note_outside(part(self.connection, self.coordinates, self.has_meta))
        if self.target.ordering is not None:
            self._find_replaced(self.target.ordering)
        self._counts["rows of other records"] = self._one("SELECT count(*) FROM stale")
        self._note_repairs("FROM stale")
        for place, file, key in self._places(f"l.{KEY} FROM stale l"):
            self.findings.add(
                FindingKind.STALE,
                f"{place} is the row of key {_shown(key)} in the table, and another record counts ({file})",
            )
        firsts = {"number": pa.array(unread.firsts, pa.int64()), "low": pa.array(unread.firsts.values(), pa.int64())}
        self.connection.register("firsts", pa.table(firsts))
        query = f"""
            SELECT _sink_source, _sink_commit, coalesce(_sink_offset < low, false),
                ({COORDINATES}) IN (SELECT ({COORDINATES}) FROM undecoded), count(*)
            FROM without_record LEFT JOIN firsts ON number = _sink_source GROUP BY ALL
        """
        reasons: Counter[str] = Counter()
        for source, commit, is_expired, is_undecoded, rows in self.connection.execute(query).fetchall():
            if commit <= OTHER_WRITERS:
                reasons["rows of other writers"] += rows
            elif (source, commit) in unread.left_out:
                reasons[LEFT_OUT] += rows
            elif is_undecoded:
                reasons[UNKNOWN_SCHEMA] += rows
            elif is_expired:
                reasons["expired from the log"] += rows
            else:
                reasons[unread.reason(source, commit)] += rows
        self.connection.unregister("firsts")
        return dict(reasons)

    def _note_outside(self, written: Mapping[int, str]) -> None:
        """Reports rows that the commit which they name cannot have written. `written` says of other writers' commits
        what they have."""
        self._counts["rows that their commits have not written"] = self._one("SELECT count(*) FROM outside")
        for place, file, commit in self._places("l._sink_commit FROM outside l"):
            instant = self.coordinates.instant(commit)
            reason = (
                "no commit has written it" if instant is None else f"commit {instant} of its row has not written it"
            )
            more = f": {written[commit]}" if commit in written else ""
            self.findings.add(FindingKind.OUTSIDE, f"{place} is in the table, and {reason}{more} ({file})")

    def _unpaired_columns(self) -> str:
        return f"{COORDINATES}, {self._row_of_key()}, _sink_file"

    def _row_of_key(self) -> str:
        """Returns the columns that say which key a row is of, and in which order it comes."""
        ordering = self.target.ordering
        place = f"{PATH if ordering is not None and not ordering.is_global else repr('')} AS _sink_place"
        fields = () if ordering is None else ordering.fields
        return ", ".join((place, KEY, *map(_quoted, fields)))

    def _find_replaced(self, ordering: Ordering) -> None:
        """Moves rows whose own record is not compared to the stale ones, if a later change of their key is that is not
        older by its ordering values: without `is_suffix` also those whose record is."""
        origin = "without_record" if self.is_suffix else f"(SELECT {self._unpaired_columns()} FROM landed)"
        is_newer = " AND ".join(
            ("c._sink_place = l._sink_place", f"c.{KEY} = l.{KEY}", "c._sink_at > p._sink_position")
        )
        if ordering.fields:
            values = [", ".join(f"{side}.{_quoted(name)}" for name in ordering.fields) for side in ("c", "l")]
            is_newer += f" AND row({values[0]}) >= row({values[1]})"
        self.connection.execute(
            f"""
            CREATE TEMP TABLE replaced AS SELECT l.* FROM {origin} l
            JOIN positions p ON p._sink_number = l._sink_commit
            SEMI JOIN (
                SELECT {self._row_of_key()}, _sink_position AS _sink_at FROM changes
                JOIN positions ON _sink_number = _sink_commit
            ) c ON {is_newer};
            INSERT INTO stale FROM replaced;
            DELETE FROM without_record USING replaced r WHERE without_record._sink_source = r._sink_source
                AND without_record._sink_offset = r._sink_offset AND without_record._sink_commit = r._sink_commit
            """
        )

    def _absent(self) -> int:
        """Reports rows that the log asks for and the table does not have. Call it after `_without_record`."""
        if self.target.ordering is None:
            # Another writer has changed the row.
            others = f"(FROM without_record WHERE _sink_commit <= {OTHER_WRITERS}) USING (_sink_source, _sink_offset)"
        else:
            # Another writer has, or a record that is gone from the log has greater ordering values.
            others = f"without_record USING (_sink_place, {KEY})"
        wanted = f"(SELECT {COORDINATES}, {self._row_of_key()} FROM wanted)"
        missing = f"FROM {wanted} ANTI JOIN landed USING ({COORDINATES}) ANTI JOIN {others}"
        total = self._one(f"SELECT count(*) {missing}")
        if total <= self.removed:
            self._counts["removed by other writers"] = total
            return 0
        self._note_repairs(missing)
        query = f"SELECT _sink_source, _sink_offset {missing} ORDER BY ALL LIMIT {_SHOWN}"
        for source, offset in self.connection.execute(query).fetchall():
            place = f"{self.coordinates.source(source)} offset {offset}"
            self.findings.add(FindingKind.ABSENT, f"{place}: its record is a row, and the table does not have it")
        return total

    def _note_repairs(self, rows: str) -> None:
        """Notes the offsets of these rows, in runs, as ones to land again."""
        query = f"""
            SELECT _sink_source, min(_sink_offset), max(_sink_offset) + 1 FROM (
                SELECT *, _sink_offset - row_number() OVER (PARTITION BY _sink_source ORDER BY _sink_offset) AS run
                FROM (SELECT DISTINCT _sink_source, _sink_offset {rows})
            ) GROUP BY _sink_source, run ORDER BY ALL LIMIT {COUNTED_REPAIRS}
        """
        for number, low, high in self.connection.execute(query).fetchall():
            if (source := self.coordinates.source(number)) is not None:
                self.findings.repair(source.topic, source.partition, low, high)

    def _places(self, rest: str, limit: int = _SHOWN) -> Iterator[tuple[Any, ...]]:
        """Yields the place and the file of rows of `l`, with what `rest` selects."""
        query = f"SELECT _sink_source, _sink_offset, l._sink_file, {rest} ORDER BY ALL LIMIT {limit}"
        for source, offset, file, *more in self.connection.execute(query).fetchall():
            partition = self.coordinates.source(source) or "an unknown partition"
            yield f"{partition} offset {_shown(offset)}", self.table.files[file], *more


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
