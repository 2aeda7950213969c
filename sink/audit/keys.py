"""Reads the record keys of an upsert table, and reports keys that have several rows: in one table partition, or in the
whole table where a key is one row of it.

Guarantee: every row of the streams was read, or its file is in a finding; each key that is there twice is counted.
Memory is bounded: one batch at a time, and DuckDB spills to its file. Rows that a writer inserted without looking keys
up may repeat keys rightly: then repeated keys are a note.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa

from sink.audit.report import COUNTED_REPAIRS, AuditFindings, FindingKind
from sink.audit.rows import MEMORY, PROVENANCE, Stream
from sink.audit.timeline import MOVING_OPERATIONS, Commit
from sink.storage.hudi_rs import raised_by_hudi

RECORD_KEY = "_hoodie_record_key"
_SHOWN = 5
_KINDS = ("VARCHAR", "INTEGER", "BIGINT")


def check_keys(
    streams: Iterable[tuple[str, str, Stream]],
    broken: Collection[str],
    commits: Sequence[Commit],
    scratch: Path,
    findings: AuditFindings,
    global_keys: bool,
) -> int:
    """Returns the number of rows. `streams`: table partition and file of each stream of record keys. `broken` files
    have a finding already. With `global_keys` a key has one row in the whole table, without in each of its partitions.
    """
    with closing(duckdb.connect(str(scratch / "keys.duckdb"), config={"memory_limit": MEMORY})) as connection:
        offsets = ", ".join(f"{name} {kind}" for name, kind in zip(PROVENANCE, _KINDS, strict=True))
        connection.execute(f"CREATE TABLE keys (partition VARCHAR, file VARCHAR, key VARCHAR, {offsets})")
        for partition, path, stream in streams:
            try:
                for batch in stream():
                    present = [name for name in PROVENANCE if name in batch.schema.names]
                    columns = {"key": batch.column(RECORD_KEY), **{name: batch.column(name) for name in present}}
                    connection.register("batch", pa.table(columns))
                    placed = ", ".join(name if name in present else "NULL" for name in PROVENANCE)
                    values = [partition, path]
                    connection.execute(
                        f"INSERT INTO keys SELECT ?, ?, CAST(key AS VARCHAR), {placed} FROM batch", values
                    )
                    connection.unregister("batch")
            except Exception as error:
                if not raised_by_hudi(error):
                    raise
                if path not in broken:
                    findings.add(FindingKind.FILE_UNREADABLE, f"{path}: {str(error)[:300]}")
        _report_repeated(connection, commits, findings, "key" if global_keys else "key, partition")
        [(rows,)] = connection.execute("SELECT count(*) FROM keys").fetchall()
    return int(rows)


def _report_repeated(
    connection: duckdb.DuckDBPyConnection, commits: Sequence[Commit], findings: AuditFindings, unique: str
) -> None:
    """`unique` are the columns that tell rows apart."""
    repeated = f"FROM keys GROUP BY {unique} HAVING count(*) > 1"
    [(total,)] = connection.execute(f"SELECT count(*) FROM (SELECT 1 {repeated})").fetchall()
    if not total:
        return
    blind = [commit for commit in commits if _is_blind(commit)]
    if blind:
        texts = ", ".join(map(str, blind[:_SHOWN]))
        sentence = f"{total:,} record keys have several rows; these commits inserted rows and looked up no key: {texts}"
        findings.add(FindingKind.OTHERS, sentence)
        return
    lists = ("list_sort(list(DISTINCT partition))", "list_sort(list(DISTINCT file))")
    query = f"SELECT key, count(*), {', '.join(lists)} {repeated} ORDER BY ALL LIMIT {_SHOWN}"
    for key, rows, partitions, files in connection.execute(query).fetchall():
        names = ", ".join(partition or "(root)" for partition in partitions[:4])
        location = f"table partition{'s' if len(partitions) > 1 else ''} {names}"
        findings.add(FindingKind.DUPLICATE, f"record key {key!r} has {rows} rows in {location}: {', '.join(files[:4])}")
    of_repeated = f"SEMI JOIN (SELECT {unique} {repeated}) USING ({unique}) WHERE {PROVENANCE[2]} IS NOT NULL"
    for topic, source_partition, offset in connection.execute(
        f"SELECT {', '.join(PROVENANCE)} FROM keys {of_repeated} ORDER BY ALL LIMIT {COUNTED_REPAIRS}"
    ).fetchall():
        findings.repair(topic, source_partition, offset, offset + 1)
    if total > _SHOWN:
        findings.add(FindingKind.DUPLICATE, f"and {total - _SHOWN:,} more record keys")


def _is_blind(commit: Commit) -> bool:
    return (
        commit.inserted > 0 and not commit.operation.startswith("UPSERT") and commit.operation not in MOVING_OPERATIONS
    )
