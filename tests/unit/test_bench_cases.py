"""The measurements of one command of the benchmark: its arguments, the order of its runs, the records of its topics."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from coordination.errors import ConfigError, Unavailable
from tests.bench.__main__ import _options, _partial
from tests.bench.cases import Axes, ShapeSelection, interleaved, millions, numbers
from tests.bench.catalog import postgres
from tests.bench.results import Shape
from tests.bench.topics import BATCH, Topic, chunk, orders, runs

MILLION = 1_000_000
AXES = Axes((4, 128, 1024), (2 * MILLION, 4 * MILLION), 8 * MILLION)


def test_lists_are_separated_by_commas_and_warm_ups_are_in_millions() -> None:
    assert numbers("4,128,1024") == (4, 128, 1024)
    assert millions("2,0.5") == (2 * MILLION, MILLION // 2)


@pytest.mark.parametrize("text", ["", "4,", "0", "-4", "1.5", "many"])
def test_what_is_no_number_of_partitions_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a number"):
        numbers(text)


def test_warm_ups_of_which_one_does_not_divide_the_other_or_the_topic_are_refused() -> None:
    with pytest.raises(ConfigError, match="--warm-up"):
        Axes((4,), (2 * MILLION, 3 * MILLION), 6 * MILLION)
    with pytest.raises(ConfigError, match="--warm-up"):
        Axes((4,), (4 * MILLION,), 6 * MILLION)
    with pytest.raises(ConfigError, match="--partitions"):
        Axes((1024,), (1000,), 1000)


def test_every_warm_up_reads_the_same_topic_in_whole_transactions() -> None:
    for partitions in AXES.partitions:
        small, large = (AXES.load(Shape(partitions, warm_up)) for warm_up in AXES.warm_ups)
        assert small.total == large.total
        assert large.lead == 2 * small.lead
        for load in (small, large):
            assert load.lead % partitions == 0
            assert load.total % load.transaction == 0
        topics = {AXES.topic(Shape(partitions, warm_up), ShapeSelection.EVERYWHERE) for warm_up in AXES.warm_ups}
        assert [topic.records for topic in topics] == [small.total]


def test_records_are_rounded_down_by_less_than_one_for_each_partition_and_transaction() -> None:
    assert AXES.load(Shape(4, 4 * MILLION)).total == 12 * MILLION
    wide = AXES.load(Shape(1024, 4 * MILLION))
    assert 12 * MILLION - 6 * 1024 < wide.total < 12 * MILLION


def test_what_is_compared_runs_in_turn_and_the_rest_only_where_it_belongs() -> None:
    measurements = {
        "d": ShapeSelection.EVERYWHERE,
        "spread": ShapeSelection.SPREAD,
        "e": ShapeSelection.NARROW,
        "f": ShapeSelection.EVERYWHERE,
    }
    names = list(measurements)
    order = [(names[index], shape) for index, shape in interleaved(AXES, list(measurements.values()))]
    narrow = [("d", Shape(4, 2 * MILLION)), ("e", Shape(4, 2 * MILLION)), ("f", Shape(4, 2 * MILLION))]
    assert order[:3] == narrow
    assert [shape for name, shape in order if name == "spread"] == [Shape(128, 2 * MILLION)]
    assert [shape.partitions for name, shape in order if name == "e"] == [4, 4]
    assert len(order) == 6 + 6 + 2 + 1


def test_without_the_wide_topic_the_commit_phase_is_not_looked_at() -> None:
    assert Axes((4,), (MILLION,), MILLION).shapes(ShapeSelection.SPREAD) == []


def test_only_the_usual_arguments_write_the_docs_by_themselves() -> None:
    assert not _partial(_options([]))
    assert not _partial(_options(["--partitions", "4,128,1024", "--directory", "lab", "--into", "other"]))
    assert _partial(_options(["--partitions", "4"]))
    assert _partial(_options(["--backlog", "0"]))
    assert _partial(_options(["--sink-heap", "2g"]))


def test_every_partition_gets_its_records_in_runs_of_a_batch() -> None:
    partition_runs = list(runs(3, BATCH + 5))
    counted: Counter[int] = Counter()
    for partition, count in partition_runs:
        counted[partition] += count
    assert counted == dict.fromkeys(range(3), BATCH + 5)
    assert partition_runs == [(0, BATCH), (1, BATCH), (2, BATCH), (0, 5), (1, 5), (2, 5)]


def test_orders_are_documents_whose_numbers_rise_and_equal_ones_are_equal_bytes() -> None:
    keys, values = chunk(100_000, 50, regions=8)
    documents = [json.loads(value) for value in values]
    assert [document["id"] for document in documents] == list(range(100_000, 100_050))
    assert [str(document["user"]).encode() for document in documents] == keys
    assert {document["region"] for document in documents} <= {f"region-{number}" for number in range(8)}
    assert chunk(100_000, 50, regions=8) == (keys, values)
    assert "region" not in json.loads(chunk(0, 1)[1][0])


def test_large_records_have_the_bytes_that_were_asked_for_and_are_not_alike() -> None:
    topic = Topic("x", 2, 10, regions=8, large_every=5, large_bytes=2000)
    values = [value for _, value in orders(topic)]
    assert [number for number, value in enumerate(values) if len(value) == 2000] == [0, 5, 10, 15]
    assert topic.large == 4
    urls = [json.loads(value)["url"] for value in values[::5]]
    assert len({url[-1000:] for url in urls}) == 4


def test_the_peer_on_s3_says_that_postgresql_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Unavailable, match=r"not on the path: initdb, postgres, psql\. Install PostgreSQL"):
        postgres(tmp_path / "log", "").__enter__()
