"""Tables whose rows are changed: what Spark reads of them against a computation of its own, over the same log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coordination.errors import BadRecord, TableError
from sink.audit import audit
from sink.hudi import TableOutcome
from sink.hudi.lock import TableLocks
from sink.hudi.table_services import HudiTableServices
from sink.runtime.commit_warmup import rehearse
from sink.write.row_spec import table_schema
from tests.integration.sinktable import slices_of, stats_of
from tests.integration.table_kit import SINK, connected
from tests.integration.upsert_kit import (
    BUCKETS,
    BY_LOG,
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

MakeUpserts = Callable[..., Upserts]


@pytest.fixture
def upserts(spark, kafka, zookeeper, topic, tmp_path: Path) -> Iterator[MakeUpserts]:
    """Makes a table over a topic of two partitions."""
    with connected(zookeeper.address) as client:

        def make(name: str = "", **more: str) -> Upserts:
            table = Upserts(spark, client, tmp_path / f"table{len(made)}", kafka.address, name or topic(2), **more)
            made.append(table)
            return table

        made: list[Upserts] = []
        make.client = client  # type: ignore[attr-defined]
        yield make
        for each in made:
            each.table.stop_heartbeats()


def row(key: int, at: int, kind: str = "a", **more: object) -> Change:
    return str(key).encode(), json.dumps({"id": key, "at": at, "kind": kind, **more}).encode()


@pytest.mark.parametrize(
    ("ordered", "more"),
    [
        (True, NO_METADATA),
        (False, {**ON_READ, **RECORD_INDEX}),
        pytest.param(True, {**ON_READ, **BUCKETS, **NO_METADATA}, marks=pytest.mark.thorough),
        pytest.param(True, {**ON_READ, **NO_METADATA}, marks=pytest.mark.thorough),
        pytest.param(True, RECORD_INDEX, marks=pytest.mark.thorough),
        pytest.param(False, {**BUCKETS, **NO_METADATA}, marks=pytest.mark.thorough),
    ],
    ids=[
        "copy on write, bloom",
        "merge on read, record index",
        "merge on read, buckets",
        "merge on read, bloom",
        "copy on write, record index",
        "copy on write, buckets",
    ],
)
def test_random_changes_give_what_the_log_says_through_rollbacks_and_a_change_of_coordinator(
    upserts: MakeUpserts, kafka, ordered: bool, more: dict[str, str]
) -> None:
    one = upserts(**(ORDERED if ordered else BY_LOG), **more)
    log = random_log(1, 2, 3000, 250, ordered)
    for partition in (0, 1):
        send(kafka.address, one.topic, log.changes(partition), partition)
    ends = [len(changes) for changes in log.partitions]
    slices = slices_of(one.topic, (0, 0, 400), (0, 400, 600), (1, 0, 500))
    assert [result.records for result in one.land((0, 0, 400), (0, 400, 600), (1, 0, 500)).results] == [400, 200, 500]
    assert one.rows() == plain(expected(log, slices, ordered))

    ranges = ((0, 600, 1100), (1, 500, ends[1]))
    first = one.begin()
    attempt, left = one.write(first, *ranges), one.files()
    one.table.roll_back(first)
    assert one.rows() == plain(expected(log, slices, ordered))
    gone = {path: content for path, content in left.items() if not path.exists()}
    assert gone
    second = one.begin()
    again = one.write(second, *ranges)
    assert again.results == attempt.results
    # Tasks that are late, and a writer that only now notes what it is going to write.
    for path, content in gone.items():
        path.write_bytes(content)
    revived = Path(one.settings.base_path, ".hoodie", "timeline", f"{first}{one.inflight}")
    revived.touch()
    slices += slices_of(one.topic, *ranges)
    assert one.complete(second, again) is TableOutcome.COMPLETED
    assert one.rows() == plain(expected(log, slices, ordered))

    third = one.begin()
    last = one.write(third, (0, 1100, ends[0]))
    # Who began it is dead: another completes it.
    other, _ = one.another(upserts.client)  # type: ignore[attr-defined]
    assert one.complete(third, last, other) is TableOutcome.COMPLETED
    other.stop_heartbeats()
    slices += slices_of(one.topic, (0, 1100, ends[0]))
    assert one.rows() == plain(expected(log, slices, ordered))
    one.table.services()
    assert not [path for path in (*gone, revived) if path.exists()]
    assert one.rows() == plain(expected(log, slices, ordered))
    report = audit(one.settings.base_path, SINK)
    assert report.held, report.to_json()
    assert report.changed


def test_a_pending_clustering_of_the_same_rows_gives_way_and_one_of_others_stays(upserts: MakeUpserts, kafka) -> None:
    ddl = "id bigint, at bigint, kind string, day string"
    one = upserts(ddl=ddl, partition__field__name="day", **NO_METADATA)
    send(kafka.address, one.topic, [row(1, 1, day="mon"), row(2, 1, day="tue")])
    one.land((0, 0, 2))
    mine, others = plan_clustering(one, "day=mon"), plan_clustering(one, "day=tue")
    assert {mine, others} == set(pending_clusterings(one))
    send(kafka.address, one.topic, [row(1, 2, "b", day="mon"), row(3, 1, "c", day="mon")])
    one.land((0, 2, 4))
    assert one.brief() == {1: (2, "b"), 2: (1, "a"), 3: (1, "c")}
    assert pending_clusterings(one) == [others]
    run_clustering(one, others)
    assert one.brief() == {1: (2, "b"), 2: (1, "a"), 3: (1, "c")}


def test_what_another_writer_has_replaced_meanwhile_is_a_conflict_and_is_formed_again(
    upserts: MakeUpserts, kafka
) -> None:
    one = upserts(**NO_METADATA)
    send(kafka.address, one.topic, [row(1, 1), row(2, 1), row(1, 2, "b")])
    one.land((0, 0, 2))
    planned = plan_clustering(one)
    instant = one.begin()
    written = one.write(instant, (0, 2, 3))
    run_clustering(one, planned)
    # Hudi's own check knows nothing of an instant that another coordinator began.
    other, _ = one.another(upserts.client)  # type: ignore[attr-defined]
    assert one.complete(instant, written, other) is TableOutcome.CONFLICT
    other.roll_back(instant)
    other.stop_heartbeats()
    one.land((0, 2, 3))
    assert one.brief() == {1: (2, "b"), 2: (1, "a")}


def test_a_pending_compaction_is_in_nobodys_way(upserts: MakeUpserts, kafka) -> None:
    one = upserts(**ON_READ, **BUCKETS, **NO_METADATA)
    send(kafka.address, one.topic, [row(1, 1), row(2, 1), row(1, 2, "b"), row(2, 2, "b"), row(1, 3, "c")])
    one.land((0, 0, 2))
    one.land((0, 2, 3))
    before = one.begin()
    written = one.write(before, (0, 3, 4))
    services = one.services()
    planned = services.scheduleCompaction(one.none).get()
    assert one.complete(before, written) is TableOutcome.COMPLETED
    one.land((0, 4, 5))
    assert one.brief() == {1: (3, "c"), 2: (2, "b")}
    services.compact(planned, True)
    services.close()
    assert one.brief() == {1: (3, "c"), 2: (2, "b")}


def test_a_table_keeps_the_buckets_that_it_was_made_with(upserts: MakeUpserts, kafka, tmp_path: Path) -> None:
    one = upserts(**BUCKETS, **NO_METADATA)
    send(kafka.address, one.topic, [row(1, 1)])
    one.land((0, 0, 1))
    four = {**BUCKETS, "hoodie__bucket__index__num__buckets": "4"}
    for other, said in ((four, "3; the settings ask for 4"), ({}, "3; the settings ask for none")):
        with pytest.raises(TableError, match=f"the table's buckets: {said}"):
            Upserts(one.spark, upserts.client, tmp_path / "table0", kafka.address, one.topic, **other, **NO_METADATA)  # type: ignore[attr-defined]
    one.table.ensure()


def test_hudi_clusters_no_table_with_buckets_and_its_refusal_leaves_no_plan_behind(upserts: MakeUpserts, kafka) -> None:
    often = {
        "hoodie__clustering__async__max__commits": "1",
        "hoodie__clustering__plan__strategy__single__group__clustering__enabled": "true",
    }
    one = upserts(**BUCKETS, **NO_METADATA, **often)
    send(kafka.address, one.topic, [row(1, 1), row(2, 1)])
    one.land((0, 0, 2))
    # Settings that are read refuse it.
    asked = one.settings.model_copy(update={"services_clustering": True})
    locks = TableLocks(upserts.client, asked)  # type: ignore[attr-defined]
    reasons = {each.name: each.reason for each in HudiTableServices(one.hudi, asked, locks).run()}
    assert "is not compatible with table layout HoodieSimpleBucketLayout" in reasons.pop("clustering")
    assert not any(reasons.values()), reasons
    assert pending_clusterings(one) == []


def test_the_record_index_finds_a_row_wherever_it_is_to_move_or_delete_it(upserts: MakeUpserts, kafka) -> None:
    by_day = {"ddl": "id bigint, at bigint, kind string, day string", "partition__field__name": "day"}
    one = upserts(**RECORD_INDEX, **by_day, **BY_LOG)
    days = [row(1, 1, day="mon"), row(2, 1, day="mon"), row(3, 1, day="tue")]
    send(kafka.address, one.topic, [*days, (b"3", None), row(1, 2, "b", day="tue"), (b"9", None)])
    one.land((0, 0, 3))
    one.land((0, 3, 6))
    found = [{"id": 1, "at": 2, "kind": "b", "day": "tue"}, {"id": 2, "at": 1, "kind": "a", "day": "mon"}]
    assert one.rows() == found
    assert one.rows(**{"hoodie.metadata.enable": "false"}) == found


def test_changes_whose_keys_and_partitions_read_alike_are_of_one_row(upserts: MakeUpserts, kafka) -> None:
    """Or Hudi would put two rows of one key into the table, for it is told that nothing is left to combine."""
    columns = {"ddl": "id string, code string, at bigint, zone string, place string", "record__key__fields": "id,code"}
    one = upserts(**columns, **NO_METADATA, partition__field__name="zone,place", partition__hive__style="false")
    keys = [("1", "2"), ("1,code:2", "3"), ("1", "2,code:3"), ("", "5"), ("__empty__", "5")]
    places = [(None, "z"), ("", "z"), ("x", "z")]
    rows = [(*key, *place) for place in places for key in keys]
    names = ("id", "code", "zone", "place", "at")
    events = [dict(zip(names, (*row, at), strict=True)) for at in (1, 2) for row in rows]
    send(kafka.address, one.topic, [(None, json.dumps(event).encode()) for event in events])
    one.land((0, 0, len(rows)))
    first = one.spark.read.format("hudi").load(one.settings.base_path).collect()
    hudis = [(row["_hoodie_record_key"], row["_hoodie_partition_path"]) for row in first]
    assert len(hudis) == len(set(hudis)) == 3 * 2
    assert {row["id"] for row in first} == {"1", "__empty__"}
    one.land((0, len(rows), 2 * len(rows)))
    second = one.spark.read.format("hudi").load(one.settings.base_path).collect()
    assert sorted((row["_hoodie_record_key"], row["_hoodie_partition_path"]) for row in second) == sorted(hudis)
    assert {row["at"] for row in second} == {2}


def test_a_log_files_column_statistics_are_those_that_hudi_reads_from_it(upserts: MakeUpserts, kafka) -> None:
    ddl = "id bigint, at bigint, kind string, amount decimal(10,2), day date, seen timestamp, flag boolean, part double"
    given = {**ON_READ, **BUCKETS, "hoodie__metadata__enable": "true", "ddl": ddl}
    more = {"day": "2024-02-29", "seen": "2024-02-29T10:00:00Z", "flag": True, "part": 0.5}
    changes = [row(key, at, "aé"[key % 2], amount=str(at + key), **more) for at in (1, 2) for key in range(9)]
    found = []
    for carried in (True, False):
        one = upserts(**given)
        send(kafka.address, one.topic, [*changes, (b"10", json.dumps({"id": 10}).encode())])
        one.land((0, 0, 9))
        instant = one.begin()
        written = one.write(instant, (0, 9, 19))
        stats = [json.loads(stat) for stat in written.stats]
        assert all(("columnStats" in stat) == ("logVersion" in stat) for stat in stats)
        bare = tuple(json.dumps({name: stat[name] for name in stat if name != "columnStats"}) for stat in stats)
        one.complete(instant, written if carried else replace(written, stats=bare))
        found.append(log_statistics(one))
    assert found[0] == found[1]
    assert {row["columnName"] for row in found[0]} >= {"id", "at", "kind", "amount", "day", "seen", "flag", "part"}


def log_statistics(one: Upserts) -> list[dict[str, object]]:
    """Statistics that the metadata table has of log files' columns."""
    table = one.spark.read.format("hudi").load(f"{one.settings.base_path}/.hoodie/metadata")
    rows = table.where("ColumnStatsMetadata is not null").select("ColumnStatsMetadata.*").collect()
    found = [row.asDict(recursive=True) for row in rows if ".log." in row["fileName"]]
    # Files and instants have other names in every table.
    ours = [row for row in found if not row["columnName"].startswith("_hoodie")]
    return sorted(({**row, "fileName": row["fileName"].split("-")[0]} for row in ours), key=str)


