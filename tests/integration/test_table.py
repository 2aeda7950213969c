"""The table's contract on real Hudi: what it commits, what it refuses, and what the timeline says of it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from coordination.errors import Conflict, Corrupt, OtherVersion, OutcomeUnknown, TableError, Unavailable
from coordination.state.model import InstantState, TableView
from sink.audit.timeline import metadata_of
from sink.hudi.client import HudiClient
from sink.hudi.files import Content, inspect_base_path
from sink.hudi.lock import TableLock, TableLocks
from sink.hudi.options import commit_options
from sink.hudi.table import Table, TableOutcome
from sink.schema.table_schema import parse_ddl
from sink.storage.files import PROBE_PREFIX
from tests.integration.conftest import MakeDriver
from tests.integration.table_kit import (
    CLUSTERING,
    DDL,
    Driver,
    OtherProcess,
    allow,
    checkpoint,
    other_writer_options,
    table_settings,
)
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

METADATA_TIMELINE = ".hoodie/metadata/.hoodie/timeline"
METADATA_TABLE = {"hoodie__metadata__enable": "true"}


class Refused(Exception):
    pass


@pytest.fixture
def driver(make_driver: MakeDriver) -> Driver:
    return make_driver()


@pytest.fixture(scope="module")
def processes() -> Iterator[list[OtherProcess]]:
    started: list[OtherProcess] = []
    yield started
    for process in started:
        process.kill()


@pytest.fixture
def other_process(driver: Driver, processes: list[OtherProcess], zookeeper) -> OtherProcess:
    """A process on a host in another time zone. Tests share it until one kills it."""
    if not processes or not processes[-1].running:
        processes.append(OtherProcess(Path(driver.settings.base_path), zookeeper.address, zone="Etc/GMT-10"))
    processes[-1].open(Path(driver.settings.base_path))
    return processes[-1]


@pytest.fixture(scope="module")
def ahead_processes() -> Iterator[list[OtherProcess]]:
    started: list[OtherProcess] = []
    yield started
    for process in started:
        process.kill()


@pytest.fixture
def process_ahead(driver: Driver, ahead_processes: list[OtherProcess], zookeeper) -> OtherProcess:
    """A process on a host whose clock is ahead, which tests share."""
    if not ahead_processes:
        ahead_processes.append(OtherProcess(Path(driver.settings.base_path), zookeeper.address))
        ahead_processes[-1].ask("set_clock_ahead")
    ahead_processes[-1].open(Path(driver.settings.base_path))
    return ahead_processes[-1]


def data_files(driver: Driver) -> set[str]:
    return {path.name for path in Path(driver.settings.base_path).rglob("*.parquet") if ".hoodie" not in path.parts}


def test_a_new_table_has_no_checkpoint_and_knows_no_instant(driver: Driver) -> None:
    view = driver.table.view(["20200101000000000"])
    assert view.checkpoint is None
    assert view.instants == {"20200101000000000": InstantState.ABSENT}
    assert view.orphans == ()
    assert view.commits_since == 0


def test_a_completed_instant_is_visible_with_its_checkpoint_and_specification(
    make_driver: MakeDriver,
) -> None:
    driver = make_driver(**METADATA_TABLE, time__unit="ms")
    instant = driver.table.begin(1, 1)
    stats = driver.write(instant, 0)
    assert driver.count() == 0
    assert driver.table.view([instant]).instants[instant] is InstantState.PENDING
    columns = driver.schema.columns_json
    assert driver.table.complete(instant, stats, checkpoint(1), allow, columns) is TableOutcome.COMPLETED
    [commit] = Path(driver.settings.base_path, ".hoodie", "timeline").glob(f"{instant}_*.commit")
    said = json.loads(metadata_of(commit.read_bytes())["extraMetadata"][f"sink.specification.{driver.settings.name}"])
    assert said == {"value.format": "json", "time.unit": [["", "ms"]]}
    view = driver.table.view([instant])
    assert view.checkpoint == checkpoint(1)
    assert view.instants[instant] is InstantState.COMPLETED
    assert driver.count() == driver.count(metadata=False) == 10


def test_an_instant_completes_once(driver: Driver, make_driver: MakeDriver) -> None:
    instant = driver.table.begin(1, 1)
    stats = driver.write(instant, 0)
    driver.table.complete(instant, stats, checkpoint(1), allow)
    outcome = make_driver().table.complete(instant, stats, checkpoint(1), allow)
    assert outcome is TableOutcome.ALREADY_COMPLETE
    assert driver.count() == 10


def test_a_commit_without_files_publishes_its_checkpoint(driver: Driver) -> None:
    driver.land(1)
    instant = driver.table.begin(2, 1)
    assert driver.table.complete(instant, [], checkpoint(2), allow) is TableOutcome.COMPLETED
    assert driver.table.view().checkpoint == checkpoint(2)
    assert driver.count() == 10


def test_the_guard_sees_the_newest_checkpoint_and_its_refusal_leaves_the_instant_pending(
    driver: Driver,
) -> None:
    driver.land(1)
    instant = driver.table.begin(2, 1)
    stats = driver.write(instant, 20)
    views: list[TableView] = []

    def guard(view: TableView) -> None:
        views.append(view)
        raise Refused

    with pytest.raises(Refused):
        driver.table.complete(instant, stats, checkpoint(2), guard)
    assert views[0].checkpoint == checkpoint(1)
    assert views[0].instants == {instant: InstantState.PENDING}
    assert driver.table.view([instant]).instants[instant] is InstantState.PENDING
    assert driver.count() == 10
    assert driver.table.complete(instant, stats, checkpoint(2), allow) is TableOutcome.COMPLETED
    assert driver.count() == 20


def test_a_heartbeat_that_could_not_be_started_does_not_stand_in_the_way_later(
    driver: Driver, make_driver: MakeDriver
) -> None:
    instant = driver.table.begin(1, 1)
    stats = driver.write(instant, 0)
    successor = make_driver().table
    heartbeats = Path(driver.settings.base_path, ".hoodie", ".heartbeat")
    moved_aside = heartbeats.rename(heartbeats.with_name("aside"))
    heartbeats.touch()
    with pytest.raises(Unavailable, match="heartbeat"):
        successor.complete(instant, stats, checkpoint(1), allow)
    heartbeats.unlink()
    moved_aside.rename(heartbeats)
    assert successor.complete(instant, stats, checkpoint(1), allow) is TableOutcome.COMPLETED


def test_a_rollback_whose_heartbeat_could_not_be_started_is_carried_out_later(driver: Driver) -> None:
    instant = driver.table.begin(1, 1)
    driver.write(instant, 0)
    heartbeats = Path(driver.settings.base_path, ".hoodie", ".heartbeat")
    moved_aside = heartbeats.rename(heartbeats.with_name("aside"))
    heartbeats.touch()
    with pytest.raises(OutcomeUnknown, match="heartbeat"):
        driver.table.roll_back(instant)
    heartbeats.unlink()
    moved_aside.rename(heartbeats)
    driver.table.roll_back(instant)
    assert driver.table.view([instant]).instants[instant] is InstantState.ROLLED_BACK


def test_two_processes_write_under_one_instant(driver: Driver, other_process: OtherProcess) -> None:
    instant = driver.table.begin(1, 1)
    stats = driver.write(instant, 0) + other_process.ask("write", instant, 10)
    assert driver.table.complete(instant, stats, checkpoint(1), allow) is TableOutcome.COMPLETED
    assert driver.count() == 20
    assert other_process.ask("complete", instant, stats, 1) == "ALREADY_COMPLETE"


@pytest.mark.parametrize("turn", [1, 2], ids=["before the metadata table", "before the timeline"])
def test_a_process_that_loses_the_lock_in_a_commit_completes_nothing_a_second_time(
    make_driver: MakeDriver,
    other_process: OtherProcess,
    zookeeper_client: KazooClient,
    monkeypatch: pytest.MonkeyPatch,
    turn: int,
) -> None:
    driver = make_driver(**METADATA_TABLE)
    base = Path(driver.settings.base_path)
    other_process.open(base, **METADATA_TABLE)
    instant = driver.table.begin(1, 1)
    stats = driver.write(instant, 0)
    ask, turns = TableLock.require_held, iter(range(1, turn + 1))
    in_metadata_table: list[list[str]] = []

    def stand_still(lock: TableLock) -> None:
        """Ends the session's znode, as ZooKeeper does when it has not heard of a process, and lets another go on."""
        if next(turns) == turn:
            monkeypatch.setattr(TableLock, "require_held", ask)
            assert len(completions(base / METADATA_TIMELINE, instant)) == turn - 1
            zookeeper_client.delete(f"{lock.path}/{lock.node}")
            assert other_process.ask("complete", instant, stats, 1) == "COMPLETED"
            second = other_process.ask("begin", 2, 2)
            assert other_process.ask("complete", second, other_process.ask("write", second, 10), 2) == "COMPLETED"
            in_metadata_table.append(completions(base / METADATA_TIMELINE, instant))
        ask(lock)

    monkeypatch.setattr(TableLock, "require_held", stand_still)
    with pytest.raises(Unavailable, match="no longer holds it"):
        driver.table.complete(instant, stats, checkpoint(1), allow)
    assert [completions(base / METADATA_TIMELINE, instant)] == in_metadata_table
    assert len(completions(base / ".hoodie/timeline", instant)) == 1
    assert driver.table.complete(instant, stats, checkpoint(1), allow) is TableOutcome.ALREADY_COMPLETE
    assert driver.count() == driver.count(metadata=False) == 20
    driver.land(3)
    assert driver.count() == driver.count(metadata=False) == 30


