"""Mutations of log blocks and delete blocks of a merge-on-read table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sink.audit.report import FindingKind
from tests.mutations.cells import cell, place
from tests.mutations.edit import DELETES, ROWS, Edited, LogBlock, log_blocks


def _blocks(path: Path) -> list[LogBlock]:
    return list(log_blocks(path.read_bytes()))


def _group(path: Path) -> str:
    return path.name.split("_")[0]


def _newest(edited: Edited, kind: int) -> tuple[Path, LogBlock]:
    """The newest log file with a block of this type, of a file group that has an earlier one."""
    found = [(path, block) for path in edited.logs() for block in _blocks(path) if block.kind == kind]
    several = [entry for entry in found if sum(_group(path) == _group(entry[0]) for path, _ in found) > 1]
    return several[-1]


def _before(edited: Edited, path: Path, kind: int) -> LogBlock:
    """The last block of this type of the same file group before this file."""
    earlier = [other for other in edited.logs() if _group(other) == _group(path) and other.name < path.name]
    return next(block for other in reversed(earlier) for block in _blocks(other) if block.kind == kind)


def _without(blocks: list[LogBlock], kind: int) -> list[LogBlock]:
    return [block for block in blocks if block.kind != kind]


@cell("log block", "missing", "merged", FindingKind.ABSENT)
def log_block_missing(edited: Edited) -> str:
    path, block = _newest(edited, ROWS)
    edited.change_log(path, lambda blocks: _without(blocks, ROWS) or [replace(block, content=_empty(block))])
    return place(block.records()[0])


def _empty(block: LogBlock) -> bytes:
    return block.with_records([]).content


@cell("log block", "extra", "merged", FindingKind.DUPLICATE)
def log_block_extra(edited: Edited) -> str:
    """A block of another file group follows, whose keys have rows there."""
    path, _ = _newest(edited, ROWS)
    found = [other for other in edited.logs() if _group(other) != _group(path) and _instant(other) == _instant(path)]
    [extra] = [block for block in _blocks(found[0]) if block.kind == ROWS]
    edited.change_log(path, lambda blocks: [*blocks, extra])
    return f"record key '{extra.records()[0]['_hoodie_record_key']}' has 2 rows"


def _instant(path: Path) -> str:
    return path.name.split("_")[1]


def _swap(edited: Edited, path: Path, block: LogBlock, by: LogBlock) -> None:
    edited.change_log(path, lambda blocks: [by if other == block else other for other in blocks])


@cell("log block", "altered", "merged", FindingKind.CELL)
def log_block_altered(edited: Edited) -> str:
    path, block = _newest(edited, ROWS)
    first, *others = block.records()
    altered = block.with_records([{**first, "price": -1.5}, *others])
    _swap(edited, path, block, altered)
    return f"{place(first)} column price: the table has '-1.5'"


@cell("log block", "stale", "merged", FindingKind.ABSENT)
def log_block_stale(edited: Edited) -> str:
    path, block = _newest(edited, ROWS)
    stale = replace(block, content=_before(edited, path, ROWS).content)
    _swap(edited, path, block, stale)
    return place(block.records()[0])


def _deleted(block: LogBlock) -> bytes:
    """The key of a block with one delete: behind version, length, two counts and the branch of a union."""
    length = block.content[10] // 2
    return block.content[11 : 11 + length]


@cell("delete block", "missing", "merged", FindingKind.STALE)
def delete_block_missing(edited: Edited) -> str:
    path, block = _newest(edited, DELETES)
    edited.change_log(path, lambda blocks: _without(blocks, DELETES))
    return f"the row of key '{_deleted(block).decode()}'"


@cell("delete block", "extra", "merged", FindingKind.ABSENT)
def delete_block_extra(edited: Edited) -> str:
    path, block = _newest(edited, DELETES)
    [rows] = [other for other in _blocks(path) if other.kind == ROWS]
    row = next(row for row in rows.records() if len(row["_hoodie_record_key"]) == len(_deleted(block)))
    extra = replace(block, content=block.content.replace(_deleted(block), row["_hoodie_record_key"].encode()))
    edited.change_log(path, lambda blocks: [*blocks, extra])
    return place(row)


@cell("delete block", "altered", "merged", FindingKind.STALE)
def delete_block_altered(edited: Edited) -> str:
    path, block = _newest(edited, DELETES)
    key = _deleted(block)
    altered = replace(block, content=block.content.replace(key, b"x" * len(key)))
    _swap(edited, path, block, altered)
    return f"the row of key '{key.decode()}'"


@cell("delete block", "stale", "merged", FindingKind.STALE)
def delete_block_stale(edited: Edited) -> str:
    path, block = _newest(edited, DELETES)
    stale = replace(block, content=_before(edited, path, DELETES).content)
    _swap(edited, path, block, stale)
    return f"the row of key '{_deleted(block).decode()}'"
