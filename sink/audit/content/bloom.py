"""Looks record keys up in the Bloom filters of base files' footers, without Hudi.

A filter is Hadoop's, in base64: version -1 (4 bytes, big-endian like all numbers), number of hashes (4), kind of hash
(1; 1 is Murmur), number of bits (4), and the bits, the lowest of a byte first. A dynamic one has two more numbers
behind its head, then the number of filters (4) and these. Each hash is the seed of the next. Raises ValueError for
anything else.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SIMPLE, DYNAMIC = "SIMPLE", "DYNAMIC_V0"
"""The type codes of footers."""
_HEAD, _DYNAMIC = struct.Struct(">iibi"), struct.Struct(">iii")
_VERSION, _MURMUR = -1, 1
_MOST_HASHES = 1_076
"""Hashes of the smallest share of errors that Hudi's setting can have, which is a double: one for each halving."""
_MIX = np.uint32(0x5BD1E995)
_Numbers = NDArray[np.uint32]


@dataclass(frozen=True)
class _Filter:
    bits: NDArray[np.uint8]
    size: int
    hashes: int

    def may_hold(self, keys: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Returns for each key whether it may be in the filter. `keys` has a row for each key, all of one length."""
        found = np.ones(len(keys), np.bool_)
        values = np.zeros(len(keys), np.uint32)
        for _ in range(self.hashes):
            values = murmur(keys, values)
            # In 64 bits: the least number of 32 bits has no absolute value there.
            places = np.abs(values.view(np.int32).astype(np.int64)) % self.size
            found &= (self.bits[places >> 3] >> (places & 7).astype(np.uint8) & 1).astype(np.bool_)
        return found


def missing_keys(text: str, kind: str, keys: Iterable[str]) -> list[str]:
    """Returns the keys that are certainly not in the filter. `text` and `kind` are the filter and its type code, as a
    footer has them.
    """
    if kind not in (SIMPLE, DYNAMIC):
        raise ValueError(f"a Bloom filter of an unknown kind ({kind})")
    try:
        content = base64.b64decode(text, validate=True)
        filters = _dynamic(content) if kind == DYNAMIC else [_simple(content, 0)[0]]
    except struct.error as error:
        raise ValueError(f"a Bloom filter ends too early ({error})") from error
    if not filters:
        raise ValueError("a dynamic Bloom filter without a filter")
    by_length: dict[int, list[bytes]] = {}
    for key in keys:
        encoded = key.encode()
        by_length.setdefault(len(encoded), []).append(encoded)
    missing: list[str] = []
    for length, found in by_length.items():
        matrix = np.frombuffer(b"".join(found), np.uint8).reshape(len(found), length)
        held = np.any([one.may_hold(matrix) for one in filters], axis=0)
        missing += [found[number].decode() for number in np.flatnonzero(~held)]
    return missing


def _simple(content: bytes, position: int) -> tuple[_Filter, int]:
    size, hashes = _head(content, position)
    position += _HEAD.size
    end = position + (size + 7) // 8
    if end > len(content):
        raise ValueError("a Bloom filter has fewer bits than it says")
    return _Filter(np.frombuffer(content[position:end], np.uint8), size, hashes), end


def _dynamic(content: bytes) -> Sequence[_Filter]:
    _head(content, 0)  # raises for what is not a filter
    _, _, rows = _DYNAMIC.unpack_from(content, _HEAD.size)
    position, filters = _HEAD.size + _DYNAMIC.size, []
    for _ in range(rows):
        one, position = _simple(content, position)
        filters.append(one)
    return filters


def _head(content: bytes, position: int) -> tuple[int, int]:
    """Returns the numbers of bits and hashes."""
    version, hashes, kind, size = _HEAD.unpack_from(content, position)
    if version != _VERSION or kind != _MURMUR or size < 1:
        raise ValueError("not a Bloom filter of Hadoop with Murmur hashes")
    if not 1 <= hashes <= _MOST_HASHES:
        raise ValueError(f"a Bloom filter of {hashes:,} hashes, and there are from 1 to {_MOST_HASHES:,}")
    return size, hashes


def murmur(keys: NDArray[np.uint8], seeds: _Numbers) -> _Numbers:
    """Returns Hadoop's Murmur hash of each row of a matrix of bytes."""
    length = keys.shape[1]
    whole = length // 4 * 4
    values = seeds ^ np.uint32(length)
    for start in range(0, whole, 4):
        parts = np.ascontiguousarray(keys[:, start : start + 4]).view("<u4")[:, 0].astype(np.uint32) * _MIX
        values = values * _MIX ^ (parts ^ parts >> np.uint32(24)) * _MIX
    if whole < length:
        # Hadoop takes the rest from its last byte on. Java's bytes have a sign, which the shift keeps.
        for number, place in enumerate(range(length - 1, whole - 1, -1)):
            values ^= keys[:, place].view(np.int8).astype(np.int32).view(np.uint32) << np.uint32(8 * number)
        values = values * _MIX
    values ^= values >> np.uint32(13)
    values = values * _MIX
    result: _Numbers = values ^ values >> np.uint32(15)
    return result