def completions(timeline: Path, instant: str) -> list[str]:
    return sorted(file.name for file in timeline.glob(f"{instant}_*"))


def test_a_rolled_back_instant_leaves_no_file_and_never_completes(driver: Driver, other_process: OtherProcess) -> None:
    driver.land(1)
    files_before = data_files(driver)
    instant = other_process.ask("begin", 2, 1)
    stats = other_process.ask("write", instant, 20)
    assert data_files(driver) > files_before
    driver.table.roll_back(instant)
    assert data_files(driver) == files_before
    assert driver.table.view([instant]).instants[instant] is InstantState.ROLLED_BACK
    late_stats = other_process.ask("write", instant, 20)
    assert data_files(driver) > files_before
    assert other_process.ask("complete", instant, stats + late_stats, 2) == "ROLLED_BACK"
    assert driver.count() == driver.count(metadata=False) == 10
    driver.table.roll_back(instant)
    driver.table.services()
    assert data_files(driver) == files_before


def test_rolling_back_what_never_was_changes_nothing(driver: Driver) -> None:
    driver.table.roll_back("20200101000000000")
    assert driver.table.view(["20200101000000000"]).instants == {"20200101000000000": InstantState.ABSENT}


def test_a_complete_instant_is_never_rolled_back(driver: Driver) -> None:
    instant = driver.land(1)
    with pytest.raises(Conflict, match="is complete"):
        driver.table.roll_back(instant)
    assert driver.count() == 10


