"""The digest of a slice, by the specification of XXH64 and nothing of the product or of a library."""

from __future__ import annotations

from collections.abc import Iterable

_MASK = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    11400714785074694791,
    14029467366897019727,
    1609587929392839161,
    9650029242287828579,
    2870177450012600261,
)
Record = tuple[int, bytes | None, bytes | None]
"""Offset, key and value."""


def slice_digest(topic: str, partition: int, records: Iterable[Record]) -> int:
    """Adds up the chains of hashes of topic, partition, offset, key and value; nulls are left out."""
    total = 0
    for offset, key, value in records:
        chain = 42
        for part in (topic.encode(), partition.to_bytes(4, "little"), offset.to_bytes(8, "little"), key, value):
            chain = chain if part is None else xxh64(part, chain)
        total += chain
    return total & _MASK


def xxh64(data: bytes, seed: int) -> int:
    length, position = len(data), 0
    if length >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while position + 32 <= length:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], _word(data, position + 8 * lane, 8))
            position += 32
        hashed = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            hashed = ((hashed ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        hashed = seed + _P5
    hashed = (hashed + length) & _MASK
    while position + 8 <= length:
        hashed = (_rotated(hashed ^ _round(0, _word(data, position, 8)), 27) * _P1 + _P4) & _MASK
        position += 8
    if position + 4 <= length:
        hashed = (_rotated(hashed ^ (_word(data, position, 4) * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        position += 4
    for byte in data[position:]:
        hashed = _rotated(hashed ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    hashed = (hashed ^ hashed >> 33) * _P2 & _MASK
    hashed = (hashed ^ hashed >> 29) * _P3 & _MASK
    return hashed ^ hashed >> 32


def _word(data: bytes, position: int, size: int) -> int:
    return int.from_bytes(data[position : position + size], "little")


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> (64 - bits)) & _MASK
