"""The header of a schema registry before a value, or in a header of the record. Raises Bad."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sink.audit.decode.rules import Bad

_MOST_INDEXES = 16


def with_header_id(value: bytes | None, headers: Sequence[tuple[str, bytes | None]], name: str) -> bytes | None:
    """Returns the value behind the id that a record's header has, if one has it."""
    found = next((content for key, content in headers if key == name and content is not None), b"")
    return None if value is None else found + value


def unframed(value: bytes) -> tuple[str, bytes]:
    """Returns the id of the schema as text, and what is behind it."""
    if len(value) < 5:
        raise Bad("shorter than a registry's header")
    if value[0] == 0:
        return str(int.from_bytes(value[1:5], "big")), value[5:]
    if value[0] == 1 and len(value) >= 17:
        return str(UUID(bytes=value[1:17])), value[17:]
    raise Bad("no registry's header")


def message_path(value: bytes) -> tuple[tuple[int, ...], bytes]:
    """Returns the indexes of a Protobuf message in its file, and what is behind them."""
    count, value = _zigzag(value)
    if not 0 <= count <= _MOST_INDEXES:
        raise Bad("message indexes that cannot be read")
    path = []
    for _ in range(count):
        index, value = _zigzag(value)
        path.append(index)
    return tuple(path) or (0,), value


def _zigzag(value: bytes) -> tuple[int, bytes]:
    number = 0
    for position, byte in enumerate(value[:10]):
        number |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            return number >> 1 ^ -(number & 1), value[position + 1 :]
    raise Bad("a number that does not end")