def test_two_open_instants_complete_in_order(driver: Driver) -> None:
    first, second = driver.table.begin(1, 1), driver.table.begin(2, 1)
    assert driver.table.view().orphans == (first, second)
    second_stats = driver.write(second, 20)
    first_stats = driver.write(first, 10)
    assert driver.table.complete(first, first_stats, checkpoint(1), allow) is TableOutcome.COMPLETED
    assert driver.table.complete(second, second_stats, checkpoint(2), allow) is TableOutcome.COMPLETED
    assert driver.count() == driver.count(metadata=False) == 20


def test_an_instant_killed_between_requested_and_inflight_is_an_orphan(driver: Driver) -> None:
    instant = driver.table.begin(1, 1)
    timeline = Path(driver.settings.base_path, ".hoodie", "timeline")
    (timeline / f"{instant}.inflight").unlink()
    (timeline / f".{instant}.inflight.crc").unlink(missing_ok=True)
    assert driver.table.view([instant]).orphans == (instant,)
    driver.table.roll_back(instant)
    view = driver.table.view([instant])
    assert view.orphans == ()
    assert view.instants[instant] is InstantState.ROLLED_BACK


def test_pending_instants_of_others_are_no_orphans(driver: Driver, make_driver: MakeDriver) -> None:
    make_driver(sink__name="somebody").table.begin(1, 1)
    assert driver.table.view().orphans == ()


def test_an_expired_heartbeat_does_not_stop_a_commit(make_driver: MakeDriver) -> None:
    quick_heartbeat = {
        "hoodie__client__heartbeat__interval_in_ms": "1000",
        "hoodie__client__heartbeat__tolerable__misses": "1",
    }
    driver = make_driver(**quick_heartbeat)
    instant = driver.table.begin(1, 1)
    stats = driver.write(instant, 0)
    driver.table.stop_heartbeats()
    heartbeat = Path(driver.settings.base_path, ".hoodie", ".heartbeat", instant)
    assert heartbeat.exists()
    heartbeat.unlink()
    assert make_driver(**quick_heartbeat).table.complete(instant, stats, checkpoint(1), allow) is TableOutcome.COMPLETED
    assert driver.count() == 10


def test_commits_by_others_lie_between_ours(driver: Driver) -> None:
    driver.land(1)
    instant = driver.table.begin(2, 1)
    stats = driver.write(instant, 20)
    insert_by_spark(driver, 100)
    assert driver.table.complete(instant, stats, checkpoint(2), allow) is TableOutcome.COMPLETED
    insert_by_spark(driver, 101)
    view = driver.table.view()
    assert view.checkpoint == checkpoint(2)
    # Spark requested its first instant after ours, and completed it before ours.
    assert view.commits_since == 2
    assert driver.count() == driver.count(metadata=False) == 22


