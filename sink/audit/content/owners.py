"""Says which rows the commits of a table can have written.

A sink's commit has written rows at offsets of the ranges that it has landed, and no others. Another writer's commit has
written as many rows as it inserted or changed. A commit that moves rows has written none. Pure but for `part`, which
asks DuckDB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa

from sink.audit.checkpoints import LogPartition
from sink.audit.content.repairs import Again
from sink.audit.timeline import Commit

NO_COMMIT, OTHER_WRITERS = -1, -2
"""In the place of a commit's number: where Hudi's own columns are missing, and for commits of other writers, whose own
numbers go down from there."""


@dataclass(frozen=True, slots=True)
class OwnedRange:
    """Offsets `[low, high)` that a commit has landed; `commit` is its number."""

    source: LogPartition
    commit: int
    low: int
    high: int


@dataclass(frozen=True)
class Coordinates:
    """Numbers of partitions, and of commits by their instants. `positions` has the order of the sink's, by number."""

    sources: Mapping[LogPartition, int]
    commits: Mapping[str, int]
    positions: Mapping[int, int]
    again: Again = field(default_factory=dict)
    """Offsets that repairs have landed again, by their instants."""
    owned: Sequence[OwnedRange] = ()
    """The offsets that each commit has landed."""
    most: Mapping[int, int] = field(default_factory=dict)
    """How many rows other writers' commits have inserted or changed, by number."""

    def source(self, number: int) -> LogPartition | None:
        return next((source for source, other in self.sources.items() if other == number), None)

    def instant(self, number: int | None) -> str | None:
        return next((instant for instant, other in self.commits.items() if other == number), None)


def numbers_beside(sink: str, commits: Sequence[Commit]) -> dict[str, int]:
    """Returns numbers of the commits that are not this sink's, by instant."""
    return {
        commit.instant: OTHER_WRITERS - position
        for position, commit in enumerate(commits)
        if sink not in commit.checkpoints
    }


def owned_beside(sink: str, commits: Iterable[Commit], numbers: Mapping[str, int]) -> Iterator[OwnedRange]:
    """Yields what the commits of other sinks have landed."""
    for commit in commits:
        number = numbers.get(commit.instant, NO_COMMIT)
        for name, checkpoint in commit.checkpoints.items():
            if name == sink:
                continue
            for piece in (result.slice for result in checkpoint.results):
                yield OwnedRange(piece.source, number, piece.start, piece.end)
            again = commit.relanded[name].runs if name in commit.relanded else ()
            for run in (*commit.replayed.get(name, ()), *again):
                yield OwnedRange(LogPartition(run.topic, run.partition), number, run.low, run.high)


def part(connection: duckdb.DuckDBPyConnection, coordinates: Coordinates, has_meta: bool) -> dict[int, str]:
    """Parts the table `recordless` into `without_record`, whose rows the commits that they name can have written, and
    `outside`. Rows that another writer inserted or changed get the number of `OTHER_WRITERS`. Returns for
    other writers' commits, by number, what they have written and how many rows name them."""
    ranges = _joined(
        (coordinates.sources[each.source], each.commit if has_meta else NO_COMMIT, each.low, each.high)
        for each in coordinates.owned
    )
    most = coordinates.most if has_meta else {NO_COMMIT: sum(coordinates.most.values())}
    names = ("source", "commit", "low", "high")
    columns = {name: pa.array([each[at] for each in ranges], pa.int64()) for at, name in enumerate(names)}
    connection.register("owned", pa.table(columns))
    is_owned = "_sink_source = source AND _sink_commit = commit AND _sink_offset >= low AND _sink_offset < high"
    connection.execute(
        f"""
        CREATE TEMP TABLE outside AS FROM recordless ANTI JOIN owned ON {is_owned};
        CREATE TEMP TABLE without_record AS FROM recordless SEMI JOIN owned ON {is_owned}
        """
    )
    connection.unregister("owned")
    counted = connection.execute("SELECT _sink_commit, count(*) FROM outside GROUP BY ALL").fetchall()
    found = {commit: rows for commit, rows in counted if commit in most}
    written = [commit for commit, rows in found.items() if rows <= most[commit]]
    if written:
        theirs = f"_sink_commit IN ({', '.join(map(str, written))})"
        connection.execute(
            f"""
            INSERT INTO without_record SELECT * REPLACE ({OTHER_WRITERS} AS _sink_commit) FROM outside WHERE {theirs};
            DELETE FROM outside WHERE {theirs}
            """
        )
    text = "another writer inserted or changed {:,} rows, and there are {:,}"
    return {commit: text.format(most[commit], rows) for commit, rows in found.items()}


def _joined(ranges: Iterable[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Returns the ranges of each partition and commit, those that touch as one: then none overlap."""
    joined: list[tuple[int, int, int, int]] = []
    for source, commit, low, high in sorted(ranges):
        if joined and joined[-1][:2] == (source, commit) and low <= joined[-1][3]:
            joined[-1] = (source, commit, joined[-1][2], max(high, joined[-1][3]))
        else:
            joined.append((source, commit, low, high))
    return joined
