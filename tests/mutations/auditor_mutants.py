"""Named ways to break the auditor. A decoder, fold or place that is wrong must find fault with a healthy table; a
comparison that sees less must lose a cell of the table of mutations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from sink.audit import audit, beside_rows, chain, columns, digests, files
from sink.audit.checkpoints import LogPartition
from sink.audit.content import bad_rows, bloom, cells, changes, indexes, places, records
from sink.audit.content.expected import KEY, PATH
from sink.audit.decode import json_values
from sink.audit.report import DigestCount, FindingKind
from tests.mutations.cells import Cell, place
from tests.mutations.edit import Edited, rows_of, with_cell

_ONE = np.uint64(1)
_NO_ERRORS: tuple[Counter[LogPartition], int] = (Counter(), 0)
Patch = Callable[[Any, str, Any], None]


@dataclass(frozen=True)
class Wrong:
    """A mutant that disagrees with a healthy table."""

    name: str
    table: str
    apply: Callable[[Patch], None]


@dataclass(frozen=True)
class Blind:
    """A mutant that no longer finds a cell of the table of mutations: by its name, or one of its own."""

    name: str
    cell: str | Cell
    apply: Callable[[Patch], None]


def _after(owner: Any, name: str, change: Callable[..., Any]) -> Callable[[Patch], None]:
    """Changes what a function returns. `change` gets it, and what the function was called with."""
    original = getattr(owner, name)

    def changed(*arguments: Any, **named: Any) -> Any:
        return change(original(*arguments, **named), *arguments)

    return lambda patch: patch(owner, name, changed)


def _plain(kind: str, change: Callable[[Any], Any]) -> Callable[[Patch], None]:
    original = json_values._PLAIN[kind]
    return lambda patch: patch(json_values, "_PLAIN", {**json_values._PLAIN, kind: lambda v: change(original(v))})


def _without_fraction(number: Decimal, *_: Any) -> Decimal:
    return number.to_integral_value().quantize(number)


def _unordered(patch: Patch) -> None:
    original = cells.fold

    def fold(connection: Any, ordering: Any) -> None:
        original(connection, changes.Ordering((), ordering.is_global))

    patch(cells, "fold", fold)


def _first_counts(patch: Patch) -> None:
    original = cells.number_commits

    def number_commits(connection: Any, positions: Mapping[int, int]) -> None:
        original(connection, {number: -at for number, at in positions.items()})

    patch(cells, "number_commits", number_commits)


def _deletes_forgotten(patch: Patch) -> None:
    original = changes.ChangeMaker.change

    def without_deletes(maker: Any, *arguments: Any) -> Any:
        found = original(maker, *arguments)
        return None if found is not None and found.deletes else found

    patch(changes.ChangeMaker, "change", without_deletes)


WRONG = (
    Wrong("a decimal in JSON loses its fraction", "appends", _after(json_values, "decimal_value", _without_fraction)),
    Wrong("a double in JSON is read as a float", "appends", _plain("double", lambda value: float(np.float32(value)))),
    Wrong("a text in JSON in capitals", "appends", _plain("string", str.upper)),
    Wrong(
        "a time in JSON loses its microseconds",
        "appends",
        _after(json_values, "moment_of_text", lambda moment, _: moment.replace(microsecond=0)),
    ),
    Wrong(
        "an element that is null is left out",
        "appends",
        _after(json_values, "_array", lambda found, *_: [value for value in found if value is not None]),
    ),
    Wrong("a row without its headers", "appends", _after(records, "_entries", lambda *_: None)),
    Wrong("a record without its timestamp", "appends", _after(records, "_moment", lambda *_: None)),
    Wrong("a table partition without its name", "appends", _after(places.Places, "path", lambda path, *_: path[4:])),
    Wrong("a record key of another form", "appends", _after(places.Places, "key", lambda key, *_: f"{key}.")),
    Wrong(
        "a decimal of another scale in column statistics",
        "appends",
        _after(indexes, "_stored", lambda value, *_: value * 10 if isinstance(value, Decimal) else value),
    ),
    Wrong("another hash of a Bloom filter", "copied", _after(bloom, "murmur", lambda value, *_: value * 3)),
    Wrong("a digest of one more", "appends", _after(digests, "_record_digests", lambda found, *_: found + _ONE)),
    Wrong("a fold that ignores ordering values", "copied", _unordered),
    Wrong("a fold by which the first transaction counts", "merged", _first_counts),
    Wrong("a fold that forgets deletes", "merged", _deletes_forgotten),
    Wrong("a fold that forgets deletes with ordering values", "copied", _deletes_forgotten),
)


class _Connection:
    """DuckDB's connection, which gets other texts."""

    def __init__(self, connection: Any, old: str, new: str) -> None:
        self._connection, self._old, self._new = connection, old, new

    def execute(self, query: str, *arguments: Any) -> Any:
        return self._connection.execute(query.replace(self._old, self._new), *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def _query(old: str, new: str) -> Callable[[Patch], None]:
    original = duckdb.connect

    class Module:
        @staticmethod
        def connect(*arguments: Any, **named: Any) -> Any:
            return _Connection(original(*arguments, **named), old, new)

    return lambda patch: patch(cells, "duckdb", Module)


def _nan_equals_all(patch: Patch) -> None:
    original = cells.TableRows._normal

    def normal(rows: Any, *arguments: Any) -> pa.RecordBatch:
        batch = original(rows, *arguments)
        number = batch.schema.get_field_index("price")
        values = [None if value is None or math.isnan(value) else value for value in batch.column(number).to_pylist()]
        return batch.set_column(number, batch.schema.field(number), pa.array(values, pa.float64()))

    patch(cells.TableRows, "_normal", normal)
    _query("IS DISTINCT FROM", "<>")(patch)


def _compared_without(*left_out: str) -> Callable[[Patch], None]:
    names = property(lambda own: [name for name in (KEY, PATH, *own.target.columns.names) if name not in left_out])
    return lambda patch: patch(cells.Comparison, "compared", names)


def _nan(edited: Edited) -> str:
    path = max(edited.files(), key=lambda path: path.name.rpartition("_")[2])
    row = rows_of(path).to_pylist()[0]
    edited.change_rows(path, lambda rows: with_cell(rows, 0, "price", math.nan))
    return f"{place(row)} column price: the table has 'nan'"


NAN = Cell("cell", "NaN", "appends", FindingKind.CELL, _nan)


def _nothing(owner: Any, name: str, answer: Any = None) -> Callable[[Patch], None]:
    return lambda patch: patch(owner, name, lambda *_, **__: answer)


BLIND = (
    Blind("a comparison that ignores nulls", "cell missing", _query("IS DISTINCT FROM", "<>")),
    Blind("a comparison that skips a column", "cell altered", _compared_without("price")),
    Blind("a comparison to which a NaN equals all", NAN, _nan_equals_all),
    Blind("a comparison without partition paths", "partition path altered", _compared_without(PATH)),
    Blind("a comparison that misses no row", "row missing", _nothing(cells.Comparison, "_absent", 0)),
    Blind(
        "a comparison that lets rows of other records pass",
        "delete block missing",
        _query("SEMI JOIN known", "ANTI JOIN known"),
    ),
    Blind("digests that are not compared", "digest altered", _nothing(digests.LogDigests, "compare", DigestCount())),
    Blind("footers without Bloom filters", "footer stale", _nothing(indexes, "missing_keys", [])),
    Blind("ranges that hold whatever they say", "statistics altered", _nothing(indexes.Extent, "within", True)),
    Blind("a metadata table that is not read", "metadata table altered", _nothing(beside_rows, "check_metadata_table")),
    Blind("columns that no rewrite takes back", "column stale", _nothing(columns, "_types", {})),
    Blind(
        "an errors table whose values do not count", "errors row altered", _nothing(bad_rows.ErrorsTableRows, "receive")
    ),
    Blind(
        "an errors table whose rows do not count",
        "errors row missing",
        _nothing(audit, "add_errors", _NO_ERRORS),
    ),
    Blind("a chain without ends", "checkpoint altered", _nothing(chain, "_check_partition", ())),
    Blind("files that nobody looks for", "file missing", _nothing(files, "_check_file")),
    Blind("a view that is not compared", "metadata table stale", _nothing(audit, "check_view", ())),
)