def test_an_instant_that_an_eager_writer_rolled_back_is_not_completed(driver: Driver) -> None:
    instant = driver.table.begin(1, 1)
    stats = driver.write(instant, 20)
    insert_by_spark(driver, 100, shared=False)
    assert driver.table.complete(instant, stats, checkpoint(1), allow) is TableOutcome.ROLLED_BACK
    assert driver.count() == 1


@pytest.mark.parametrize("when", ["between two transactions", "during one"])
def test_a_metadata_table_that_others_make_gets_all_that_a_sink_commits_which_wants_none(
    driver: Driver, when: str
) -> None:
    driver.land(1)
    pending = driver.table.begin(2, 1) if when == "during one" else ""
    insert_by_spark(driver, 100, metadata="true")
    if pending:
        driver.table.complete(pending, driver.write(pending, 20), checkpoint(2), allow)
    else:
        driver.land(2)
    assert driver.count() == driver.count(metadata=False) == 21
    driver.table.services()
    driver.land(3)
    driver.table.roll_back(driver.table.begin(4, 1))
    assert driver.count() == driver.count(metadata=False) == 31


def insert_by_spark(driver: Driver, number: int, shared: bool = True, metadata: str = "") -> None:
    """Inserts a row as another writer. With `shared` it is set to share the table; Hudi's default is to be alone.

    `metadata` says whether the writer wants a metadata table, by default as the sink does.
    """
    row = driver.spark.sql(
        f"select {number}L as id, 'b' as kind, 't' as _kafka_topic, 0 as _kafka_partition, {number}L as _kafka_offset,"
        " current_timestamp() as _kafka_timestamp"
    )
    writer = row.write.format("hudi").option("hoodie.table.name", driver.settings.table_name)
    writer = writer.option("hoodie.datasource.write.operation", "bulk_insert")
    if shared:
        options = other_writer_options(driver.settings)
        names = [name for name in options if name.startswith("hoodie.write.")]
        writer = writer.options(**{name: options[name] for name in names})
        writer = writer.option("hoodie.clean.failed.writes.policy", "LAZY")
    writer = writer.option("hoodie.metadata.enable", metadata or driver.settings.hudi["hoodie.metadata.enable"])
    writer.option("hoodie.clean.automatic", "false").mode("append").save(driver.settings.base_path)


def test_a_clustering_by_others_hides_nothing_and_its_file_ids_are_held(make_driver: MakeDriver) -> None:
    driver = make_driver(**METADATA_TABLE)
    driver.land(1)
    instant = driver.table.begin(2, 1)
    stats = driver.write(instant, 20)
    assert driver.table.existing_file_ids(stats) == ()
    driver.table.complete(instant, stats, checkpoint(2), allow)
    file_ids = driver.table.existing_file_ids(stats)
    assert len(file_ids) == 1
    driver.spark.sql(f"call run_clustering(path => '{driver.settings.base_path}')").collect()
    assert driver.table.existing_file_ids(stats) == file_ids
    driver.table.services()
    assert driver.table.existing_file_ids(stats) == file_ids
    assert driver.table.view().checkpoint == checkpoint(2)
    driver.land(3)
    assert driver.count() == driver.count(metadata=False) == 30


def test_file_ids_of_a_rolled_back_instant_are_not_held(driver: Driver) -> None:
    instant = driver.table.begin(1, 1)
    stats = driver.write(instant, 10)
    driver.table.roll_back(instant)
    driver.write(instant, 10)
    assert driver.table.existing_file_ids(stats) == ()


def test_a_checkpoint_that_was_archived_is_found(make_driver: MakeDriver) -> None:
    retention = {
        "hoodie__keep__min__commits": "3",
        "hoodie__keep__max__commits": "4",
        "hoodie__clean__commits__retained": "1",
    }
    driver, other_driver = make_driver(**retention), make_driver(sink__name="somebody", **retention)
    landed = driver.land(1)
    rolled_back = driver.table.begin(2, 1)
    driver.table.roll_back(rolled_back)
    for number in range(1, 9):
        instant = other_driver.table.begin(number, 1)
        stats = other_driver.write(instant, number * 100)
        other_driver.table.complete(instant, stats, checkpoint(number), allow)
    driver.table.services()
    active_instants = {
        path.name[:17] for path in Path(driver.settings.base_path, ".hoodie", "timeline").glob("*.commit")
    }
    assert landed not in active_instants
    view = make_driver(**retention).table.view([landed, rolled_back, "20200101000000000"])
    assert view.checkpoint == checkpoint(1)
    assert view.commits_since >= 8
    assert view.instants == {
        landed: InstantState.COMPLETED,
        rolled_back: InstantState.ROLLED_BACK,
        "20200101000000000": InstantState.ABSENT,
    }
    assert driver.count() == driver.count(metadata=False) == 90