def test_debeziums_events_land_by_their_place_in_the_source(upserts: MakeUpserts, kafka) -> None:
    debezium = {"value__envelope": "debezium", "debezium__ordering": "lsn", "delete__key__format": "json"}
    one = upserts(ddl="id bigint, at bigint, kind string not null", **debezium, **NO_METADATA)

    def event(op: str, key: int, lsn: int, kind: str = "a", before: bool = True) -> Change:
        there = {"id": key, "at": lsn, "kind": kind}
        shown = {"before": there if op == "d" and before else None, "after": None if op == "d" else there}
        return json.dumps({"id": key}).encode(), json.dumps({**shown, "op": op, "source": {"lsn": lsn}}).encode()

    tombstone: Change = (b'{"id": 2}', None)
    first = [event("r", 1, 10), event("c", 2, 11), event("c", 3, 12), event("u", 1, 14, "b"), event("u", 1, 13, "late")]
    second = [event("d", 2, 20), tombstone, event("d", 3, 11), event("d", 1, 22, before=False), event("c", 4, 23)]
    send(kafka.address, one.topic, [*first, *second])
    one.land((0, 0, 5))
    assert one.brief() == {1: (14, "b"), 2: (11, "a"), 3: (12, "a")}
    one.land((0, 5, 10))
    assert one.brief() == {3: (12, "a"), 4: (23, "a")}
    send(kafka.address, one.topic, [event("u", 3, 11, "late"), event("u", 1, 21, "nobody remembers the delete")])
    one.land((0, 10, 12))
    assert one.brief() == {1: (21, "nobody remembers the delete"), 3: (12, "a"), 4: (23, "a")}


