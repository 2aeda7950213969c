"""Upsert tables: Spark reads the rows that a computation without Spark and Hudi gives for the same log."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coordination.errors import BadRecord, TableError, Unavailable
from sink import cli
from sink.audit.audit import audit
from sink.audit.report import FindingKind
from sink.hudi.lock import TableLocks
from sink.hudi.table import TableOutcome
from sink.hudi.table_services import HudiTableServices
from sink.runtime.process.commit_warmup import rehearse
from sink.write.rows.row_spec import table_schema
from tests.integration.sinktable import slices_of, stats_of
from tests.integration.table_kit import SINK, connected
from tests.integration.upsert_kit import (
    BUCKETS,
    BY_LOG,
    DDL,
    NO_METADATA,
    ON_READ,
    ORDERED,
    RECORD_INDEX,
    Change,
    Upserts,
    expected,
    plain,
    random_log,
    send,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ORDERED_BY_INT = DDL.replace("at bigint", "at int")
MakeUpserts = Callable[..., Upserts]


@pytest.fixture
def make_upserts(spark, kafka, zookeeper, topic, tmp_path: Path) -> Iterator[MakeUpserts]:
    """Makes a table over a topic of two partitions."""
    with connected(zookeeper.address) as client:

        def make(name: str = "", **more: str) -> Upserts:
            table = Upserts(spark, client, tmp_path / f"table{len(tables)}", kafka.address, name or topic(2), **more)
            tables.append(table)
            return table

        tables: list[Upserts] = []
        make.client = client  # type: ignore[attr-defined]
        yield make
        for made_table in tables:
            made_table.table.stop_heartbeats()


def row(key: int, at: int, kind: str = "a", **more: object) -> Change:
    return str(key).encode(), json.dumps({"id": key, "at": at, "kind": kind, **more}).encode()


@pytest.mark.parametrize(
    ("ordered", "more"),
    [
        (True, NO_METADATA),
        (False, {**ON_READ, **RECORD_INDEX}),
        pytest.param(True, {**ON_READ, **BUCKETS, **NO_METADATA}, marks=pytest.mark.thorough),
        pytest.param(True, {**ON_READ, **RECORD_INDEX}, marks=pytest.mark.thorough),
        pytest.param(True, RECORD_INDEX, marks=pytest.mark.thorough),
        pytest.param(False, {**BUCKETS, **NO_METADATA}, marks=pytest.mark.thorough),
        pytest.param(True, {**NO_METADATA, "ddl": ORDERED_BY_INT}, marks=pytest.mark.thorough),
        pytest.param(True, {**ON_READ, **BUCKETS, **NO_METADATA, "ddl": ORDERED_BY_INT}, marks=pytest.mark.thorough),
    ],
    ids=[
        "copy on write, bloom",
        "merge on read, record index",
        "merge on read, buckets",
        "merge on read, record index, ordered",
        "copy on write, record index",
        "copy on write, buckets",
        "copy on write, bloom, ordered by INT",
        "merge on read, buckets, ordered by INT",
    ],
)
def test_random_changes_give_what_the_log_says_through_rollbacks_and_a_change_of_coordinator(
    make_upserts: MakeUpserts, kafka, ordered: bool, more: dict[str, str]
) -> None:
    upserts = make_upserts(**(ORDERED if ordered else BY_LOG), **more)
    log = random_log(1, 2, 3000, 250, ordered)
    for partition in (0, 1):
        send(kafka.address, upserts.topic, log.changes(partition), partition)
    ends = [len(changes) for changes in log.partitions]
    slices = slices_of(upserts.topic, (0, 0, 400), (0, 400, 600), (1, 0, 500))
    landed = upserts.land((0, 0, 400), (0, 400, 600), (1, 0, 500))
    assert [result.records for result in landed.results] == [400, 200, 500]
    assert upserts.rows() == plain(expected(log, slices, ordered))

    ranges = ((0, 600, 1100), (1, 500, ends[1]))
    first = upserts.begin()
    attempt, files_before = upserts.write(first, *ranges), upserts.files()
    upserts.table.roll_back(first)
    assert upserts.rows() == plain(expected(log, slices, ordered))
    removed_files = {path: content for path, content in files_before.items() if not path.exists()}
    assert removed_files
    second = upserts.begin()
    repeated = upserts.write(second, *ranges)
    assert repeated.results == attempt.results
    # Late tasks write their files, and a late writer notes only now what it is going to write.
    for path, content in removed_files.items():
        path.write_bytes(content)
    late_inflight = Path(upserts.settings.base_path, ".hoodie", "timeline", f"{first}{upserts.inflight}")
    late_inflight.touch()
    slices += slices_of(upserts.topic, *ranges)
    assert upserts.complete(second, repeated) is TableOutcome.COMPLETED
    assert upserts.rows() == plain(expected(log, slices, ordered))

    third = upserts.begin()
    written = upserts.write(third, (0, 1100, ends[0]))
    # The coordinator that began the instant is dead: another one completes it.
    other_table, _ = upserts.another(make_upserts.client)  # type: ignore[attr-defined]
    assert upserts.complete(third, written, other_table) is TableOutcome.COMPLETED
    other_table.stop_heartbeats()
    slices += slices_of(upserts.topic, (0, 1100, ends[0]))
    assert upserts.rows() == plain(expected(log, slices, ordered))
    upserts.table.services()
    assert not [path for path in (*removed_files, late_inflight) if path.exists()]
    assert upserts.rows() == plain(expected(log, slices, ordered))
    report = audit(upserts.settings.base_path, SINK)
    assert report.held, report.to_json()
    assert report.changed


def test_a_pending_clustering_of_the_same_rows_gives_way_and_one_of_others_stays(
    make_upserts: MakeUpserts, kafka
) -> None:
    ddl = "id bigint, at bigint, kind string, day string"
    upserts = make_upserts(ddl=ddl, partition__field__name="day", **NO_METADATA)
    send(kafka.address, upserts.topic, [row(1, 1, day="mon"), row(2, 1, day="tue")])
    upserts.land((0, 0, 2))
    conflicting, unrelated = plan_clustering(upserts, "day=mon"), plan_clustering(upserts, "day=tue")
    assert {conflicting, unrelated} == set(pending_clusterings(upserts))
    send(kafka.address, upserts.topic, [row(1, 2, "b", day="mon"), row(3, 1, "c", day="mon")])
    upserts.land((0, 2, 4))
    assert upserts.brief() == {1: (2, "b"), 2: (1, "a"), 3: (1, "c")}
    assert pending_clusterings(upserts) == [unrelated]
    run_clustering(upserts, unrelated)
    assert upserts.brief() == {1: (2, "b"), 2: (1, "a"), 3: (1, "c")}


def planned_clustering(make_upserts: MakeUpserts, kafka) -> tuple[Upserts, str]:
    """Returns a table of two rows with a planned clustering, and its instant. A third record changes the first row."""
    upserts = make_upserts(**NO_METADATA)
    send(kafka.address, upserts.topic, [row(1, 1), row(2, 1), row(1, 2, "b")])
    upserts.land((0, 0, 2))
    return upserts, plan_clustering(upserts)


def test_a_clustering_of_the_same_rows_that_another_writer_carries_out_is_waited_for(
    make_upserts: MakeUpserts, kafka
) -> None:
    upserts, clustering = planned_clustering(make_upserts, kafka)
    Path(upserts.settings.base_path, ".hoodie", "timeline", f"{clustering}.clustering.inflight").touch()
    instant = upserts.begin()
    written = upserts.write(instant, (0, 2, 3))
    with pytest.raises(Unavailable, match=f"another writer carries out clustering {clustering}"):
        upserts.complete(instant, written)
    run_clustering(upserts, clustering)
    assert upserts.complete(instant, written) is TableOutcome.CONFLICT
    upserts.table.roll_back(instant)
    upserts.land((0, 2, 3))
    assert upserts.brief() == {1: (2, "b"), 2: (1, "a")}


def test_what_another_writer_has_replaced_meanwhile_is_a_conflict_and_is_formed_again(
    make_upserts: MakeUpserts, kafka
) -> None:
    upserts, clustering = planned_clustering(make_upserts, kafka)
    instant = upserts.begin()
    written = upserts.write(instant, (0, 2, 3))
    run_clustering(upserts, clustering)
    # Hudi's own check knows nothing of an instant that another coordinator began.
    other_table, _ = upserts.another(make_upserts.client)  # type: ignore[attr-defined]
    assert upserts.complete(instant, written, other_table) is TableOutcome.CONFLICT
    other_table.roll_back(instant)
    other_table.stop_heartbeats()
    upserts.land((0, 2, 3))
    assert upserts.brief() == {1: (2, "b"), 2: (1, "a")}


@pytest.mark.parametrize(
    ("day", "more", "outcome"),
    [
        ("mon", NO_METADATA, TableOutcome.CONFLICT),
        ("tue", NO_METADATA, TableOutcome.COMPLETED),
        pytest.param("tue", RECORD_INDEX, TableOutcome.CONFLICT, marks=pytest.mark.thorough),
        pytest.param("mon", {**ON_READ, **BUCKETS, **NO_METADATA}, TableOutcome.CONFLICT, marks=pytest.mark.thorough),
    ],
    ids=["same partition", "another partition", "another partition, record index", "same partition, buckets"],
)
def test_a_key_that_another_writer_has_added_meanwhile_is_a_conflict(
    make_upserts: MakeUpserts, kafka, day: str, more: dict[str, str], outcome: TableOutcome
) -> None:
    """Neither writer finds the other's row, and their file groups have nothing in common."""
    ddl = "id bigint, at bigint, kind string, day string"
    upserts = make_upserts(ddl=ddl, partition__field__name="day", **more)
    send(kafka.address, upserts.topic, [row(1, 1, "theirs", day=day), row(1, 2, "ours", day="mon")])
    instant, their_instant = upserts.begin(), upserts.begin()
    written, their_written = upserts.write(instant, (0, 1, 2)), upserts.write(their_instant, (0, 0, 1))
    assert upserts.complete(their_instant, their_written) is TableOutcome.COMPLETED
    # Hudi's own check knows nothing of an instant that another coordinator began.
    other_table, _ = upserts.another(make_upserts.client)  # type: ignore[attr-defined]
    assert upserts.complete(instant, written, other_table) is outcome
    if outcome is TableOutcome.CONFLICT:
        other_table.roll_back(instant)
        upserts.land((0, 1, 2))
    other_table.stop_heartbeats()
    theirs = {"id": 1, "at": 1, "kind": "theirs", "day": day}
    ours = {"id": 1, "at": 2, "kind": "ours", "day": "mon"}
    assert upserts.rows() == ([theirs, ours] if outcome is TableOutcome.COMPLETED else [ours])