def archive_beyond_savepoints(driver: Driver, hudi: HudiClient) -> None:
    """Has another writer commit a few times, and archive what has no savepoint."""
    for number in range(8):
        driver.land_as_another(1000 + 10 * number)
    beyond = {"hoodie.clean.commits.retained": "1", "hoodie.archive.beyond.savepoint": "true"}
    archiver = hudi.with_options({**commit_options(driver.settings.table), **beyond})
    archiver.client.archive()
    archiver.close()


def test_a_checkpoint_archived_beyond_a_savepoint_is_newer_than_the_savepoints(make_driver: MakeDriver) -> None:
    driver = make_driver(hoodie__keep__min__commits="3", hoodie__keep__max__commits="4")
    savepoint = driver.land(1)
    hudi = HudiClient(driver.spark, driver.settings.table.store, "{}", commit_options(driver.settings.table))
    hudi.client.savepoint(savepoint, "test", "before")
    newest = driver.land(2)
    archive_beyond_savepoints(driver, hudi)
    active = {entry.requested for entry in make_driver().table._timeline.snapshot().instants}
    assert savepoint in active
    assert newest not in active
    assert make_driver().table.view().checkpoint == checkpoint(2)
    hudi.client.deleteSavepoint(savepoint)
    hudi.close()
    assert savepoint in {entry.requested for entry in make_driver().table._timeline.snapshot().instants}
    for reader in (driver, make_driver()):
        assert reader.table.view().checkpoint == checkpoint(2)


@pytest.mark.thorough
def test_a_file_of_the_archive_that_somebody_has_deleted_is_named_and_waited_for(make_driver: MakeDriver) -> None:
    driver = make_driver(hoodie__keep__min__commits="3", hoodie__keep__max__commits="4")
    hudi = HudiClient(driver.spark, driver.settings.table.store, "{}", commit_options(driver.settings.table))
    driver.land(1)
    archive_beyond_savepoints(driver, hudi)
    hudi.close()
    [archived] = Path(driver.settings.base_path, ".hoodie", "timeline", "history").glob("*.parquet")
    archived.rename(kept := archived.with_suffix(".kept"))
    with pytest.raises(Unavailable, match=archived.name):
        make_driver()
    kept.rename(archived)
    assert make_driver().table.view().checkpoint == checkpoint(1)


def test_a_table_restored_past_an_archived_commit_is_refused(make_driver: MakeDriver) -> None:
    """Hudi removes what is active and later than the savepoint, and leaves the rows of what is archived."""
    driver = make_driver(hoodie__keep__min__commits="3", hoodie__keep__max__commits="4")
    hudi = HudiClient(driver.spark, driver.settings.table.store, "{}", commit_options(driver.settings.table))
    savepoint, removed, newest = (driver.land(number) for number in (1, 2, 3))
    for instant in (savepoint, removed):
        hudi.client.savepoint(instant, "test", "made later than all of them")
    archive_beyond_savepoints(driver, hudi)
    assert driver.table.view().checkpoint == checkpoint(3)
    hudi.client.deleteSavepoint(removed)
    hudi.client.restoreToSavepoint(savepoint)
    hudi.close()
    for reader in (driver, make_driver()):
        with pytest.raises(Corrupt, match=f"went back to {savepoint}, and left the later commit {newest}"):
            reader.table.view()


def test_a_sink_goes_on_from_the_commit_that_a_restore_went_back_to_when_it_is_archived(
    make_driver: MakeDriver,
) -> None:
    """The restore stays on the active timeline for longer."""
    driver = make_driver(hoodie__keep__min__commits="3", hoodie__keep__max__commits="4")
    hudi = HudiClient(driver.spark, driver.settings.table.store, "{}", commit_options(driver.settings.table))
    savepoint = driver.land(1)
    hudi.client.savepoint(savepoint, "test", "before")
    driver.land(2)
    hudi.client.restoreToSavepoint(savepoint)
    hudi.client.deleteSavepoint(savepoint)
    archive_beyond_savepoints(driver, hudi)
    hudi.close()
    active = {entry.requested: entry.action for entry in make_driver().table._timeline.snapshot().instants}
    assert "restore" in active.values()
    assert savepoint not in active
    for reader in (driver, make_driver()):
        assert reader.table.view().checkpoint == checkpoint(1)