def test_a_bad_record_is_named_and_leaves_nothing_behind(upserts: MakeUpserts, kafka) -> None:
    one = upserts(**NO_METADATA)
    send(kafka.address, one.topic, [row(1, 1), row(2, 1), (b"1", None), (None, b"{}")])
    instant = one.begin()
    with pytest.raises(BadRecord, match=r"delete\.key\.format") as bad:
        one.write(instant, (0, 0, 4))
    assert (bad.value.topic, bad.value.partition, bad.value.offset) == (one.topic, 0, 2)
    one.table.roll_back(instant)
    assert not one.files()


def test_who_does_not_lead_rehearses_with_such_a_table(upserts: MakeUpserts) -> None:
    one = upserts(**ON_READ, **BUCKETS, **ORDERED, **NO_METADATA)
    rehearse(one.spark, one.settings, table_schema(one.settings))
    assert one.rows() == []


def test_inserts_fill_small_files_and_keep_every_record(upserts: MakeUpserts, kafka) -> None:
    one = upserts(write__operation="insert", ddl="id bigint, at bigint, kind string", **NO_METADATA)
    send(kafka.address, one.topic, [row(1, 1), row(2, 1), row(1, 2, "b"), row(1, 3, "c")])
    first, second = one.land((0, 0, 2)), one.land((0, 2, 4))
    assert [(each["id"], each["at"]) for each in one.rows()] == [(1, 1), (1, 2), (1, 3), (2, 1)]
    (before,), (after,) = stats_of(first), stats_of(second)
    assert before["fileId"] == after["fileId"]
    assert one.spark.sparkContext._jsc.getPersistentRDDs().isEmpty()


def plan_clustering(one: Upserts, partition: str = "") -> str:
    """As a clustering job of somebody else plans it."""
    options = {"hoodie.clustering.plan.strategy.partition.selected": partition} if partition else {}
    services = one.services(options)
    found = str(services.scheduleClustering(one.none).get())
    services.close()
    return found


def run_clustering(one: Upserts, instant: str) -> None:
    services = one.services()
    services.cluster(instant, True)
    services.close()


def pending_clusterings(one: Upserts) -> list[str]:
    timeline = one.hudi.meta_client().getActiveTimeline().filterPendingReplaceOrClusteringTimeline()
    return sorted(str(each.requestedTime()) for each in timeline.getInstants())
