"""A record's digest is the chain of XXH64 hashes that Spark makes of its coordinates, key and value."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from sink.audit.chain import CommittedRange
from sink.audit.checkpoints import AuditedResult, AuditedSlice, LogPartition
from sink.audit.digests import LogDigests
from sink.audit.log import Cleanup, LogRange
from sink.audit.log_records import LogRecords
from sink.audit.report import AuditFindings, DigestCount, FindingKind
from sink.write.reading.record_digests import partition_seed, record_digests
from tests.slice_digest import slice_digest

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


@given(st.sampled_from(["orders", "ümläut"]), st.integers(0, 2**31 - 1), st.lists(st.tuples(TEXTS, TEXTS), min_size=1))
def test_writer_auditor_and_the_specification_of_the_hash_agree_on_a_slice(
    topic: str, partition: int, parts: list[tuple[bytes | None, bytes | None]]
) -> None:
    records = [(2 * number, key, value) for number, (key, value) in enumerate(parts)]
    digest = slice_digest(topic, partition, records)
    written = digests([(topic, partition, *record) for record in records])
    assert sum(written) % 2**64 == digest
    assert compared(topic, partition, records, [(0, 2 * len(records), len(records), digest)]) == (
        DigestCount(same=1),
        [],
    )


KEYED = [(offset, b"k", b"v%d" % offset) for offset in range(10)]


def test_slices_are_compared_wherever_they_begin_and_overlap() -> None:
    bounds = [(0, 3), (3, 10), (2, 6), (0, 10), (9, 10)]
    slices = [(start, end, end - start, slice_digest("t", 0, KEYED[start:end])) for start, end in bounds]
    assert compared("t", 0, KEYED, slices) == (DigestCount(same=5), [])
    start, end, records, digest = slices[2]
    slices[2] = (start, end, records, digest ^ 1)
    count, [sentence] = compared("t", 0, KEYED, slices)
    assert count == DigestCount(same=4, different=1)
    assert "t-0[2, 6)" in sentence


@pytest.mark.parametrize(
    ("gone", "cleanup", "first", "topic_id", "reason"),
    [
        (range(3), Cleanup.DELETE, 3, "id", "expired"),
        (range(4, 5), Cleanup.COMPACT, 0, "id", "compacted"),
        (range(4, 5), Cleanup.DELETE, 0, "id", "records missing in the log"),
        (range(0), Cleanup.DELETE, 0, "another", "another topic id"),
    ],
)
def test_a_slice_that_cannot_be_compared_is_counted_with_the_reason(
    gone: range, cleanup: Cleanup, first: int, topic_id: str, reason: str
) -> None:
    slices = [(0, 10, 10, slice_digest("t", 0, KEYED))]
    records = [record for record in KEYED if record[0] not in gone]
    count, findings = compared("t", 0, records, slices, cleanup, first, topic_id)
    assert (count, findings) == (DigestCount(not_compared={reason: 1}), [])


def test_a_slice_of_which_the_log_has_more_records_than_were_committed_differs() -> None:
    slices = [(0, 10, 9, slice_digest("t", 0, KEYED[:9]))]
    count, [sentence] = compared("t", 0, KEYED, slices)
    assert count == DigestCount(different=1)
    assert "the log has 10 records" in sentence


def compared(
    topic: str,
    partition: int,
    records: Sequence[tuple[int, bytes | None, bytes | None]],
    slices: Sequence[tuple[int, int, int, int]],
    cleanup: Cleanup = Cleanup.DELETE,
    first: int = 0,
    topic_id: str = "id",
) -> tuple[DigestCount, list[str]]:
    """Compares the log's records with slices of start, end, records and digest. `first`: the log's first offset."""
    source = LogPartition(topic, partition)
    ranges = [
        CommittedRange(AuditedResult(AuditedSlice(topic, partition, start, end, "id", 0), count, digest, 0), 1, "1")
        for start, end, count, digest in slices
    ]
    log_digests, findings = LogDigests(ranges), AuditFindings()
    for start in range(0, len(records), 4):
        chunk = records[start : start + 4]
        messages = [Message(topic=topic, partition=partition, offset=o, key=k, value=v) for o, k, v in chunk]
        log_digests.add(source, LogRecords(messages, [offset for offset, *_ in chunk]))
    span = {source: LogRange(first, max(end for _, end, *_ in slices))}
    count = log_digests.compare(span, {topic: topic_id}, {topic: cleanup}, findings)
    assert all(finding.kind is FindingKind.DIGEST for finding in findings.all())
    return count, [finding.sentence for finding in findings.all()]