def test_services_leave_a_pending_instant_alone_however_old_its_heartbeat(make_driver: MakeDriver) -> None:
    driver = make_driver()
    instant = driver.table.begin(1, 1)
    stats = driver.write(instant, 0)
    driver.table.stop_heartbeats()
    Path(driver.settings.base_path, ".hoodie", ".heartbeat", instant).unlink()
    driver.table.services()
    assert driver.table.complete(instant, stats, checkpoint(1), allow) is TableOutcome.COMPLETED
    assert driver.count() == 10


def test_a_table_of_another_protocol_version_is_refused_before_hudi_changes_it(
    driver: Driver, make_driver: MakeDriver
) -> None:
    driver.land(1)
    [commit] = Path(driver.settings.base_path, ".hoodie", "timeline").glob("*.commit")
    data = commit.read_bytes()
    assert data.count(b'{"format":1,') == 1
    commit.write_bytes(data.replace(b'{"format":1,', b'{"format":2,'))
    (commit.parent / f".{commit.name}.crc").unlink()
    files = {path: path.read_bytes() for path in Path(driver.settings.base_path).rglob("*") if path.is_file()}
    with pytest.raises(OtherVersion, match=r"protocol version 2\. This release reads version 1"):
        make_driver()
    assert files == {path: path.read_bytes() for path in Path(driver.settings.base_path).rglob("*") if path.is_file()}


def test_a_commit_that_cannot_be_read_is_an_error_and_not_a_new_table(driver: Driver, make_driver: MakeDriver) -> None:
    driver.land(1)
    timeline = Path(driver.settings.base_path, ".hoodie", "timeline")
    (commit,) = timeline.glob("*.commit")
    content = commit.read_bytes()
    (timeline / f".{commit.name}.crc").unlink()
    for damaged in (b"", content[:100], b"not avro at all"):
        commit.write_bytes(damaged)
        # Changed an hour later: it is none that a writer has left half-written.
        os.utime(commit, (time.time() + 3600,) * 2)
        with pytest.raises(Corrupt, match=commit.name[:17] if not damaged else "cannot be read"):
            Driver(driver.spark, driver.settings, None).table.view()
    commit.write_bytes(content)
    assert make_driver().table.view().checkpoint == checkpoint(1)


def test_a_place_that_holds_something_else_is_refused(
    spark: SparkSession, zookeeper_client, zookeeper, tmp_path: Path
) -> None:
    sink_settings = table_settings(tmp_path / "table", zookeeper.address)
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "letters.txt").write_text("mine")
    with pytest.raises(TableError, match=r"something else than a Hudi table \(letters.txt\)"):
        Driver(spark, sink_settings, zookeeper_client).table.ensure()
    assert [path.name for path in (tmp_path / "table").iterdir()] == ["letters.txt"]


def test_a_table_is_made_where_a_validation_that_was_killed_has_left_its_probe(
    spark: SparkSession, zookeeper_client, zookeeper, tmp_path: Path
) -> None:
    sink_settings = table_settings(tmp_path / "table", zookeeper.address)
    (tmp_path / "table" / f"{PROBE_PREFIX}0123" / ".hoodie").mkdir(parents=True)
    assert inspect_base_path(sink_settings.base_path).content is Content.NOTHING
    Driver(spark, sink_settings, zookeeper_client).table.ensure()
    assert inspect_base_path(sink_settings.base_path).content is Content.TABLE