def test_a_pending_compaction_is_in_nobodys_way(make_upserts: MakeUpserts, kafka) -> None:
    upserts = make_upserts(**ON_READ, **BUCKETS, **NO_METADATA)
    send(kafka.address, upserts.topic, [row(1, 1), row(2, 1), row(1, 2, "b"), row(2, 2, "b"), row(1, 3, "c")])
    upserts.land((0, 0, 2))
    upserts.land((0, 2, 3))
    instant = upserts.begin()
    written = upserts.write(instant, (0, 3, 4))
    services = upserts.services()
    compaction = services.scheduleCompaction(upserts.none).get()
    assert upserts.complete(instant, written) is TableOutcome.COMPLETED
    upserts.land((0, 4, 5))
    assert upserts.brief() == {1: (3, "c"), 2: (2, "b")}
    services.compact(compaction, True)
    services.close()
    assert upserts.brief() == {1: (3, "c"), 2: (2, "b")}


def test_a_table_keeps_the_buckets_that_it_was_made_with(make_upserts: MakeUpserts, kafka, tmp_path: Path) -> None:
    upserts = make_upserts(**BUCKETS, **NO_METADATA)
    send(kafka.address, upserts.topic, [row(1, 1)])
    upserts.land((0, 0, 1))
    four_buckets = {**BUCKETS, "hoodie__bucket__index__num__buckets": "4"}
    client = make_upserts.client  # type: ignore[attr-defined]
    for options, error_text in ((four_buckets, "3. The settings ask for 4"), ({}, "3. The settings ask for none")):
        with pytest.raises(TableError, match=f"the table's buckets: {error_text}"):
            Upserts(upserts.spark, client, tmp_path / "table0", kafka.address, upserts.topic, **options, **NO_METADATA)
    upserts.table.ensure()


