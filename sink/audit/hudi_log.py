"""Reads the blocks of a Hudi log file, without Hudi.

A block is: `#HUDI#`, its length (8 bytes, big-endian like all numbers), the format's version (4), its type (4), a map
of headers, the content with its length (8) before it, a map of footers, and the length of all before (8). A map is a
count (4), and for each entry a number (4), a length (4) and that many bytes. Raises ValueError for anything else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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
    position = 0
    try:
        while position < len(content):
            if content[position : position + len(MAGIC)] != MAGIC:
                raise ValueError(f"no block of a log begins at byte {position:,}")
            position += len(MAGIC)
            (length,) = _LONG.unpack_from(content, position)
            position += _LONG.size
            yield _block(content[position : position + length])
            position += length
    except struct.error as error:
        raise ValueError(f"a block of a log ends too early ({error})") from error


def _block(content: bytes) -> Block:
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
