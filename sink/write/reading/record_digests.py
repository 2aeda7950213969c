"""Digests of records, equal to Spark's `xxhash64("topic", "partition", "offset", "key", "value")`.

Guarantee: a record has the same digest in every attempt. Spark chains the hashes: the hash of a column is the
seed of the next one, and a null keeps the seed. Raises nothing on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import cast

import numpy as np
import numpy.typing as npt
from xxhash import xxh64_intdigest

Hashes = npt.NDArray[np.uint64]
_SPARK_SEED = 42
_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


@lru_cache(100_000)
def partition_seed(topic: str, partition: int) -> int:
    """Returns the seed for the offsets of a partition: the hash of its topic and number."""
    topic_hash = xxh64_intdigest(topic.encode(), _SPARK_SEED)
    return int(xxh64_intdigest(partition.to_bytes(4, "little", signed=True), topic_hash))


def record_digests(
    seeds: Hashes, offsets: npt.NDArray[np.int64], keys: Sequence[bytes | None], values: Sequence[bytes | None]
) -> Hashes:
    """Returns the digest of each record. `seeds` has the seed of each record's partition."""
    return _chained(_chained(_of_longs(offsets.view(np.uint64), seeds), keys), values)


def _chained(seeds: Hashes, values: Sequence[bytes | None]) -> Hashes:
    nulls = values.count(None)
    if nulls == len(values):
        return seeds
    seed_list = seeds.tolist()
    hashes: Iterable[int]
    if nulls:
        pairs = zip(values, seed_list, strict=True)
        hashes = (seed if value is None else xxh64_intdigest(value, seed) for value, seed in pairs)
    else:
        hashes = map(xxh64_intdigest, cast("Sequence[bytes]", values), seed_list)
    return np.fromiter(hashes, np.uint64, len(seed_list))


def _of_longs(numbers: Hashes, seeds: Hashes) -> Hashes:
    """Computes XXH64 of eight bytes for all numbers at once."""
    mixed = _rotated(numbers * _PRIME_2, 31) * _PRIME_1
    hashes = _rotated((seeds + _PRIME_5 + np.uint64(8)) ^ mixed, 27) * _PRIME_1 + _PRIME_4
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _PRIME_2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _PRIME_3
    return np.asarray(hashes ^ (hashes >> np.uint64(32)))


def _rotated(numbers: Hashes, bits: int) -> Hashes:
    return np.asarray((numbers << np.uint64(bits)) | (numbers >> np.uint64(64 - bits)))