@pytest.mark.parametrize(
    ("first", "second", "error_text"),
    [
        (
            {"partition__time__format": "daily"},
            {"partition__time__format": "daily", "partition__time__zone": "Asia/Tokyo"},
            r"the table's partitions by time: seen, daily, UTC. The settings ask for seen, daily, Asia/Tokyo",
        ),
        (
            {**BUCKETS, "hoodie__bucket__index__hash__field": "kind"},
            BUCKETS,
            "the table's bucket hash field: kind. The settings ask for none",
        ),
    ],
    ids=["partitions by time", "hash field"],
)
def test_what_decides_where_a_row_is_put_stays_or_a_key_would_get_a_second_row(
    make_upserts: MakeUpserts, kafka, tmp_path: Path, first: dict[str, str], second: dict[str, str], error_text: str
) -> None:
    columns = {"ddl": "id bigint, at bigint, kind string, seen timestamp", "record__key__fields": "id,kind"}
    time = {"partition__time__field": "seen", "partition__time__column": "day"} if "time" in str(first) else {}
    options = {**columns, **time, **NO_METADATA}
    upserts = make_upserts(**options, **first)
    client = make_upserts.client  # type: ignore[attr-defined]
    with pytest.raises(TableError, match=error_text):
        Upserts(upserts.spark, client, tmp_path / "table0", kafka.address, upserts.topic, **options, **second)
    upserts.table.ensure()