@pytest.mark.parametrize(
    ("change", "error_text"),
    [
        ({"target__table__name": "invoices"}, "name: orders. The settings ask for invoices"),
        ({"partition__field__name": "kind"}, "partition columns: none. The settings ask for kind"),
        (
            {"record__key__fields": "id"},
            "record key: _kafka_topic,_kafka_partition,_kafka_offset. The settings ask for id",
        ),
        ({"hoodie__populate__meta__fields": "false"}, "meta columns: true. The settings ask for false"),
        (
            {"hoodie__write__lock__zookeeper__base_path": "/elsewhere"},
            "lock: {lock}. The settings ask for /elsewhere/orders",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_both_sides(
    driver: Driver, make_driver: MakeDriver, change: dict[str, str], error_text: str
) -> None:
    with pytest.raises(TableError) as refused:
        make_driver(**change)
    assert error_text.format(lock=driver.settings.table.lock.path) in str(refused.value)


def test_nothing_is_begun_or_completed_before_the_newest_completion(
    driver: Driver, process_ahead: OtherProcess
) -> None:
    instants = [driver.table.begin(number, 1) for number in (1, 2)]
    first, second = (driver.write(instant, 10 * number) for number, instant in enumerate(instants))
    assert process_ahead.ask("complete", instants[0], first, 1) == "COMPLETED"
    behind = r"the clock of this host, .* is behind that of another worker"
    with pytest.raises(Unavailable, match=behind):
        driver.table.complete(instants[1], second, checkpoint(2), allow)
    with pytest.raises(Unavailable, match=behind):
        driver.table.begin(3, 1)
    view = driver.table.view()
    assert (view.checkpoint, view.orphans) == (checkpoint(1), (instants[1],))


def test_an_instant_of_a_host_whose_clock_is_ahead_is_completed_after_its_own_time(
    driver: Driver, process_ahead: OtherProcess
) -> None:
    ahead = process_ahead.ask("begin", 1, 1)
    stats = driver.write(ahead, 0)
    with pytest.raises(Unavailable, match=f"the timeline has {ahead}, .* is behind that of another worker"):
        driver.table.complete(ahead, stats, checkpoint(1), allow)
    assert process_ahead.ask("complete", ahead, stats, 1) == "COMPLETED"


def test_nothing_is_completed_before_a_rewrite_that_a_host_whose_clock_is_ahead_has_planned(
    driver: Driver, process_ahead: OtherProcess
) -> None:
    """Readers would take it for a part of what a compaction has read, and not look for it."""
    for number in (1, 2):
        driver.land(number)
    instant = driver.table.begin(3, 1)
    stats = driver.write(instant, 30)
    process_ahead.open(Path(driver.settings.base_path), **CLUSTERING)
    planned = process_ahead.ask("plan", "Clustering")
    with pytest.raises(Unavailable, match=f"the timeline has {planned}, .* is behind that of another worker"):
        driver.table.complete(instant, stats, checkpoint(3), allow)
    assert process_ahead.ask("complete", instant, stats, 3) == "COMPLETED"


def test_a_rollback_that_another_writer_planned_and_left_is_finished_and_the_batch_formed_again(driver: Driver) -> None:
    instant = driver.table.begin(1, 1)
    stats = driver.write(instant, 0)
    driver.plan_rollback_as_another(instant)
    assert driver.table.complete(instant, stats, checkpoint(1), allow) is TableOutcome.ROLLED_BACK
    assert driver.table.view([instant]).instants[instant] is InstantState.ROLLED_BACK
    driver.land(1)
    assert driver.count() == driver.count(metadata=False) == 10


@pytest.mark.parametrize("is_behind", [False, True], ids=["", "by a host whose clock is behind"])
def test_nothing_is_begun_or_completed_while_a_restore_is_pending_or_with_files_from_before_one(
    driver: Driver, is_behind: bool
) -> None:
    kept = driver.land(1)
    driver.land(2)
    instant = driver.table.begin(3, 1)
    stats = driver.write(instant, 30)
    carry_out = driver.plan_restore_as_another(kept, str(int(instant) - 1) if is_behind else "")
    pending = "restore [0-9]+ of the table is pending"
    with pytest.raises(Unavailable, match=pending):
        driver.table.complete(instant, stats, checkpoint(3), allow)
    with pytest.raises(Unavailable, match=pending):
        driver.table.begin(3, 1)
    begun = {path: path.read_bytes() for path in Path(driver.settings.base_path).glob(f".hoodie/timeline/{instant}*")}
    carry_out()
    assert driver.table.view().checkpoint == checkpoint(1)
    # A restore to a compaction, or of a host whose clock is behind, leaves it.
    for path, content in begun.items():
        path.write_bytes(content)
    assert driver.table.complete(instant, stats, checkpoint(3), allow) is TableOutcome.CONFLICT
    driver.table.roll_back(instant)
    driver.land(2)
    assert driver.count() == driver.count(metadata=False) == 20


def test_what_a_late_task_left_before_the_first_commit_is_not_held_and_not_left(driver: Driver) -> None:
    """Readers take a file for committed if its instant is older than the timeline."""
    instant = driver.table.begin(1, 1)
    driver.table.roll_back(instant)
    late_stats = driver.write(instant, 0)
    assert data_files(driver)
    assert driver.table.existing_file_ids(late_stats) == ()
    assert data_files(driver) == set()


def test_what_a_late_task_left_of_a_batch_that_was_divided_since_is_not_left(driver: Driver) -> None:
    """The next attempt's files have other ids. There is no metadata table."""
    instant = driver.table.begin(1, 1)
    driver.table.roll_back(instant)
    driver.write(instant, 0)
    half_stats = driver.write(driver.table.begin(2, 1), 0, 5)
    assert driver.table.existing_file_ids(half_stats) == ()
    assert data_files(driver) == {Path(json.loads(stat)["path"]).name for stat in half_stats}


def test_instants_are_named_in_utc_whatever_the_zone_of_the_host(other_process: OtherProcess) -> None:
    instant = other_process.ask("begin", 1, 1)
    begun_at = datetime.strptime(instant, "%Y%m%d%H%M%S%f").replace(tzinfo=timezone.utc)
    assert abs(datetime.now(timezone.utc) - begun_at) < timedelta(hours=1)


def test_an_instant_of_a_killed_process_is_committed_by_another(driver: Driver, other_process: OtherProcess) -> None:
    instant = other_process.ask("begin", 1, 1)
    stats = other_process.ask("write", instant, 0) + driver.write(instant, 10)
    other_process.kill()
    assert driver.table.view().orphans == (instant,)
    assert driver.table.complete(instant, stats, checkpoint(1), allow) is TableOutcome.COMPLETED
    assert driver.count() == driver.count(metadata=False) == 20
    assert driver.table.view().orphans == ()


def test_a_schema_that_does_not_fit_is_refused_with_both_sides(driver: Driver, zookeeper_client: KazooClient) -> None:
    driver.land(1)
    for ddl, error_text in (
        ("id string, kind string", "id is BIGINT in the table, STRING in the records"),
        ("id bigint", "kind string is in the table, not in the schema"),
        (DDL + ", price double not null", "price is new and NOT NULL"),
    ):
        with pytest.raises(TableError) as refused:
            table = Table(
                driver.spark,
                driver.settings.table,
                parse_ddl(ddl),
                TableLocks(zookeeper_client, driver.settings.table.lock),
            )
            table.ensure()
        assert error_text in str(refused.value)


def test_workers_that_start_together_make_one_table(
    spark: SparkSession, zookeeper_client, zookeeper, tmp_path: Path
) -> None:
    sink_settings = table_settings(tmp_path / "table", zookeeper.address)
    drivers = [Driver(spark, sink_settings, zookeeper_client) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda driver: driver.table.ensure(), drivers))
    drivers[0].land(1)
    assert drivers[1].table.view().checkpoint == checkpoint(1)


def test_properties_that_another_worker_is_still_writing_are_read_again_under_the_lock(
    driver: Driver, zookeeper_client: KazooClient
) -> None:
    whole = (properties := Path(driver.settings.base_path, ".hoodie", "hoodie.properties")).read_text()
    checksum = properties.with_name(".hoodie.properties.crc")
    lines = whole.splitlines(keepends=True)
    locks = TableLocks(zookeeper_client, driver.settings.table.lock)
    for half in ("", "".join(line for line in lines if "hoodie.table.version" not in line)):
        other = Driver(driver.spark, driver.settings, zookeeper_client)
        with ThreadPoolExecutor(1) as pool:
            with locks("create"):
                checksum.unlink(missing_ok=True)
                properties.write_text(half)
                ensured = pool.submit(other.table.ensure)
                eventually("it queues", lambda: len(zookeeper_client.get_children(locks.path)) == 2, 120)
                properties.write_text(whole)
            assert ensured.result(120) is False


@pytest.mark.parametrize("metadata", ["true", "false"])
def test_a_partitioned_table_is_read_with_and_without_its_metadata_table(
    make_driver: MakeDriver, metadata: str
) -> None:
    driver = make_driver(partition__field__name="kind", hoodie__metadata__enable=metadata)
    instant = driver.table.begin(1, 1)
    stats = driver.write(instant, 0, kind="a") + driver.write(instant, 10, kind="b c")
    driver.table.complete(instant, stats, checkpoint(1), allow)
    assert {path.name for path in Path(driver.settings.base_path).glob("kind=*")} == {"kind=a", "kind=b c"}
    assert driver.count(metadata=False) == 20
    assert driver.count(metadata=metadata == "true") == 20


def test_a_writer_that_died_compacting_the_metadata_table_holds_nobody_up(
    make_driver: MakeDriver, tmp_path: Path
) -> None:
    driver = make_driver(**METADATA_TABLE, hoodie__metadata__compact__max__delta__commits="2")
    metadata, number = tmp_path / "table" / ".hoodie" / "metadata" / ".hoodie", 0
    while not (compactions := sorted((metadata / "timeline").glob("*.commit"))):
        number += 1
        driver.land(number)
    # This looks as if the writer had died just before the end.
    compactions[-1].unlink()
    (metadata / ".heartbeat").mkdir(exist_ok=True)
    (metadata / ".heartbeat" / compactions[-1].name.partition("_")[0]).touch()
    for later_number in range(number + 1, number + 4):
        driver.land(later_number)
    assert len(sorted((metadata / "timeline").glob("*.commit"))) > len(compactions) - 1, (
        "no writer has compacted it since"
    )
    assert driver.count() == driver.count(metadata=False) == 10 * (number + 3)
