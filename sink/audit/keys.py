"""Reads the record keys of an upsert table, and reports keys that have several rows: in one table partition, or in the
whole table where a key is one row of it.

Guarantee: every row of the streams was read, or its file is in a finding; each key that is there twice is counted, and
each commit that more rows name than it has written. Memory is bounded: one batch at a time, and DuckDB spills to its
file. A commit that looks up no key may repeat keys rightly, and later changes of such a key change each of its rows: a
key with several rows is a note where so many inserts explain it.
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

RECORD_KEY, COMMIT_TIME = "_hoodie_record_key", "_hoodie_commit_time"
HUDIS = (RECORD_KEY, COMMIT_TIME)
"""The columns of Hudi that are read."""
_FILE_ID = "string_split(ltrim(string_split(file, '/')[-1], '.'), '_')[1]"
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
    """Returns the number of rows. `streams`: table partition and file of each stream of `HUDIS` and maybe `PROVENANCE`.
    `broken` files have a finding already. With `global_keys` a key has one row in the whole table, without in each of
    its partitions."""
    with closing(duckdb.connect(str(scratch / "keys.duckdb"), config={"memory_limit": MEMORY})) as connection:
        offsets = ", ".join(f"{name} {kind}" for name, kind in zip(PROVENANCE, _KINDS, strict=True))
        connection.execute(
            f"CREATE TABLE keys (partition VARCHAR, file VARCHAR, key VARCHAR, instant VARCHAR, {offsets})"
        )
        for partition, path, stream in streams:
            try:
                for batch in stream():
                    present = [name for name in PROVENANCE if name in batch.schema.names]
                    connection.register("batch", pa.table({name: batch.column(name) for name in (*HUDIS, *present)}))
                    placed = ", ".join(name if name in present else "NULL" for name in PROVENANCE)
                    own = ", ".join(f"CAST({name} AS VARCHAR)" for name in HUDIS)
                    connection.execute(f"INSERT INTO keys SELECT ?, ?, {own}, {placed} FROM batch", [partition, path])
                    connection.unregister("batch")
            except Exception as error:
                if not raised_by_hudi(error):
                    raise
                if path not in broken:
                    findings.add(FindingKind.FILE_UNREADABLE, f"{path}: {str(error)[:300]}")
        _report_written(connection, commits, findings)
        _report_repeated(connection, commits, findings, "key" if global_keys else "key, partition")
        [(rows,)] = connection.execute("SELECT count(*) FROM keys").fetchall()
    return int(rows)


def _report_written(connection: duckdb.DuckDBPyConnection, commits: Sequence[Commit], findings: AuditFindings) -> None:
    rows = dict(connection.execute("SELECT instant, count(*) FROM keys GROUP BY instant").fetchall())
    for commit in commits:
        if rows.get(commit.instant, 0) > commit.written:
            findings.add(
                FindingKind.SURPLUS,
                f"commit {commit} inserted or changed {commit.written:,} rows, and {rows[commit.instant]:,} rows of the"
                " table name it",
            )


def _report_repeated(
    connection: duckdb.DuckDBPyConnection, commits: Sequence[Commit], findings: AuditFindings, unique: str
) -> None:
    """`unique` are the columns that tell rows apart."""
    _find_repeated(connection, commits, unique)
    query = f"SELECT count(DISTINCT row({unique})), count(*) FROM several"
    [(total, rows)] = connection.execute(query).fetchall()
    if not total:
        return
    blind = [commit for commit in commits if _is_blind(commit)]
    texts, inserted = ", ".join(map(str, blind[:_SHOWN])), sum(commit.inserted for commit in blind)
    are_too_many = rows - total > inserted
    wrong = "several" if are_too_many else f"several SEMI JOIN unexplained USING ({unique})"
    [(listed,)] = connection.execute(f"SELECT count(DISTINCT row({unique})) FROM {wrong}").fetchall()
    if are_too_many and blind:
        sentence = f"{total:,} record keys have {rows - total:,} rows too many; {inserted:,} were inserted by {texts}"
        findings.add(FindingKind.DUPLICATE, sentence)
    elif total > listed:
        sentence = f"{total - listed:,} record keys have several rows; these commits inserted rows and looked up no key"
        findings.add(FindingKind.OTHERS, f"{sentence}: {texts}")
    lists = ("list_sort(list(DISTINCT partition))", "list_sort(list(DISTINCT file))")
    query = f"SELECT key, count(*), {', '.join(lists)} FROM {wrong} GROUP BY {unique} ORDER BY ALL LIMIT {_SHOWN}"
    for key, number, partitions, files in connection.execute(query).fetchall():
        names = ", ".join(partition or "(root)" for partition in partitions[:4])
        location = f"table partition{'s' if len(partitions) > 1 else ''} {names}"
        sentence = f"record key {key!r} has {number} rows in {location}: {', '.join(files[:4])}"
        findings.add(FindingKind.DUPLICATE, sentence)
    repairable = f"FROM {wrong} WHERE {PROVENANCE[2]} IS NOT NULL ORDER BY ALL LIMIT {COUNTED_REPAIRS}"
    for topic, source_partition, offset in connection.execute(
        f"SELECT {', '.join(PROVENANCE)} {repairable}"
    ).fetchall():
        findings.repair(topic, source_partition, offset, offset + 1)
    if listed > _SHOWN:
        findings.add(FindingKind.DUPLICATE, f"and {listed - _SHOWN:,} more record keys")


def _find_repeated(connection: duckdb.DuckDBPyConnection, commits: Sequence[Commit], unique: str) -> None:
    """Makes the tables `several`, of the rows of keys that have several, and `unexplained`, of those of these keys that
    no insert explains: with two rows of before the first blind commit, or with two of one record in a file group into
    which a sink's commit wrote it. A change of a key that has rows in several file groups is written once into each.
    """
    connection.execute(
        f"""
        CREATE TEMP TABLE several AS SELECT *, {_FILE_ID} AS file_id FROM keys
        SEMI JOIN (SELECT {unique} FROM keys GROUP BY {unique} HAVING count(*) > 1) USING ({unique})
        """
    )
    named = {instant for (instant,) in connection.execute("SELECT DISTINCT instant FROM several").fetchall()}
    first = next((at for at, commit in enumerate(commits) if _is_blind(commit)), len(commits))
    late = [commit.instant for commit in commits[first:] if commit.instant in named]
    written = [
        (commit.instant, file.partition_path, file.file_id)
        for commit in commits
        if commit.checkpoints and commit.instant in named
        for file in commit.files
    ]
    connection.register("late", pa.table({"instant": pa.array(late, pa.string())}))
    columns = [pa.array([entry[at] for entry in written], pa.string()) for at in range(3)]
    connection.register("written", pa.table(columns, ["instant", "partition", "file_id"]))
    connection.execute(
        f"""
        CREATE TEMP TABLE unexplained AS
        SELECT {unique} FROM several ANTI JOIN late USING (instant) GROUP BY {unique} HAVING count(*) > 1
        UNION SELECT {unique} FROM several SEMI JOIN written USING (instant, partition, file_id)
        WHERE {PROVENANCE[2]} IS NOT NULL GROUP BY {unique}, partition, file_id, instant, {", ".join(PROVENANCE)}
        HAVING count(*) > 1
        """
    )
    connection.unregister("late")
    connection.unregister("written")


def _is_blind(commit: Commit) -> bool:
    """Whether it inserted rows and looked up no key."""
    return (
        commit.inserted > 0 and not commit.operation.startswith("UPSERT") and commit.operation not in MOVING_OPERATIONS
    )