def test_hudi_clusters_no_table_with_buckets_and_its_refusal_leaves_no_plan_behind(
    make_upserts: MakeUpserts, kafka
) -> None:
    frequent_clustering = {
        "hoodie__clustering__async__max__commits": "1",
        "hoodie__clustering__plan__strategy__single__group__clustering__enabled": "true",
    }
    upserts = make_upserts(**BUCKETS, **NO_METADATA, **frequent_clustering)
    send(kafka.address, upserts.topic, [row(1, 1), row(2, 1)])
    upserts.land((0, 0, 2))
    # Loading such settings fails, so that the test changes loaded ones.
    clustering_settings = upserts.settings.model_copy(update={"services_clustering": True})
    locks = TableLocks(make_upserts.client, clustering_settings.table.lock)  # type: ignore[attr-defined]
    reasons = {
        result.name: result.reason for result in HudiTableServices(upserts.hudi, clustering_settings.table, locks).run()
    }
    assert "is not compatible with table layout HoodieSimpleBucketLayout" in reasons.pop("clustering")
    assert not any(reasons.values()), reasons
    assert pending_clusterings(upserts) == []


def test_the_record_index_finds_a_row_wherever_it_is_to_move_or_delete_it(make_upserts: MakeUpserts, kafka) -> None:
    day_partitions = {"ddl": "id bigint, at bigint, kind string, day string", "partition__field__name": "day"}
    upserts = make_upserts(**RECORD_INDEX, **day_partitions, **BY_LOG)
    inserts = [row(1, 1, day="mon"), row(2, 1, day="mon"), row(3, 1, day="tue")]
    send(kafka.address, upserts.topic, [*inserts, (b"3", None), row(1, 2, "b", day="tue"), (b"9", None)])
    upserts.land((0, 0, 3))
    upserts.land((0, 3, 6))
    expected_rows = [{"id": 1, "at": 2, "kind": "b", "day": "tue"}, {"id": 2, "at": 1, "kind": "a", "day": "mon"}]
    assert upserts.rows() == expected_rows
    assert upserts.rows(**{"hoodie.metadata.enable": "false"}) == expected_rows


