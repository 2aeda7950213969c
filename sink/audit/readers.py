"""Compares the rows that readers of the table return with those of its files.

Guarantee: a reader that agrees returns each row of the files once, with the same cells, and no other, but for what is
named as not read by it. hudi-rs reads by its own list of file slices; Spark reads the table as a whole, with and
without the metadata table. DuckDB compares hashes of 64 bits of whole rows. Memory is bounded: it spills to the scratch
folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pyarrow.parquet as pq
from hudi import HudiFileSlice, HudiReadOptions

from sink.audit.failures import CannotAudit, ReaderFailed
from sink.audit.progress import Progress
from sink.audit.report import AuditFindings, FindingKind
from sink.audit.rows import BATCH_ROWS, MEMORY, PROVENANCE
from sink.audit.slices import FILE_NAME, PARTITION, Slices
from sink.storage.hudi_rs import MirroredTable, raised_by_hudi

HUDI_RS, SPARK = "hudi-rs", "spark"
READERS = (HUDI_RS, SPARK)
_KEY, _SEQUENCE = "_hoodie_record_key", "_hoodie_commit_seqno"
_GROUP = "_sink_group"
_PLACE = (_KEY, PARTITION, *PROVENANCE)
_SHOWN = 3


@dataclass
class ReaderComparison:
    """Call `run` once."""

    slices: Slices
    unshown: Sequence[str]
    findings: AuditFindings
    _left_out: Counter[str] = field(default_factory=Counter)

    def run(self, readers: Sequence[str], progress: Progress) -> None:
        """Raises CannotAudit where a reader cannot be asked."""
        schema = self.slices.state.table.get_schema_with_meta_fields()
        if self.slices.state.files.properties.get("hoodie.populate.meta.fields", "true") != "true":
            raise CannotAudit(
                f"{self.slices.state.files.base_path}: its rows do not name their keys, by which those of readers are"
                " compared (hoodie.populate.meta.fields=false)"
            )
        folder = self.slices.scratch / "readers"
        folder.mkdir()
        columns = [name for name in schema.names if name not in (FILE_NAME, _SEQUENCE)]
        kept = pa.schema([*(schema.field(name) for name in columns), (_GROUP, pa.string())])
        streams = list(self.slices.streams(columns, self.unshown))
        for number, (partition, path, stream) in enumerate(streams, 1):
            self._write(folder / f"files-{number}.parquet", kept, stream(), f"{partition}/{_file_id(path)}")
            progress("files for readers", number, len(streams))
        pq.write_table(kept.empty_table(), folder / "files-none.parquet")
        if HUDI_RS in readers:
            read = self._by_hudi_rs(folder, kept, columns)
            self._compare(folder, kept, HUDI_RS, read)
        for metadata in (True, False) if SPARK in readers else ():
            name = f"Spark {'with' if metadata else 'without'} the metadata table"
            self._by_spark(folder, kept, columns, metadata, name)
            self._compare(folder, kept, name, None)

    def _write(self, file: Path, kept: pa.Schema, batches: Iterable[pa.RecordBatch], group: str) -> None:
        with pq.ParquetWriter(file, kept, compression="lz4") as writer:
            for batch in batches:
                names = batch.schema.names
                arrays = [
                    batch.column(part.name).cast(part.type) if part.name in names else pa.nulls(len(batch), part.type)
                    for part in list(kept)[:-1]
                ]
                groups = pa.repeat(pa.scalar(group), len(batch))
                if not group:
                    ids = pc.list_element(pc.split_pattern(batch.column(FILE_NAME).cast(pa.string()), "_"), 0)
                    groups = pc.binary_join_element_wise(batch.column(PARTITION).cast(pa.string()), ids, "/")
                writer.write_batch(pa.RecordBatch.from_arrays([*arrays, groups], schema=kept))

    def _by_hudi_rs(self, folder: Path, kept: pa.Schema, columns: Sequence[str]) -> list[str]:
        """Writes the rows that hudi-rs returns. Returns the file groups that it can read."""
        state = self.slices.state
        if isinstance(state.table, MirroredTable) and not state.refusal:
            raise CannotAudit(f"{state.files.base_path}: hudi-rs does not read this store")
        reader: Any = state.table.create_file_group_reader_with_options(HudiReadOptions())
        options = HudiReadOptions(projection=list(columns)).with_batch_size(BATCH_ROWS)
        shown: list[str] = []
        for number, piece in enumerate(state.slices):
            group = f"{piece.partition_path}/{piece.file_id}"
            if reason := state.refusal or misread_by_hudi_rs(piece) or self._left_out_logs(piece):
                self._left_out[reason] += 1
                continue
            try:
                self._write(
                    folder / f"hudi-rs-{number}.parquet", kept, reader.read_file_slice_stream(piece, options), group
                )
                shown.append(group)
            except Exception as error:
                if not raised_by_hudi(error):
                    raise
                self._left_out[str(error)[:200]] += 1
        alone = {group for group, logs in self.slices.files.logs.items() if logs} - set(self.slices.files.live)
        known = {(piece.partition_path, piece.file_id) for piece in state.slices}
        if unseen := alone - known:
            self._left_out["they are log files alone"] += len(unseen)
        for reason, count in sorted(self._left_out.items()):
            self.findings.add(FindingKind.BY_SPARK, f"hudi-rs does not read {count:,} file groups: {reason}")
        pq.write_table(kept.empty_table(), folder / "hudi-rs-none.parquet")
        return shown

    def _left_out_logs(self, piece: HudiFileSlice) -> str:
        """Returns why hudi-rs lists too few log files of a slice; empty if it lists all that it can know."""
        logs = self.slices.files.logs.get((piece.partition_path, piece.file_id), ())
        boundary, listed = self.slices.state.timeline.boundary or "", piece.log_files_relative_paths()
        is_left_out = any(log.commit.instant < boundary and log.file.path not in listed for log in logs)
        return "a commit of their log files is archived, where it does not look" if is_left_out else ""

    def _by_spark(self, folder: Path, kept: pa.Schema, columns: Sequence[str], metadata: bool, name: str) -> None:
        rows = folder / f"spark-{metadata}"
        if self.slices.spark is None:
            raise CannotAudit("there is no Spark to read the table with")
        try:
            self.slices.spark.write(rows, metadata)
        except ReaderFailed as error:
            raise CannotAudit(f"Spark cannot read the table: {error}") from error
        found = pds.dataset(rows, format="parquet")
        names = [name for name in (*columns, FILE_NAME) if name in found.schema.names]
        batches = found.to_batches(columns=names, batch_size=BATCH_ROWS)
        self._write(folder / f"{name}-0.parquet", kept, batches, "")

    def _compare(self, folder: Path, kept: pa.Schema, reader: str, groups: Sequence[str] | None) -> None:
        """Reports rows that a reader does not return as the files have them; only those of `groups` are compared."""
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": MEMORY,
            "preserve_insertion_order": False,
            "threads": 2,
        }
        file = folder / f"{reader}.duckdb"
        with closing(duckdb.connect(str(file), config=settings)) as connection:
            hashed = ", ".join(part for each in list(kept)[:-1] for part in _hashed(each))
            place = [name for name in _PLACE if name in kept.names]
            names = ", ".join((*(_quoted(name) for name in place), _GROUP))
            connection.register("compared", pa.table({_GROUP: pa.array(groups or [], pa.string())}))
            only = "" if groups is None else f"SEMI JOIN compared USING ({_GROUP})"
            selected = f"SELECT {names}, hash({hashed}) AS h"
            sides = [
                f"{selected}, {sign} AS n FROM read_parquet('{folder}/{prefix}-*.parquet') {only}"
                for prefix, sign in (("files", 1), (reader, -1))
            ]
            connection.execute(f"CREATE TABLE sides AS {' UNION ALL '.join(sides)}")
            row = ", ".join(_quoted(name) for name in place)
            connection.execute(
                f"""
                CREATE TABLE differing AS SELECT {row}, min({_GROUP}) AS {_GROUP},
                    sum(n) FILTER (n > 0) AS files, -sum(n) FILTER (n < 0) AS others
                FROM (SELECT {row}, h, min({_GROUP}) AS {_GROUP}, sum(n) AS n FROM sides GROUP BY {row}, h
                    HAVING sum(n) <> 0)
                GROUP BY {row}
                """
            )
            [(rows,)] = connection.execute("SELECT count(*) FROM sides WHERE n > 0").fetchall()
            self._report(connection, reader, place, rows)

    def _report(self, connection: duckdb.DuckDBPyConnection, reader: str, place: Sequence[str], rows: int) -> None:
        query = f"SELECT {_GROUP}, count(*) FROM differing GROUP BY ALL ORDER BY ALL"
        differing = connection.execute(query).fetchall()
        if not differing:
            self.findings.add(FindingKind.READ, f"{reader} returns {rows:,} rows as the files have them")
        row = ", ".join(_quoted(name) for name in place)
        for group, count in differing:
            first = f"SELECT files, others, {row} FROM differing WHERE {_GROUP} = ? ORDER BY ALL LIMIT {_SHOWN}"
            for files, others, *values in connection.execute(first, [group]).fetchall():
                text = ", ".join(f"{name}={value!r}" for name, value in zip(place, values, strict=True) if value)
                self.findings.add(
                    FindingKind.READERS,
                    f"{reader}, file group {group.lstrip('/')}: {_difference(files or 0, others or 0)} ({text});"
                    f" {count:,} of its rows differ",
                )


def _difference(files: int, others: int) -> str:
    if files and others:
        return "a row has other cells than in the files"
    return "a row of the files is not returned" if files else "a row is returned that the files do not have"


def misread_by_hudi_rs(piece: HudiFileSlice) -> str:
    """Returns why hudi-rs 0.5 returns other rows than those of a slice, where it is known to; else an empty text."""
    base = piece.base_file_name or ""
    logs = [name.rpartition("/")[2].split("_")[1][:17] for name in piece.log_files_relative_paths()]
    if base and any(instant < base.rpartition("_")[2][:17] for instant in logs):
        return "their log files began before their base files, and it would read those alone"
    return ""


def _file_id(path: str) -> str:
    return path.rpartition("/")[2].lstrip(".").split("_")[0]


def _hashed(column: pa.Field) -> Iterator[str]:
    """Yields the expressions whose values are those of a column: to DuckDB some nested values have one hash."""
    cell = _quoted(column.name)
    if column.type.num_fields:
        yield f"CAST({cell} AS VARCHAR)"
        return
    yield cell
    if pa.types.is_floating(column.type):
        yield f"({cell} = 0 AND signbit({cell}))"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
