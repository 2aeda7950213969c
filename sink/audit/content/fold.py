"""Folds the changes of each key to the one whose row the table has, as `docs/how-to/upserts.md` says.

Of a transaction's changes of a key the one with the greatest ordering values counts, among equal ones the last in the
log; a later transaction's counts unless its values are smaller than those of the row. A delete is forgotten with its
row. Memory: what is read goes through in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import duckdb
import pyarrow as pa

from sink.audit.content.changes import Ordering
from sink.audit.content.expected import DELETES, KEY, PATH

_PIECE = 100_000
_COORDINATES = ("_sink_source", "_sink_offset", "_sink_commit")


def number_commits(connection: duckdb.DuckDBPyConnection, positions: Mapping[int, int]) -> None:
    """Makes the table `positions`, the order of the commits, by number."""
    numbered = pa.table(
        {"_sink_number": pa.array(positions, pa.int32()), "_sink_position": pa.array(positions.values(), pa.int32())}
    )
    connection.register("numbered", numbered)
    # Not a temporary table, which the cursor below would not see.
    connection.execute("CREATE TABLE positions AS SELECT * FROM numbered")
    connection.unregister("numbered")


def name_first_commits(connection: duckdb.DuckDBPyConnection, ordering: Ordering | None) -> None:
    """Makes the view `landed`, from the view `stored` and the table `positions`. `ordering` is None where rows are not
    changed, or do not name their commits.

    Where a key's change comes late, by its ordering values, Hudi may write the row again in the name of that change's
    commit. Such a row counts as one of the earlier commit that landed its record.
    """
    if ordering is None or not ordering.fields:
        connection.execute("CREATE VIEW landed AS FROM stored")
        return
    late, own = (", ".join(f'{side}."{name}"' for name in ordering.fields) for side in ("late", "held"))
    same = " AND ".join(f"first.{name} = held.{name}" for name in _COORDINATES[:2])
    connection.execute(
        f"""
        CREATE TEMP TABLE again AS
        SELECT {", ".join(f"held.{name}" for name in _COORDINATES)}, max(first._sink_commit) AS first FROM stored held
        JOIN changes first ON {same}
        JOIN positions earlier ON earlier._sink_number = first._sink_commit
        JOIN positions later ON later._sink_number = held._sink_commit
            AND later._sink_position > earlier._sink_position
        SEMI JOIN changes late ON late._sink_key = held._sink_key AND late._sink_commit = held._sink_commit
            AND row({late}) < row({own})
        GROUP BY ALL;
        CREATE VIEW landed AS SELECT stored.* REPLACE (coalesce(first, _sink_commit) AS _sink_commit)
        FROM stored LEFT JOIN again USING ({", ".join(_COORDINATES)})
        """
    )


def fold(connection: duckdb.DuckDBPyConnection, ordering: Ordering) -> None:
    """Makes the table `winners` of coordinates, from the view `changes` and the table `positions`."""
    place = "''" if ordering.is_global else PATH
    fields = [f'"{name}"' for name in ordering.fields]
    newest = ", ".join(f"{field} DESC" for field in (*fields, "_sink_source", "_sink_offset"))
    kept = ", ".join([f"{place} AS _sink_place", KEY, "_sink_position", *_COORDINATES, DELETES, *fields])
    last = f"""
        SELECT {kept} FROM changes JOIN positions ON _sink_number = _sink_commit
        QUALIFY row_number() OVER (PARTITION BY _sink_place, _sink_key, _sink_position ORDER BY {newest}) = 1
    """
    if ordering.fields:
        connection.execute("CREATE TABLE winners (_sink_source INTEGER, _sink_offset BIGINT, _sink_commit INTEGER)")
        rows = connection.cursor().execute(f"{last} ORDER BY _sink_place, _sink_key, _sink_position")
        winners = _winners(rows)
        while piece := list(islice(winners, _PIECE)):
            columns = dict(zip(_COORDINATES, map(pa.array, zip(*piece, strict=True)), strict=True))
            connection.register("folded", pa.table(columns))
            connection.execute("INSERT INTO winners FROM folded")
            connection.unregister("folded")
    else:
        connection.execute(
            f"""
            CREATE TABLE winners AS SELECT {", ".join(_COORDINATES)} FROM (FROM ({last})
            QUALIFY row_number() OVER (PARTITION BY _sink_place, _sink_key ORDER BY _sink_position DESC) = 1)
            WHERE NOT {DELETES}
            """
        )


def _winners(rows: duckdb.DuckDBPyConnection) -> Iterator[Sequence[int]]:
    """Yields the coordinates of the row of each key that has one. The rows come by key, and by commit."""
    known: tuple[str, str] | None = None
    coordinates: Sequence[int] | None = None
    order: tuple[object, ...] = ()
    while piece := rows.fetchmany(_PIECE):
        for place, key, _, source, offset, commit, deletes, *values in piece:
            if (place, key) != known:
                if coordinates is not None:
                    yield coordinates
                known, coordinates = (place, key), None
            if coordinates is not None and tuple(values) < order:
                continue
            coordinates, order = (None, ()) if deletes else ((source, offset, commit), tuple(values))
    if coordinates is not None:
        yield coordinates