def test_changes_whose_keys_and_partitions_read_alike_are_of_one_row(make_upserts: MakeUpserts, kafka) -> None:
    """Otherwise Hudi would write two rows of one key, because the sink tells it that nothing is left to combine."""
    columns = {"ddl": "id string, code string, at bigint, zone string, place string", "record__key__fields": "id,code"}
    upserts = make_upserts(
        **columns, **NO_METADATA, partition__field__name="zone,place", partition__hive__style="false"
    )
    keys = [("1", "2"), ("1,code:2", "3"), ("1", "2,code:3"), ("", "5"), ("__empty__", "5")]
    partitions = [(None, "z"), ("x", "z")]
    rows = [(*key, *partition) for partition in partitions for key in keys]
    names = ("id", "code", "zone", "place", "at")
    events = [dict(zip(names, (*row, at), strict=True)) for at in (1, 2) for row in rows]
    send(kafka.address, upserts.topic, [(None, json.dumps(event).encode()) for event in events])
    upserts.land((0, 0, len(rows)))
    first_rows = upserts.spark.read.format("hudi").load(upserts.settings.base_path).collect()
    hudi_keys = [(row["_hoodie_record_key"], row["_hoodie_partition_path"]) for row in first_rows]
    assert len(hudi_keys) == len(set(hudi_keys)) == 3 * 2
    assert {row["id"] for row in first_rows} == {"1", "__empty__"}
    upserts.land((0, len(rows), 2 * len(rows)))
    second_rows = upserts.spark.read.format("hudi").load(upserts.settings.base_path).collect()
    second_keys = [(row["_hoodie_record_key"], row["_hoodie_partition_path"]) for row in second_rows]
    assert sorted(second_keys) == sorted(hudi_keys)
    assert {row["at"] for row in second_rows} == {2}


def test_a_log_files_column_statistics_are_those_that_hudi_reads_from_it(make_upserts: MakeUpserts, kafka) -> None:
    ddl = "id bigint, at bigint, kind string, amount decimal(10,2), day date, seen timestamp, flag boolean, part double"
    options = {**ON_READ, **BUCKETS, "hoodie__metadata__enable": "true", "ddl": ddl}
    more = {"day": "2024-02-29", "seen": "2024-02-29T10:00:00Z", "flag": True, "part": 0.5}
    changes = [row(key, at, "aé"[key % 2], amount=str(at + key), **more) for at in (1, 2) for key in range(9)]
    statistics = []
    for with_statistics in (True, False):
        upserts = make_upserts(**options)
        send(kafka.address, upserts.topic, [*changes, (b"10", json.dumps({"id": 10}).encode())])
        upserts.land((0, 0, 9))
        instant = upserts.begin()
        written = upserts.write(instant, (0, 9, 19))
        stats = [json.loads(stat) for stat in written.stats]
        assert all(("columnStats" in stat) == ("logVersion" in stat) for stat in stats)
        bare_stats = tuple(json.dumps({name: stat[name] for name in stat if name != "columnStats"}) for stat in stats)
        upserts.complete(instant, written if with_statistics else replace(written, stats=bare_stats))
        statistics.append(log_statistics(upserts))
    assert statistics[0] == statistics[1]
    assert {row["columnName"] for row in statistics[0]} >= {"id", "at", "kind", "amount", "day", "seen", "flag", "part"}


def log_statistics(upserts: Upserts) -> list[dict[str, object]]:
    """Returns the metadata table's statistics of the columns in log files."""
    table = upserts.spark.read.format("hudi").load(f"{upserts.settings.base_path}/.hoodie/metadata")
    rows = table.where("ColumnStatsMetadata is not null").select("ColumnStatsMetadata.*").collect()
    statistics = [row.asDict(recursive=True) for row in rows if ".log." in row["fileName"]]
    # Files and instants have other names in every table.
    own_statistics = [row for row in statistics if not row["columnName"].startswith("_hoodie")]
    return sorted(({**row, "fileName": row["fileName"].split("-")[0]} for row in own_statistics), key=str)


