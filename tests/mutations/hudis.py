"""Mutations of what Hudi keeps beside rows: footers, statistics, metadata table and partition paths."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sink.audit.report import FindingKind
from tests.mutations.cells import cell, place
from tests.mutations.edit import Edited, change_hfile, log_blocks, rows_of, with_cell, with_footer, write_rows

_FILTER, _KIND = "org__apache__hudi__bloomfilter", "hoodie_bloom_filter_type_code"
_LOWEST, _HIGHEST = "hoodie_min_record_key", "hoodie_max_record_key"
_PLAIN = {"compression": "none", "use_dictionary": False}


def _newest(edited: Edited, pattern: str = "**/*.parquet") -> Path:
    return max(edited.files(pattern), key=lambda path: (path.name.rpartition("_")[2], path.name))


@cell("footer", "missing", "copied", FindingKind.FOOTER)
def footer_missing(edited: Edited) -> str:
    path = _newest(edited)
    gone = dict.fromkeys((_FILTER, _KIND, _LOWEST, _HIGHEST))
    edited.change_rows(path, lambda rows: with_footer(rows, **gone))
    return f"{path.relative_to(edited.table)} of commit"


@cell("footer", "extra", "copied", FindingKind.FOOTER)
def footer_extra(edited: Edited) -> str:
    """The footer claims record keys that the file does not have."""
    path = _newest(edited)
    edited.change_rows(path, lambda rows: with_footer(rows, **{_HIGHEST: "zz"}))
    return "to 'zz', its rows have"


@cell("footer", "altered", "copied", FindingKind.FOOTER)
def footer_altered(edited: Edited) -> str:
    path = _newest(edited)
    edited.change_rows(path, lambda rows: with_footer(rows, **{_LOWEST: "8"}))
    return "its footer says record keys from '8' to"


@cell("footer", "stale", "copied", FindingKind.FOOTER)
def footer_stale(edited: Edited) -> str:
    """The Bloom filter is that of the file slice before."""
    path = _newest(edited)
    slices = [file for file in edited.table.rglob("*.parquet") if file.name.startswith(path.name.split("_")[0])]
    before = sorted(slices, key=lambda file: file.name.rpartition("_")[2])[-2]
    bloom = pq.ParquetFile(before).metadata.metadata[b"org.apache.hudi.bloomfilter"].decode()
    edited.change_rows(path, lambda rows: with_footer(rows, **{_FILTER: bloom}))
    return "the Bloom filter in its footer lacks"


@cell("statistics", "missing", "appends", FindingKind.STATISTICS)
def statistics_missing(edited: Edited) -> str:
    path = _newest(edited)
    edited.change_rows(path, lambda rows: rows, write_statistics=False)
    return path.name


@cell("statistics", "altered", "appends", FindingKind.STATISTICS)
def statistics_altered(edited: Edited) -> str:
    """The rows of one file and the footer of another, whose ids are smaller: readers skip the rows by their ids."""
    path = _newest(edited)
    rows = rows_of(path)
    small = rows.set_column(rows.schema.get_field_index("id"), "id", pa.array(range(rows.num_rows), pa.int64()))
    other = edited.directory / "other.parquet"
    write_rows(small, other, **_PLAIN)
    edited.change_rows(path, lambda same: same, **_PLAIN)
    content, lying = path.read_bytes(), other.read_bytes()
    length = int.from_bytes(lying[-8:-4], "little") + 8
    assert len(content) == len(lying)
    path.write_bytes(content[:-length] + lying[-length:])
    return f"column id of {path.relative_to(edited.table)}"


def _change_index(edited: Edited, part: str, *changes: tuple[bytes, bytes]) -> None:
    """Replaces bytes in the newest log file of a part of the metadata table."""
    path = [file for file in edited.metadata_files(part) if ".log." in file.name][-1]
    [block] = log_blocks(path.read_bytes())
    content = block.content
    for old, new in changes:
        content = change_hfile(content, old, new)
    assert len(content) == len(block.content)
    path.write_bytes(path.read_bytes().replace(block.content, content))


@cell("statistics", "extra", "appends", FindingKind.STATISTICS)
def statistics_extra(edited: Edited) -> str:
    """The index has ranges of a file that no commit names."""
    name = _newest(edited).name
    _change_index(edited, "column_stats", (name.encode(), b"0000" + name.encode()[4:]))
    return f"of 0000{name[4:]}"


@cell("statistics", "stale", "appends", FindingKind.STATISTICS)
def statistics_stale(edited: Edited) -> str:
    """The index has the ranges of another file."""
    mine, other = sorted(edited.files(), key=lambda path: (path.name.rpartition("_")[2], path.name))[-2:]
    names = [path.name.encode() for path in (mine, other)]
    _change_index(edited, "column_stats", (names[0], b"?" * len(names[0])), (names[1], names[0]))
    _change_index(edited, "column_stats", (b"?" * len(names[0]), names[1]))
    return f"{mine.relative_to(edited.table)}"


@cell("metadata table", "missing", "appends", FindingKind.METADATA_TABLE)
def metadata_table_missing(edited: Edited) -> str:
    shutil.rmtree(edited.table / ".hoodie" / "metadata")
    return "it lists no file"


@cell("metadata table", "extra", "copied", FindingKind.METADATA_TABLE)
def metadata_table_extra(edited: Edited) -> str:
    """It lists a file that is nowhere, in the place of one that is not current."""
    path = edited.metadata_files("files")[-2]
    older = min(edited.table.glob("kind=buy/*.parquet"), key=lambda file: file.name.rpartition("_")[2])
    log = next(file for file in edited.metadata_files("files") if older.stem.rpartition("_")[2] in file.name)
    assert path.exists()
    [block] = log_blocks(log.read_bytes())
    extra = b"0000" + older.name.encode()[4:]
    log.write_bytes(log.read_bytes().replace(block.content, change_hfile(block.content, older.name.encode(), extra)))
    return f"kind=buy/{extra.decode()}"


@cell("metadata table", "altered", "appends", FindingKind.METADATA_TABLE)
def metadata_table_altered(edited: Edited) -> str:
    """It says another size, by which readers find the end of a file."""
    path = _newest(edited)
    size = path.stat().st_size
    name = path.name.encode()
    _change_index(edited, "files", (name + _long(size), name + _long(size - 1)))
    return str(path.relative_to(edited.table))


def _long(number: int) -> bytes:
    """A number as Avro has it."""
    number, parts = number << 1, []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


@cell("metadata table", "stale", "appends", FindingKind.FILE_UNSEEN)
def metadata_table_stale(edited: Edited) -> str:
    """It is as it was before the last transaction."""
    metadata = edited.table / ".hoodie" / "metadata"
    shutil.rmtree(metadata)
    shutil.copytree(edited.directory / "earlier" / ".hoodie" / "metadata", metadata)
    return _newest(edited).name


@cell("partition path", "missing", "appends", FindingKind.PARTITION_METAFILE)
def partition_path_missing(edited: Edited) -> str:
    (edited.table / "day=mon" / ".hoodie_partition_metadata").unlink()
    return "day=mon"


@cell("partition path", "extra", "appends", FindingKind.FILE_UNNAMED)
def partition_path_extra(edited: Edited) -> str:
    path = _newest(edited)
    extra = edited.table / "day=wed"
    extra.mkdir()
    shutil.copy(path, extra / path.name)
    return f"day=wed/{path.name}"


@cell("partition path", "altered", "appends", FindingKind.CELL)
def partition_path_altered(edited: Edited) -> str:
    path = _newest(edited)
    row = rows_of(path).to_pylist()[0]
    edited.change_rows(path, lambda rows: with_cell(rows, 0, "_hoodie_partition_path", "day=sun"))
    return f"{place(row)} column _hoodie_partition_path: the table has 'day=sun in"


@cell("partition path", "stale", "appends", FindingKind.CELL)
def partition_path_stale(edited: Edited) -> str:
    """A whole file is in another table partition, its commit says so, and there is no metadata table to say another."""
    edited.without_metadata_table()
    path = _newest(edited)
    row = rows_of(path).to_pylist()[0]
    other = "day=mon" if path.parent.name == "day=tue" else "day=tue"
    path.rename(edited.table / other / path.name)

    def moved(document: dict) -> None:  # type: ignore[type-arg]
        stats = document["partitionToWriteStats"]
        [stat] = [stat for stat in stats[path.parent.name] if path.name in stat["path"]]
        stats[path.parent.name].remove(stat)
        stats[other].append({**stat, "path": f"{other}/{path.name}", "partitionPath": other})

    for commit in edited.own_commits():
        if path.stem.endswith(commit.name[:17]):
            edited.change_commit(commit, moved)
    return f"{place(row)} column _hoodie_partition_path"
