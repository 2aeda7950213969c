"""Reads the blocks of a Hudi log file, without Hudi.

A block is: `#HUDI#`, its length (8 bytes, big-endian like all numbers), the format's version (4), its type (4), a map
of headers, the content with its length (8) before it, a map of footers, and the length of all before (8). A map is a
count (4), and for each entry a number (4), a length (4) and that many bytes. Readers of Hudi skip a block whose two
lengths differ. Raises ValueError for anything else.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa

MAGIC = b"#HUDI#"
HFILE = 4
"""The type of a block whose content is an HFile."""
SCHEMA = 2
"""The header with the records' schema."""
_VERSION = 1
_LONG, _INT, _TWO = struct.Struct(">q"), struct.Struct(">i"), struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class Block:
    kind: int
    headers: Mapping[int, bytes]
    content: bytes


def blocks_of(content: bytes) -> Iterator[Block]:
    """Yields the blocks of a log file."""
    for start, end in _places(io.BytesIO(content)):
        yield _block(content[start:end])


def count_blocks(source: BinaryIO | pa.NativeFile) -> int:
    """Counts the blocks of a log file, without reading them."""
    return sum(1 for _ in _places(source))


def _places(source: BinaryIO | pa.NativeFile) -> Iterator[tuple[int, int]]:
    """Yields where the version of each block begins, and where the block ends."""
    size = source.seek(0, io.SEEK_END)
    position = 0
    while position < size:
        source.seek(position)
        head = source.read(len(MAGIC) + _LONG.size)
        if len(head) < len(MAGIC) + _LONG.size or not head.startswith(MAGIC):
            raise ValueError(f"no block of a log begins at byte {position:,}")
        start = position + len(head)
        (length,) = _LONG.unpack_from(head, len(MAGIC))
        if not _LONG.size <= length <= size - start:
            raise ValueError(f"a block of a log has {length:,} bytes, and {size - start:,} follow its head")
        position = start + length
        source.seek(position - _LONG.size)
        (again,) = _LONG.unpack(source.read(_LONG.size))
        if again != length + len(MAGIC):
            raise ValueError(f"a block of a log has {length:,} bytes by its head, {again - len(MAGIC):,} by its end")
        yield start, position


def _block(content: bytes) -> Block:
    try:
        return _parsed(content)
    except struct.error as error:
        raise ValueError(f"a block of a log ends too early ({error})") from error


def _parsed(content: bytes) -> Block:
    version, kind = _TWO.unpack_from(content)
    if version != _VERSION:
        raise ValueError(f"a log has version {version}, known is {_VERSION}")
    headers, position = _entries(content, _TWO.size)
    (length,) = _LONG.unpack_from(content, position)
    position += _LONG.size
    if position + length > len(content):
        raise ValueError("a block of a log is shorter than its content")
    return Block(kind, headers, content[position : position + length])


def _entries(content: bytes, position: int) -> tuple[dict[int, bytes], int]:
    """Returns a map and the position behind it."""
    (count,) = _INT.unpack_from(content, position)
    position += _INT.size
    entries: dict[int, bytes] = {}
    for _ in range(count):
        name, length = _TWO.unpack_from(content, position)
        position += _TWO.size
        entries[name] = content[position : position + length]
        position += length
    return entries, position