def test_debeziums_events_land_by_their_place_in_the_source(make_upserts: MakeUpserts, kafka) -> None:
    debezium = {"value__envelope": "debezium", "debezium__ordering": "lsn", "delete__key__format": "json"}
    upserts = make_upserts(ddl="id bigint, at bigint, kind string not null", **debezium, **NO_METADATA)

    def event(op: str, key: int, lsn: int, kind: str = "a", before: bool = True) -> Change:
        image = {"id": key, "at": lsn, "kind": kind}
        images = {"before": image if op == "d" and before else None, "after": None if op == "d" else image}
        return json.dumps({"id": key}).encode(), json.dumps({**images, "op": op, "source": {"lsn": lsn}}).encode()

    tombstone: Change = (b'{"id": 2}', None)
    first_events = [
        event("r", 1, 10),
        event("c", 2, 11),
        event("c", 3, 12),
        event("u", 1, 14, "b"),
        event("u", 1, 13, "late"),
    ]
    second_events = [
        event("d", 2, 20),
        tombstone,
        event("d", 3, 11),
        event("d", 1, 22, before=False),
        event("c", 4, 23),
    ]
    send(kafka.address, upserts.topic, [*first_events, *second_events])
    upserts.land((0, 0, 5))
    assert upserts.brief() == {1: (14, "b"), 2: (11, "a"), 3: (12, "a")}
    upserts.land((0, 5, 10))
    assert upserts.brief() == {3: (12, "a"), 4: (23, "a")}
    send(kafka.address, upserts.topic, [event("u", 3, 11, "late"), event("u", 1, 21, "nobody remembers the delete")])
    upserts.land((0, 10, 12))
    assert upserts.brief() == {1: (21, "nobody remembers the delete"), 3: (12, "a"), 4: (23, "a")}


def test_a_worker_that_sees_another_storage_at_the_tables_path_changes_nothing_there(
    make_upserts: MakeUpserts, kafka
) -> None:
    upserts, elsewhere = make_upserts(**NO_METADATA), make_upserts(**NO_METADATA)
    send(kafka.address, upserts.topic, [row(1, 1)])
    with pytest.raises(Unavailable, match="this worker has another storage at that path than its coordinator"):
        elsewhere.write(upserts.begin(), (0, 0, 1))
    assert not elsewhere.files()


def test_a_bad_record_is_named_and_leaves_nothing_behind(make_upserts: MakeUpserts, kafka) -> None:
    upserts = make_upserts(**NO_METADATA)
    send(kafka.address, upserts.topic, [row(1, 1), row(2, 1), (b"1", None), (None, b"{}")])
    instant = upserts.begin()
    with pytest.raises(BadRecord, match=r"delete\.key\.format") as bad:
        upserts.write(instant, (0, 0, 4))
    assert (bad.value.topic, bad.value.partition, bad.value.offset) == (upserts.topic, 0, 2)
    upserts.table.roll_back(instant)
    assert not upserts.files()


def test_the_audit_finds_a_key_with_two_rows_and_a_file_that_cannot_be_read(make_upserts: MakeUpserts, kafka) -> None:
    upserts = make_upserts(**NO_METADATA)
    send(kafka.address, upserts.topic, [row(1, 1), row(2, 1), (row(2, 2)[0], row(2, 2, "b")[1])])
    upserts.land((0, 0, 3))
    base_path = upserts.settings.base_path
    report = audit(base_path, SINK)
    assert (report.held, report.rows) == (True, 2), report.to_json()
    [file] = Path(base_path).glob("*.parquet")
    copy = file.with_name("copied" + file.name)
    shutil.copy(file, copy)
    report = audit(base_path, SINK)
    kinds = {FindingKind.DUPLICATE, FindingKind.SURPLUS, FindingKind.FILE_UNNAMED}
    assert {finding.kind for finding in report.failures} == kinds
    sentences = [finding.sentence for finding in report.failures if finding.kind is FindingKind.DUPLICATE]
    names = ", ".join(sorted((file.name, copy.name)))
    assert sentences[0] == f"record key '1' has 2 rows in table partition (root): {names}"
    assert len(sentences) == 2
    copy.unlink()
    content = file.read_bytes()
    file.write_bytes(content[:4] + bytes(len(content) - 2000 - 4) + content[-2000:])
    report = audit(base_path, SINK)
    assert {finding.kind for finding in report.failures} == {FindingKind.FILE_UNREADABLE}


