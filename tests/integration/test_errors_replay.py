"""Repaired bad records in tables of changed rows: each key has the row that the ordering selects, despite kills."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from coordination.errors import ConfigError
from sink.audit.audit import audit
from sink.bad_records.replay import Replay
from sink.bad_records.selection import Selection
from sink.operations.operator_commit import commanded_sink
from sink.operations.timeline_snapshot import read_timeline_snapshot
from sink.telemetry.failpoints import DIRECTORY, VARIABLE
from tests.integration.conftest import MakeSink
from tests.integration.errors_kit import Record, Sink
from tests.integration.upsert_kit import BUCKETS, ON_READ, ORDERED, RECORD_INDEX

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

DDL = "id bigint, at bigint, kind string not null, side bigint"
UPSERT = {"write__operation": "upsert", "record__key__fields": "id", "ddl": DDL}
IN_ORDER = {**UPSERT, **ORDERED}
DEBEZIUM = {**UPSERT, "value__envelope": "debezium", "debezium__ordering": "lsn", "delete__key__format": "json"}
PARTITIONED = {**IN_ORDER, "partition__field__name": "side"}
INDEXED = {**IN_ORDER, **ON_READ, **RECORD_INDEX, "hoodie__metadata__enable": "true"}
ELSEWHERE = {"zookeeper__session__timeout__ms": "6000", "spark__master": "local[2]"}
"""For a replay in a process of its own: the next process waits until its session has ended."""
REPAIR = """regexp_replace(value, '"broken ([0-9]+)"', '$1')"""
"""Repairs the times that are text; the rest of a value stays as it is."""

Row = tuple[int, str]
"""The time that orders the changes of a key, and the kind."""


def row(key: int, at: int, kind: str | None = "landed", broken: bool = False, deleted: bool = False) -> Record:
    time = f"broken {at}" if broken else at
    kinds = {} if kind is None else {"kind": kind}
    value = {"id": key, "at": time, **kinds, "side": key % 3, "_hoodie_is_deleted": deleted}
    return b"%d" % key, json.dumps(value).encode()


def event(key: int, at: int, kind: str | None = "landed", broken: bool = False, deleted: bool = False) -> Record:
    """Like `row`, from Debezium. A delete has its key only in the key of the record."""
    time = f"broken {at}" if broken else at
    after = None if deleted else {"id": key, "at": at, **({} if kind is None else {"kind": kind}), "side": key % 3}
    change = {"before": None, "after": after, "op": "d" if deleted else "u", "source": {"lsn": time}}
    return b'{"id": %d}' % key, json.dumps(change).encode()


def changes(make: Callable[..., Record]) -> tuple[list[Record], list[Record], list[Record]]:
    """Returns changes of two partitions that land first, and changes of the first partition that land later."""
    odd = [
        make(1, 10),
        make(1, 5, "an older one", broken=True),
        make(3, 10),
        make(3, 20, broken=True, deleted=True),
        make(5, 1, "a new key", broken=True),
        make(7, 10, None, broken=True),
        make(9, 30, "newer than what came later", broken=True),
        make(11, 10, "as old", broken=True),
        make(13, 10),
        make(13, 15, "deleted since", broken=True),
        make(15, 30, "older than what came later", broken=True),
    ]
    even = [
        make(2, 10),
        make(2, 20, "a newer one", broken=True),
        make(4, 10),
        make(4, 5, broken=True, deleted=True),
        make(6, 10, "the newer of two", broken=True),
        make(6, 5, "the older of two", broken=True),
    ]
    since = [make(9, 20), make(11, 10), make(13, 20, deleted=True), make(15, 40)]
    return odd, even, since


BEFORE: Mapping[int, Row] = dict.fromkeys((1, 2, 3, 4, 11), (10, "landed")) | {9: (20, "landed"), 15: (40, "landed")}
AFTER: Mapping[int, Row] = {
    1: (10, "landed"),
    2: (20, "a newer one"),
    4: (10, "landed"),
    5: (1, "a new key"),
    6: (10, "the newer of two"),
    9: (30, "newer than what came later"),
    # Nothing says that it is later in the log.
    11: (10, "as old"),
    15: (40, "landed"),
}
BROUGHT_BACK: Mapping[int, Row] = {13: (15, "deleted since")}
GOOD = 11
KILLS = ("Replay.written", "Replay.committed")


@pytest.mark.parametrize(
    ("make", "more", "kills", "after"),
    [
        (row, PARTITIONED, (), AFTER | BROUGHT_BACK),
        pytest.param(event, {**DEBEZIUM, **ON_READ, **BUCKETS}, KILLS, AFTER, marks=pytest.mark.thorough),
        pytest.param(row, INDEXED, (), AFTER | BROUGHT_BACK, marks=pytest.mark.thorough),
        pytest.param(event, {**DEBEZIUM, **BUCKETS}, (), AFTER | BROUGHT_BACK, marks=pytest.mark.thorough),
    ],
    ids=[
        "copy on write, bloom, three partitions",
        "merge on read, buckets, Debezium, killed",
        "merge on read, record index",
        "copy on write, buckets, Debezium",
    ],
)
def test_replayed_changes_take_effect_once_by_their_ordering_whoever_dies(
    make_sink: MakeSink,
    make: Callable[..., Record],
    more: Mapping[str, str],
    kills: tuple[str, ...],
    after: Mapping[int, Row],
) -> None:
    odd, even, since = changes(make)
    sink = make_sink([*odd, *since], even, **ELSEWHERE, **more)
    sink.land((0, 0, len(odd)), (1, 0, len(even)))
    sink.land((0, len(odd), len(odd) + len(since)))
    assert rows(sink) == BEFORE
    for point in kills:
        assert replay_killed_at(sink, point).returncode == -9
        replayed = GOOD if point == "Replay.committed" else 0
        assert rows(sink) == (after if replayed else BEFORE)
        assert_audited(sink, errors=GOOD + 1 - replayed, replayed=replayed)
    replay = Replay(sink.spark, commanded_sink(sink.settings), sink.client)
    assert len(replay.preview(Selection(), REPAIR).good) == (0 if kills else GOOD)
    tried = replay.run(Selection(), REPAIR)
    assert (len(tried.good), tried.marked) == ((0, GOOD) if kills else (GOOD, 0))
    # As the engine itself decodes: the table's column may be null, the record's may not.
    assert [("'kind' is null" in reason, coordinates[3]) for coordinates, reason in tried.bad.items()] == [(True, 5)]
    assert rows(sink) == after
    assert_audited(sink, errors=1, replayed=GOOD)
    assert not read_timeline_snapshot(sink.settings.base_path, sink.settings.name).pending


def test_repaired_records_are_rows_more_where_records_are_inserted_in_each_life_of_the_topic(
    make_sink: MakeSink,
) -> None:
    insert = {"write__operation": "insert", "record__key__fields": "id", "ddl": DDL}
    sink = make_sink([row(1, 1), row(1, 2, "repaired", broken=True), row(2, 1)], **insert)
    for generation in (0, 1):
        sink.land((0, 0, 3), generation=generation)
    replay = Replay(sink.spark, commanded_sink(sink.settings), sink.client)
    assert sorted(coordinates[3:] for coordinates in replay.run(Selection(), REPAIR).good) == [(1, 0), (1, 1)]
    assert not replay.run(Selection(), REPAIR).good
    frame = sink.spark.read.format("hudi").load(sink.settings.base_path).select("_kafka_offset", "id", "at", "kind")
    once = [(0, 1, 1, "landed"), (1, 1, 2, "repaired"), (2, 2, 1, "landed")]
    assert sorted(map(tuple, frame.collect())) == sorted(once * 2)
    assert_audited(sink, errors=0, replayed=2)


def test_a_replay_takes_the_records_of_its_own_sink_from_an_errors_table_of_two(make_sink: MakeSink) -> None:
    ours = make_sink([row(1, 1), row(1, 2, broken=True)], ddl=DDL)
    theirs = make_sink([row(2, 1), row(2, 2, broken=True)], ddl=DDL, target__table__name=ours.settings.table_name)
    assert ours.settings.errors_base_path == theirs.settings.errors_base_path
    for sink in (ours, theirs):
        sink.land((0, 0, 2))
    for sink in (ours, theirs):
        replay = Replay(sink.spark, commanded_sink(sink.settings), sink.client)
        assert [(key[0], *key[2:4]) for key in replay.preview(Selection(), REPAIR).good] == [(sink.topic, 0, 1)]
        assert len(replay.run(Selection(), REPAIR).good) == 1
        again = replay.run(Selection(), REPAIR)
        assert (again.good, again.marked) == ((), 0)
    frame = ours.spark.read.format("hudi").load(ours.settings.base_path).select("_kafka_topic", "_kafka_offset")
    once = [(sink.topic, offset) for sink in (ours, theirs) for offset in (0, 1)]
    assert sorted(map(tuple, frame.collect())) == sorted(once)
    assert_audited(ours, errors=0, replayed=2)


def test_without_an_ordering_a_replay_into_changed_rows_is_refused(make_sink: MakeSink) -> None:
    sink = make_sink([row(1, 1)], **UPSERT)
    with pytest.raises(ConfigError, match=r"without ordering\.field\.name .* Produce the repaired records"):
        Replay(sink.spark, commanded_sink(sink.settings), sink.client)


def rows(sink: Sink) -> dict[int, Row]:
    frame = sink.spark.read.format("hudi").option("hoodie.metadata.enable", "false").load(sink.settings.base_path)
    return {record["id"]: (record["at"], record["kind"]) for record in frame.select("id", "at", "kind").collect()}


def assert_audited(sink: Sink, errors: int, replayed: int) -> None:
    report = audit(sink.settings.base_path, sink.settings.name)
    assert report.held, report.to_json()
    assert (report.errors, report.replayed) == (errors, replayed), report.to_json()


def replay_killed_at(sink: Sink, point: str) -> subprocess.CompletedProcess[str]:
    """Runs a replay in a process of its own, which is killed at the failpoint."""
    config = Path(sink.settings.base_path).with_name("sink.properties")
    command = [sys.executable, "-m", "sink.cli", "errors", "replay", "--yes", "--sql", REPAIR, "--config", str(config)]
    environment = {**os.environ, VARIABLE: f"{point}=kill", DIRECTORY: str(config.parent)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
