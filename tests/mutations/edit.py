"""Edits of a table at the level of its files: commits, base files, log blocks and the metadata table's HFiles."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

Metadata = dict[str, Any]
"""A commit's metadata, as Hudi has it in Avro."""


@dataclass(frozen=True)
class Edited:
    """A copy of a kept table, to break. `directory` has the table, its errors table, an earlier state and the log."""

    directory: Path

    @property
    def table(self) -> Path:
        return self.directory / "table"

    @property
    def timeline(self) -> Path:
        return self.table / ".hoodie" / "timeline"

    def commits(self) -> list[Path]:
        """The completed commits on the active timeline, by their completion."""
        found = (path for path in self.timeline.glob("*_*commit"))
        return sorted(found, key=lambda path: path.name.partition("_")[2])

    def own_commits(self) -> list[Path]:
        """Those of the sink."""
        return [path for path in self.commits() if any("checkpoint" in key for key in _extra(metadata_of(path)))]

    def change_commit(self, path: Path, change: Callable[[Metadata], None]) -> None:
        with path.open("rb") as file:
            reader = fastavro.reader(file)
            schema, [document] = reader.writer_schema, list(reader)
        assert schema is not None
        change(document)
        with path.open("wb") as file:
            fastavro.writer(file, schema, [document], codec=reader.codec)

    def change_checkpoint(self, path: Path, change: Callable[[Metadata], None]) -> None:
        def changed(document: Metadata) -> None:
            [key] = [key for key in document["extraMetadata"] if key.startswith("sink.checkpoint.")]
            checkpoint = json.loads(document["extraMetadata"][key])
            change(checkpoint)
            document["extraMetadata"][key] = json.dumps(checkpoint)

        self.change_commit(path, changed)

    def files(self, pattern: str = "**/*.parquet") -> list[Path]:
        """Base files that are current: the newest of each file group that is not replaced."""
        replaced: set[str] = set()
        named: dict[str, Path] = {}
        for commit in self.commits():
            document = metadata_of(commit)
            for ids in (document.get("partitionToReplaceFileIds") or {}).values():
                replaced.update(ids)
            for stats in document["partitionToWriteStats"].values():
                for stat in stats:
                    path = self.table / stat["path"]
                    if path.suffix == ".parquet" and path.match(pattern.removeprefix("**/")):
                        named[stat["fileId"]] = path
        return [path for file_id, path in sorted(named.items()) if file_id not in replaced]

    def resize(self, path: Path, **more: Any) -> None:
        """Has the commit's write stat say the size that the file has now."""
        relative = str(path.relative_to(self.table))

        def resized(document: Metadata) -> None:
            for stats in document["partitionToWriteStats"].values():
                for stat in stats:
                    if stat["path"] == relative:
                        stat.update({"fileSizeInBytes": path.stat().st_size, **more})

        for commit in self.commits():
            if any(relative == stat["path"] for stat in stats_of(commit)):
                self.change_commit(commit, resized)

    def change_rows(self, path: Path, change: Callable[[pa.Table], pa.Table], **options: Any) -> None:
        """Writes a base file again, with the same footer."""
        write_rows(change(rows_of(path)), path, **options)
        if path.is_relative_to(self.table):
            self.resize(path)

    def change_log(self, path: Path, change: Callable[[list[LogBlock]], list[LogBlock]]) -> None:
        path.write_bytes(b"".join(block.packed() for block in change(list(log_blocks(path.read_bytes())))))
        if ".hoodie" not in path.parts:
            self.resize(path)

    def logs(self) -> list[Path]:
        """Log files of rows, oldest first."""
        return sorted(self.table.glob(".*.log.*"), key=lambda path: (path.name.split("_")[1], path.name))

    def metadata_files(self, part: str) -> list[Path]:
        """Files of a part of the metadata table, by instant."""
        folder = self.table / ".hoodie" / "metadata" / part
        found = [path for path in folder.iterdir() if ".log." in path.name or path.suffix == ".hfile"]
        return sorted(found, key=lambda path: (_instant(path), path.name))

    def without_metadata_table(self) -> None:
        """Deletes the metadata table, and what says that there is one."""
        shutil.rmtree(self.table / ".hoodie" / "metadata")
        properties = self.table / ".hoodie" / "hoodie.properties"
        lines = (line for line in properties.read_text().splitlines() if "metadata.partitions=" not in line)
        properties.write_text("\n".join(lines) + "\n")

    def copy(self, name: str, directory: Path) -> Edited:
        """Copies the table of this name with all that belongs to it."""
        shutil.copytree(self.directory, directory / name)
        return Edited(directory / name)


def _instant(path: Path) -> str:
    return path.name.split("_")[1].partition(".")[0] if path.name.startswith(".") else path.stem.rpartition("_")[2]


def metadata_of(path: Path) -> Metadata:
    with path.open("rb") as file:
        [document] = list(fastavro.reader(file))
    return document  # type: ignore[return-value]


def stats_of(path: Path) -> Iterator[Metadata]:
    for stats in metadata_of(path)["partitionToWriteStats"].values():
        yield from stats


