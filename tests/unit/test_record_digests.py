"""A record's digest is the chain of XXH64 hashes that Spark makes of its coordinates, key and value."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from sink.write.record_digests import partition_seed, record_digests

SPARK_SEED = 42
Record = tuple[str, int, int, bytes | None, bytes | None]
"""Topic, partition, offset, key and value."""

TEXTS = st.none() | st.binary(max_size=70)
RECORDS = st.tuples(
    st.sampled_from(["orders", "ümläut", "o"]), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), TEXTS, TEXTS
)


def chained_digest(record: Record) -> int:
    """Hashes one column after another, each hash the seed of the next; nulls are left out."""
    topic, partition, offset, key, value = record
    columns = (topic.encode(), struct.pack("<i", partition), struct.pack("<q", offset), key, value)
    seed = SPARK_SEED
    for column in columns:
        seed = seed if column is None else xxh64_intdigest(column, seed)
    return seed


def digests(records: Sequence[Record]) -> list[int]:
    seeds = np.array([partition_seed(topic, partition) for topic, partition, *_ in records], np.uint64)
    offsets = np.array([record[2] for record in records], np.int64)
    digest_array = record_digests(seeds, offsets, [record[3] for record in records], [record[4] for record in records])
    return [int(digest) for digest in digest_array]


@given(st.lists(RECORDS, min_size=1, max_size=30))
def test_digests_of_many_records_are_the_chains_of_each(records: list[Record]) -> None:
    assert digests(records) == [chained_digest(record) for record in records]


@pytest.mark.parametrize("keys", ["none", "some", "all"])
@pytest.mark.parametrize("values", ["none", "some", "all"])
def test_a_null_leaves_the_hash_as_it_is(keys: str, values: str) -> None:
    is_null = {"none": lambda _: False, "some": lambda at: at % 3 == 0, "all": lambda _: True}
    records: list[Record] = [
        ("t", 1, at, None if is_null[keys](at) else b"k%d" % at, None if is_null[values](at) else b"v%d" % at)
        for at in range(10)
    ]
    assert digests(records) == [chained_digest(record) for record in records]


def test_a_null_and_an_empty_value_have_different_digests() -> None:
    assert len(set(digests([("t", 0, 7, b"k", None), ("t", 0, 7, b"k", b"")]))) == 2
