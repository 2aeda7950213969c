"""Reads the entries of an HFile, the format of Hudi's metadata table, without Hudi.

A file is a row of blocks, and a trailer of 4,096 bytes that ends with the version of the format. A block has a header
of 33 bytes: its kind (8), its length on disk without the header (4, big-endian like all numbers), that before
compression (4), the place of the block before (8), the kind of its checksums (1), how many bytes each covers (4), and
its length without checksums but with the header (4). Raises ValueError for anything else.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator, Mapping

_TRAILER_BYTES = 4096
_TRAILER, _DATA, _INFO = b'TRABLK"$', b"DATABLK*", b"FILEINF2"
_PROTOBUF = b"PBUF"
_HEADER = struct.Struct(">8siiqbii")
_LENGTHS, _SHORT, _INT = struct.Struct(">ii"), struct.Struct(">h"), struct.Struct(">i")
_VERSION = 3
_INFO_PLACE, _LOADED_PLACE, _COMPRESSION = 1, 2, 12
"""Numbers of fields of the trailer: where the file's info and what is read first begin, and how blocks are packed."""
_GZIP, _NONE = 1, 2


def entries_of(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields keys and values, in the order of the keys."""
    trailer = _trailer(content)
    position, end = 0, trailer[_LOADED_PLACE]
    while position < end:
        kind, block, position = _block(content, position, trailer[_COMPRESSION])
        if kind == _DATA:
            yield from _entries(block)


def info_of(content: bytes) -> Mapping[bytes, bytes]:
    """Returns what the file says of itself."""
    trailer = _trailer(content)
    kind, block, _ = _block(content, trailer[_INFO_PLACE], trailer[_COMPRESSION])
    if kind != _INFO or not block.startswith(_PROTOBUF):
        raise ValueError("an HFile has no info where its trailer says")
    length, start = _varint(block, len(_PROTOBUF))
    pairs = (dict(_fields(pair)) for _, pair in _fields(block[start : start + length]) if isinstance(pair, bytes))
    return {bytes(pair[1]): bytes(pair.get(2, b"")) for pair in pairs}


def _trailer(content: bytes) -> dict[int, int]:
    start = len(content) - _TRAILER_BYTES
    if start < 0 or content[start : start + len(_TRAILER)] != _TRAILER:
        raise ValueError("no HFile: its trailer is missing")
    (version,) = _INT.unpack_from(content, len(content) - _INT.size)
    if version & 0xFFFFFF != _VERSION:
        raise ValueError(f"an HFile has version {version & 0xFFFFFF}, known is {_VERSION}")
    length, begin = _varint(content, start + len(_TRAILER))
    found = {number: value for number, value in _fields(content[begin : begin + length]) if isinstance(value, int)}
    if not found.keys() >= {_INFO_PLACE, _LOADED_PLACE, _COMPRESSION}:
        raise ValueError("the trailer of an HFile lacks a place")
    return found


def _block(content: bytes, position: int, compression: int) -> tuple[bytes, bytes, int]:
    """Returns kind and content of a block, and the position behind it."""
    try:
        kind, stored, size, _, _, _, with_header = _HEADER.unpack_from(content, position)
        block = content[position + _HEADER.size : position + with_header]
        if compression == _GZIP:
            block = gzip.decompress(block)
        elif compression != _NONE:
            raise ValueError(f"an HFile has blocks of compression {compression}, known are gzip and none")
    except (struct.error, OSError, EOFError, zlib.error) as error:
        raise ValueError(f"a block of an HFile cannot be read ({error})") from error
    if len(block) != size or stored < 0:
        raise ValueError(f"a block of an HFile has {len(block):,} bytes, its header says {size:,}")
    return kind, block, position + _HEADER.size + stored


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = 0
    try:
        while position < len(block):
            key_bytes, value_bytes = _LENGTHS.unpack_from(block, position)
            position += _LENGTHS.size
            (row_bytes,) = _SHORT.unpack_from(block, position)
            row = block[position + _SHORT.size : position + _SHORT.size + row_bytes]
            position += key_bytes
            yield row, block[position : position + value_bytes]
            # A number of a transaction follows, which is 0.
            _, position = _varint(block, position + value_bytes)
    except struct.error as error:
        raise ValueError(f"an entry of an HFile ends too early ({error})") from error


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields numbers and values of the fields of a message of Protobuf that has numbers and bytes only."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        value, position = _varint(message, position)
        if tag & 7 == 0:
            yield tag >> 3, value
        elif tag & 7 == 2:
            yield tag >> 3, message[position : position + value]
            position += value
        else:
            raise ValueError("an HFile has a field of an unknown kind")


def _varint(content: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(content) or shift > 63:
            raise ValueError("an HFile ends in the middle of a number")
        byte = content[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
