"""A sink that takes a table over changes the rows that are there, or says why its index would not find them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from coordination.errors import TableError
from sink.config import load
from sink.operations.validation import validate
from tests.integration.table_kit import connected
from tests.integration.upsert_kit import BUCKETS, NO_METADATA, ON_READ, RECORD_INDEX, Change, Upserts, send

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

BLOOM = NO_METADATA
BUCKETED = {**BUCKETS, **NO_METADATA}
TWO_BUCKETS = {**BUCKETED, "hoodie__bucket__index__num__buckets": "2"}
KEYS = 20


@pytest.fixture
def client(zookeeper) -> Iterator[KazooClient]:
    with connected(zookeeper.address) as client:
        yield client


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (BUCKETED, BLOOM),
        ({**ON_READ, **BUCKETED}, {**ON_READ, **BUCKETED}),
        pytest.param({**ON_READ, **BUCKETS}, {**ON_READ, **RECORD_INDEX}, marks=pytest.mark.thorough),
    ],
    ids=["buckets, bloom", "merge on read, the same buckets", "merge on read, buckets, record index"],
)
def test_rows_of_another_writer_are_changed(
    spark, kafka, client, topic, tmp_path: Path, first: Mapping[str, str], second: Mapping[str, str]
) -> None:
    with written(spark, kafka, client, topic, tmp_path, first) as others:
        upserts = Upserts(spark, client, tmp_path, kafka.address, others.topic, **second).go_on_as(others)
        upserts.land((0, KEYS, 2 * KEYS))
        upserts.table.stop_heartbeats()
        assert [(change["id"], change["at"]) for change in upserts.rows()] == [(key, 2) for key in range(KEYS)]


@pytest.mark.parametrize(
    ("first", "second", "location"),
    [
        (
            {**ON_READ, **BUCKETED},
            {**ON_READ, **BLOOM},
            "keys that may be in log files alone: index.type=bloom would not find",
        ),
        (BUCKETED, TWO_BUCKETS, r"key '\d+' in 0000000\d-\S+, and by the settings it belongs into bucket \d: index"),
        (BLOOM, BUCKETED, r"file groups that are no buckets \([0-9a-f-]+\): index.type=bucket would not find"),
    ],
    ids=["merge on read, buckets, bloom", "3 buckets, 2 buckets", "bloom, buckets"],
)
def test_rows_that_the_index_would_not_find_are_told_before_a_key_gets_a_second_one(
    spark, kafka, client, topic, tmp_path: Path, first: Mapping[str, str], second: Mapping[str, str], location: str
) -> None:
    with written(spark, kafka, client, topic, tmp_path, first) as others:
        with pytest.raises(TableError, match=f"the table has {location}") as told_by_worker:
            Upserts(spark, client, tmp_path, kafka.address, others.topic, **second)
        problems = [result.sentence for result in validate(load(tmp_path / "sink.properties", {})) if result.wrong]
        assert problems == [str(told_by_worker.value)]


@contextmanager
def written(spark, kafka, client: KazooClient, topic, directory: Path, options: Mapping[str, str]) -> Iterator[Upserts]:
    """Yields a table that notes, like one of another writer, neither index nor buckets. Its keys came in two commits;
    a later change of each is in the topic.
    """
    upserts = Upserts(spark, client, directory, kafka.address, topic(1), **options)
    send(kafka.address, upserts.topic, [change(key, at) for at in (1, 2) for key in range(KEYS)])
    upserts.land((0, 0, KEYS // 4))
    upserts.land((0, KEYS // 4, KEYS))
    properties = Path(upserts.settings.base_path, ".hoodie", "hoodie.properties")
    lines = properties.read_text().splitlines(keepends=True)
    properties.write_text("".join(line for line in lines if not line.startswith("sink.")))
    properties.with_name(".hoodie.properties.crc").unlink(missing_ok=True)
    yield upserts
    upserts.table.stop_heartbeats()


def change(key: int, at: int) -> Change:
    return str(key).encode(), json.dumps({"id": key, "at": at, "kind": "a"}).encode()
