"""Mutations of rows, cells, columns, files and the rows of the errors table."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa

from sink.audit.report import FindingKind
from tests.mutations.cells import cell, place
from tests.mutations.edit import Edited, rows_of, with_cell


def _first(edited: Edited) -> tuple[Path, dict[str, Any]]:
    """A current base file that the sink wrote, and its first row."""
    path = max(edited.files(), key=lambda path: path.name.rpartition("_")[2])
    return path, rows_of(path).to_pylist()[0]


def _changed(edited: Edited) -> tuple[Path, int, dict[str, Any], dict[str, Any]]:
    """A base file with a row of a key that had another value before: its number, and both."""
    before = {row["id"]: row for path in (edited.directory / "earlier").rglob("*.parquet") for row in _rows(path)}
    for path in edited.files():
        for number, row in enumerate(rows_of(path).to_pylist()):
            earlier = before.get(row["id"])
            if earlier is not None and earlier["price"] != row["price"]:
                return path, number, row, earlier
    raise AssertionError("no row was changed")


def _rows(path: Path) -> list[dict[str, Any]]:
    return [] if ".hoodie" in path.parts else rows_of(path).to_pylist()


@cell("row", "missing", "appends", FindingKind.ABSENT)
def row_missing(edited: Edited) -> str:
    path, row = _first(edited)
    edited.change_rows(path, lambda rows: rows.slice(1))
    return place(row)


@cell("row", "extra", "appends", FindingKind.DUPLICATE)
def row_extra(edited: Edited) -> str:
    path, row = _first(edited)
    edited.change_rows(path, lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]))
    return place(row)


@cell("row", "altered", "appends", FindingKind.OUTSIDE)
def row_altered(edited: Edited) -> str:
    path, row = _first(edited)
    row["_kafka_offset"] += 1000
    edited.change_rows(path, lambda rows: with_cell(rows, 0, "_kafka_offset", row["_kafka_offset"]))
    return place(row)


@cell("row", "stale", "copied", FindingKind.STALE)
def row_stale(edited: Edited) -> str:
    path, number, _, earlier = _changed(edited)

    def stale(rows: pa.Table) -> pa.Table:
        for name in rows.column_names:
            rows = with_cell(rows, number, name, earlier[name])
        return rows

    edited.change_rows(path, stale)
    return f"{place(earlier)} is the row of key"


@cell("cell", "missing", "appends", FindingKind.CELL)
def cell_missing(edited: Edited) -> str:
    path, row = _first(edited)
    edited.change_rows(path, lambda rows: with_cell(rows, 0, "amount", None))
    return f"{place(row)} column amount: the table has null"


@cell("cell", "extra", "appends", FindingKind.CELL)
def cell_extra(edited: Edited) -> str:
    for path in edited.files():
        for number, row in enumerate(rows_of(path).to_pylist()):
            if row["tags"] is None:
                edited.change_rows(path, lambda rows, at=number: with_cell(rows, at, "tags", []))
                return f"{place(row)} column tags: the table has '[]', the log null"
    raise AssertionError("no cell is null")


@cell("cell", "altered", "appends", FindingKind.CELL)
def cell_altered(edited: Edited) -> str:
    path, row = _first(edited)
    edited.change_rows(path, lambda rows: with_cell(rows, 0, "price", math.nextafter(row["price"], math.inf)))
    return f"{place(row)} column price"


@cell("cell", "stale", "copied", FindingKind.CELL)
def cell_stale(edited: Edited) -> str:
    path, number, row, earlier = _changed(edited)
    edited.change_rows(path, lambda rows: with_cell(rows, number, "price", earlier["price"]))
    return f"{place(row)} column price: the table has '{earlier['price']}'"


@cell("column", "missing", "appends", FindingKind.CELL)
def column_missing(edited: Edited) -> str:
    path, row = _first(edited)
    edited.change_rows(path, lambda rows: rows.drop_columns(["amount"]))
    return f"{place(row)} column amount: the table has null"


@cell("column", "extra", "appends", FindingKind.COLUMNS)
def column_extra(edited: Edited) -> str:
    path, _ = _first(edited)
    edited.change_rows(path, lambda rows: rows.append_column("note", pa.array([1] * rows.num_rows)))
    return f"{path.name} of commit"


@cell("column", "altered", "appends", FindingKind.COLUMNS)
def column_altered(edited: Edited) -> str:
    path, _ = _first(edited)

    def as_text(rows: pa.Table) -> pa.Table:
        number = rows.schema.get_field_index("price")
        return rows.set_column(number, "price", rows.column("price").cast(pa.string()))

    edited.change_rows(path, as_text)
    return f"{path.name} of commit"


@cell("column", "stale", "appends", FindingKind.COLUMNS)
def column_stale(edited: Edited) -> str:
    """A rewrite that completes last names the columns of before an evolution."""
    newest = edited.commits()[-1]

    def without_price(document: dict[str, Any]) -> None:
        schema = json.loads(document["extraMetadata"]["schema"])
        schema["fields"] = [field for field in schema["fields"] if field["name"] != "price"]
        document["extraMetadata"] = {"schema": json.dumps(schema)}
        document["operationType"] = "CLUSTER"

    rewrite = newest.with_name(f"{int(newest.name[:17]) + 1}_{int(newest.name[18:35]) + 1}.replacecommit")
    shutil.copy(newest, rewrite)
    edited.change_commit(rewrite, without_price)
    edited.change_commit(rewrite, lambda document: document.update(partitionToWriteStats={}))
    return "column price of commit"


@cell("file", "missing", "appends", FindingKind.FILE_MISSING)
def file_missing(edited: Edited) -> str:
    path, _ = _first(edited)
    path.unlink()
    return path.name


@cell("file", "extra", "appends", FindingKind.FILE_UNNAMED)
def file_extra(edited: Edited) -> str:
    path, _ = _first(edited)
    copy = path.with_name(f"copied-0_{path.name.partition('_')[2]}")
    shutil.copy(path, copy)
    return copy.name


@cell("file", "altered", "appends", FindingKind.FILE_UNREADABLE)
def file_altered(edited: Edited) -> str:
    path, _ = _first(edited)
    content = bytearray(path.read_bytes())
    content[40] ^= 0xFF
    path.write_bytes(content)
    return path.name


@cell("file", "stale", "copied", FindingKind.STALE)
def file_stale(edited: Edited) -> str:
    path, *_ = _changed(edited)
    earlier = [file for file in edited.table.rglob("*.parquet") if file.name.startswith(path.name.split("_")[0])]
    shutil.copy(sorted(earlier, key=lambda file: file.name.rpartition("_")[2])[-2], path)
    edited.resize(path, numWrites=rows_of(path).num_rows)
    return path.name


def _errors_file(edited: Edited) -> Path:
    errors = edited.directory / "table_errors"
    [newest] = [path for path in errors.rglob("*.parquet") if _is_newest(path, errors)]
    return newest


def _is_newest(path: Path, table: Path) -> bool:
    files = [other for other in table.rglob("*.parquet") if ".hoodie" not in other.parts]
    return path == max(files, key=lambda other: other.name.rpartition("_")[2])


@cell("errors row", "missing", "appends", FindingKind.ERRORS_COUNT)
def errors_row_missing(edited: Edited) -> str:
    path = _errors_file(edited)
    instant = rows_of(path).to_pylist()[0]["instant"]
    edited.change_rows(path, lambda rows: rows.slice(1))
    return f"commit {instant}"


@cell("errors row", "extra", "appends", FindingKind.ERRORS_COUNT)
def errors_row_extra(edited: Edited) -> str:
    path = _errors_file(edited)
    instant = rows_of(path).to_pylist()[0]["instant"]
    edited.change_rows(path, lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]))
    return f"commit {instant}"


@cell("errors row", "altered", "appends", FindingKind.ERRORS_ROW)
def errors_row_altered(edited: Edited) -> str:
    path = _errors_file(edited)
    row = rows_of(path).to_pylist()[0]
    edited.change_rows(path, lambda rows: with_cell(rows, 0, "value", row["value"] + b" "))
    return place(row)


@cell("errors row", "stale", "appends", FindingKind.ERRORS_COUNT)
def errors_row_stale(edited: Edited) -> str:
    """A row says that a transaction before found it."""
    path = _errors_file(edited)
    instants = sorted({row["instant"] for row in rows_of(path).to_pylist()})
    at = [row["instant"] for row in rows_of(path).to_pylist()].index(instants[-1])
    edited.change_rows(path, lambda rows: with_cell(rows, at, "instant", instants[0]))
    return f"commit {instants[-1]}"