def _extra(document: Metadata) -> Metadata:
    return document.get("extraMetadata") or {}


def rows_of(path: Path) -> pa.Table:
    return pq.ParquetFile(path).read()


def write_rows(rows: pa.Table, path: Path, **options: Any) -> None:
    """Writes a file whose footer has the texts of the rows' schema."""
    with pq.ParquetWriter(path, rows.schema, **{"compression": "zstd", "store_schema": False, **options}) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata(rows.schema.metadata or {})


def with_cell(rows: pa.Table, row: int, column: str, value: Any) -> pa.Table:
    values = rows.column(column).to_pylist()
    values[row] = value
    field = rows.schema.field(column)
    return rows.set_column(rows.schema.get_field_index(column), field, pa.array(values, field.type))


def with_footer(rows: pa.Table, **texts: str | None) -> pa.Table:
    """Replaces texts of the footer by name, where `__` stands for a dot; None removes one."""
    metadata = dict(rows.schema.metadata or {})
    for name, text in texts.items():
        metadata.pop(name.replace("__", ".").encode(), None)
        if text is not None:
            metadata[name.replace("__", ".").encode()] = text.encode()
    return rows.replace_schema_metadata(metadata)


# Log files

_MAGIC = b"#HUDI#"


@dataclass(frozen=True)
class LogBlock:
    """`head` is version, type and headers; `tail` are the footers."""

    kind: int
    head: bytes
    content: bytes
    tail: bytes
    schema: str = ""

    def packed(self) -> bytes:
        inner = self.head + struct.pack(">q", len(self.content)) + self.content + self.tail
        whole = _MAGIC + struct.pack(">q", len(inner) + 8) + inner
        return whole + struct.pack(">q", len(whole))

    def records(self) -> list[Metadata]:
        """The records of a block in Avro."""
        schema = fastavro.parse_schema(json.loads(self.schema))
        _, count = struct.unpack_from(">ii", self.content)
        position, found = 8, []
        for _ in range(count):
            (length,) = struct.unpack_from(">i", self.content, position)
            stream = io.BytesIO(self.content[position + 4 : position + 4 + length])
            found.append(fastavro.schemaless_reader(stream, schema, None))
            position += 4 + length
        return found  # type: ignore[return-value]

    def with_records(self, records: Sequence[Metadata]) -> LogBlock:
        schema = fastavro.parse_schema(json.loads(self.schema))
        parts = [self.content[:4], struct.pack(">i", len(records))]
        for record in records:
            stream = io.BytesIO()
            fastavro.schemaless_writer(stream, schema, record)
            parts += [struct.pack(">i", len(stream.getvalue())), stream.getvalue()]
        return replace(self, content=b"".join(parts))


DELETES, ROWS = 1, 3
"""Types of blocks."""


def log_blocks(content: bytes) -> Iterator[LogBlock]:
    position = 0
    while position < len(content):
        assert content[position : position + 6] == _MAGIC
        (length,) = struct.unpack_from(">q", content, position + 6)
        block = content[position + 14 : position + 14 + length]
        (kind,) = struct.unpack_from(">i", block, 4)
        headers, behind = _map(block, 8)
        (size,) = struct.unpack_from(">q", block, behind)
        start = behind + 8
        schema = headers.get(2, b"").decode()
        yield LogBlock(kind, block[:behind], block[start : start + size], block[start + size : -8], schema)
        position += 14 + length


def _map(content: bytes, position: int) -> tuple[dict[int, bytes], int]:
    (count,) = struct.unpack_from(">i", content, position)
    position, found = position + 4, {}
    for _ in range(count):
        name, length = struct.unpack_from(">ii", content, position)
        found[name] = content[position + 8 : position + 8 + length]
        position += 8 + length
    return found, position


# HFiles

_NAMED = 8
"""The flag of gzip for a name, which fills a block up to the length that it had."""


def change_hfile(content: bytes, old: bytes, new: bytes) -> bytes:
    """Replaces bytes in the first block of an HFile by as many others."""
    assert len(old) == len(new)
    head = content[:33]
    _, _, _, _, _, _, length = struct.unpack(">8siiqbii", head)
    block = gzip.decompress(content[33:length])
    assert old in block, old
    changed = block.replace(old, new)
    for level in (9, 8, 7, 6):
        packed = _packed(changed, level, length - 33)
        if packed is not None:
            return head + packed + content[length:]
    raise ValueError("the changed block is longer")


def _packed(block: bytes, level: int, length: int) -> bytes | None:
    deflate = zlib.compressobj(level, zlib.DEFLATED, -15)
    body = deflate.compress(block) + deflate.flush() + struct.pack("<II", zlib.crc32(block), len(block))
    spare = length - 10 - len(body)
    if spare < 0:
        return None
    name = b"" if not spare else b"x" * (spare - 1) + b"\0"
    return b"\x1f\x8b\x08" + bytes([_NAMED if spare else 0]) + b"\0" * 6 + name + body