def test_the_audit_finds_a_key_in_two_table_partitions_where_a_key_is_one_row_of_the_table(
    make_upserts: MakeUpserts, kafka, capsys: pytest.CaptureFixture[str]
) -> None:
    ddl = "id bigint, at bigint, kind string, day string"
    upserts = make_upserts(ddl=ddl, partition__field__name="day", **NO_METADATA)
    send(kafka.address, upserts.topic, [row(1, 1, day="mon"), row(2, 1, day="mon"), row(1, 2, day="tue")])
    upserts.land((0, 0, 3))
    config = Path(upserts.settings.base_path).with_name("sink.properties")
    command = ["audit", "--config", str(config), "--no-log"]
    assert cli.main(command) == 0
    by_record_index = config.read_text().replace("hoodie.metadata.enable=false", "index.type=record")
    config.write_text(by_record_index)
    capsys.readouterr()
    assert cli.main(command) == 1
    assert "record key '1' has 2 rows in table partitions day=mon, day=tue: " in capsys.readouterr().out


def test_keys_that_were_inserted_twice_before_the_first_upsert_are_only_noted(
    make_upserts: MakeUpserts, kafka, tmp_path: Path
) -> None:
    columns = {"ddl": "id bigint, at bigint, kind string", **NO_METADATA}
    inserts = make_upserts(write__operation="insert", **columns)
    send(kafka.address, inserts.topic, [row(1, 1), row(1, 2), row(2, 3), row(1, 4)])
    inserts.land((0, 0, 2))
    client = make_upserts.client  # type: ignore[attr-defined]
    upserts = Upserts(inserts.spark, client, tmp_path / "table0", kafka.address, inserts.topic, **columns)
    upserts.go_on_as(inserts).land((0, 2, 3))
    upserts.land((0, 3, 4))
    # A change is written once into a file group: the other row of its key stays.
    assert [(table_row["id"], table_row["at"]) for table_row in upserts.rows()] == [(1, 2), (1, 4), (2, 3)]
    report = audit(upserts.settings.base_path, SINK)
    upserts.table.stop_heartbeats()
    assert (report.held, report.changed, report.rows) == (True, True, 3), report.to_json()
    [note] = [finding for finding in report.notes if finding.kind is FindingKind.OTHERS]
    assert note.sentence.startswith("1 record keys have several rows; these commits inserted rows and looked up no key")


def test_who_does_not_lead_rehearses_with_such_a_table(make_upserts: MakeUpserts) -> None:
    upserts = make_upserts(**ON_READ, **BUCKETS, **ORDERED, **NO_METADATA)
    rehearse(upserts.spark, upserts.settings, table_schema(upserts.settings.table, upserts.settings.records))
    assert upserts.rows() == []


def test_inserts_fill_small_files_and_keep_every_record(make_upserts: MakeUpserts, kafka) -> None:
    upserts = make_upserts(write__operation="insert", ddl="id bigint, at bigint, kind string", **NO_METADATA)
    send(kafka.address, upserts.topic, [row(1, 1), row(2, 1), row(1, 2, "b"), row(1, 3, "c")])
    first, second = upserts.land((0, 0, 2)), upserts.land((0, 2, 4))
    assert [(table_row["id"], table_row["at"]) for table_row in upserts.rows()] == [(1, 1), (1, 2), (1, 3), (2, 1)]
    (first_stat,), (second_stat,) = stats_of(first), stats_of(second)
    assert first_stat["fileId"] == second_stat["fileId"]
    assert upserts.spark.sparkContext._jsc.getPersistentRDDs().isEmpty()


def plan_clustering(upserts: Upserts, partition: str = "") -> str:
    """Plans a clustering as another writer's job does. Returns its instant."""
    options = {"hoodie.clustering.plan.strategy.partition.selected": partition} if partition else {}
    services = upserts.services(options)
    instant = str(services.scheduleClustering(upserts.none).get())
    services.close()
    return instant


def run_clustering(upserts: Upserts, instant: str) -> None:
    services = upserts.services()
    services.cluster(instant, True)
    services.close()


def pending_clusterings(upserts: Upserts) -> list[str]:
    timeline = upserts.hudi.meta_client().getActiveTimeline().filterPendingReplaceOrClusteringTimeline()
    return sorted(str(instant.requestedTime()) for instant in timeline.getInstants())
