"""Table services: which worker runs them, what they do to the table, and what follows a run that fails or dies."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl
from prometheus_client.parser import text_string_to_metric_families
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from coordination.errors import Unavailable
from coordination.state import codec
from coordination.zookeeper.records import AuditRecord
from coordination.zookeeper.table_service_lock import WHOLE_RUN, ServiceOutcome, TableServiceLock, TableServiceRun
from sink.clients.zookeeper.session import connected
from sink.config import Settings
from sink.hudi.client import HudiClient
from sink.hudi.table import TableOutcome
from sink.hudi.timeline import SINK_KEY
from sink.runtime.sinks import table_service_runner
from sink.runtime.sinks.table_reports import TableMetricsReporter
from sink.runtime.sinks.table_service_runner import MetadataServices, TableServiceRunner
from sink.telemetry.metrics import ProcessMetrics
from tests.fleet import produce
from tests.integration.conftest import METADATA, PARTITIONS, MakeDriver, MakeFleet
from tests.integration.rewrites_kit import At, other_services, service_client
from tests.integration.table_kit import CLUSTERING, SINK, Driver, allow, by_name, checkpoint, table_settings
from tests.integration.tls_kit import tls_zookeeper
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

DONE = (ServiceOutcome("cleaning", 0.5, "20260101000000000"),)
FAILED, DUE = "sink_table_service_failed", "sink_table_service_due_timestamp_seconds"
AWAY = Unavailable("storage is away")


class Worker:
    """A worker that contends for the lock. Its services do nothing but count their runs."""

    def __init__(self, directory: Path, chroot: str, name: str, leads: bool = False) -> None:
        self.client = KazooClient(chroot)
        self.client.start()
        self.client.ensure_path("/s/workers")
        self.client.create(f"/s/workers/{name}", ephemeral=True)
        self.leads, self.runs = leads, 0
        self.error: Exception | None = None
        self.metrics = ProcessMetrics()
        self.may_end = threading.Event()
        self.may_end.set()
        worker_settings = table_settings(directory / name, chroot, worker__id=name, services__interval__commits="5")
        self.lock = TableServiceLock(self.client, "/s", name)
        metrics = self.metrics.sink(name)
        self.services = TableServiceRunner(
            worker_settings,
            self.lock,
            self.run,
            lambda: self.leads,
            metrics,
            [],
            TableMetricsReporter(AuditRecord(self.client, "/s"), lambda: None, metrics),
            MetadataServices(lambda _wait: (), 1000),
            lambda run: run(),
        )
        self.services.start()

    def run(self) -> tuple[ServiceOutcome, ...]:
        self.runs += 1
        assert self.may_end.wait(60)
        if self.error is not None:
            raise self.error
        return DONE

    def shown(self, metric: str) -> dict[str, float]:
        """Returns the values of a metric by service."""
        families = text_string_to_metric_families(self.metrics.text().decode())
        samples = [sample for family in families for sample in family.samples if sample.name == metric]
        return {sample.labels["service"]: sample.value for sample in samples}

    def commit(self, number: int) -> None:
        """Writes to the ledger that transaction `number` is settled."""
        self.client.ensure_path("/s/transactions")
        self.client.set("/s/transactions", codec.to_bytes({"committed": number}))

    def close(self) -> None:
        self.may_end.set()
        self.services.end()
        self.client.stop()
        self.client.close()


@pytest.fixture
def make_worker(chroot: str, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    workers: list[Worker] = []

    def make(name: str, leads: bool = False) -> Worker:
        workers.append(Worker(tmp_path, chroot, name, leads))
        return workers[-1]

    yield make
    for started in workers:
        started.close()


def test_a_leader_serves_as_long_as_it_is_alone_and_who_follows_goes_on_from_its_last_run(
    make_worker: Callable[..., Worker],
) -> None:
    leader = make_worker("leader", leads=True)
    leader.commit(4)
    leader.commit(7)
    eventually("the leader has served", lambda: bool(leader.lock.last() and leader.lock.last().ended))
    assert leader.lock.last() == TableServiceRun("leader", leader.lock.last().ended, 7, DONE)
    follower = make_worker("follower")
    leader.commit(11)
    eventually("the leader has left the lock", lambda: not leader.lock._candidacy._lock.is_acquired)
    leader.commit(12)
    eventually("the follower has served", lambda: follower.runs == 1)
    assert leader.runs == 1
    eventually("the follower's run is recorded", lambda: follower.lock.last().committed == 12)


def test_a_run_that_a_stop_interrupts_has_not_failed(make_worker: Callable[..., Worker]) -> None:
    worker = make_worker("only")
    worker.error = AWAY
    worker.may_end.clear()
    worker.commit(5)
    eventually("the services run", lambda: worker.runs == 1)
    with capture_logs() as lines:
        worker.services.end()
        worker.may_end.set()
        worker.services.join(60)
    assert [line["event"] for line in lines if line["event"].startswith("services.")] == []


def test_a_run_that_fails_is_recorded_and_comes_again_after_as_many_transactions(
    make_worker: Callable[..., Worker],
) -> None:
    worker = make_worker("only")
    worker.error = AWAY
    worker.commit(5)
    eventually("a run is recorded", lambda: bool(worker.lock.last() and worker.lock.last().ended))
    [failed] = worker.lock.last().failed
    assert "storage is away" in failed.reason
    worker.error = None
    worker.commit(9)
    worker.commit(10)
    eventually("another run is recorded", lambda: not worker.lock.last().failed)
    assert worker.runs == 2


def test_a_defect_is_a_reason_like_any_other_and_ends_nothing(make_worker: Callable[..., Worker]) -> None:
    worker = make_worker("only")
    worker.error = TypeError("'JavaPackage' object is not callable")
    worker.commit(5)
    eventually("a run is recorded", lambda: bool(worker.lock.last() and worker.lock.last().ended))
    [failed] = worker.lock.last().failed
    assert failed.reason == "TypeError: 'JavaPackage' object is not callable"
    eventually("it shows", lambda: worker.shown(FAILED) == {WHOLE_RUN: 1})
    worker.error = None
    worker.commit(10)
    eventually("another run is recorded", lambda: not worker.lock.last().failed)
    eventually("it shows", lambda: worker.shown(FAILED) == {"cleaning": 0})


def test_a_run_that_hangs_is_due_since_it_began_and_so_it_is_for_the_next_worker(
    make_worker: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_service_runner, "WATCH_SECONDS", 0.0)
    leader = make_worker("leader", leads=True)
    hanging = make_worker("hanging")
    hanging.may_end.clear()
    leader.commit(5)
    eventually("the services run", lambda: hanging.runs == 1)
    due = leader.lock.last().due
    assert 0 < due <= time.time()
    eventually("the leader shows it", lambda: leader.shown(DUE) == {WHOLE_RUN: due})
    failing = make_worker("failing")
    failing.error = AWAY
    hanging.client.stop()
    eventually("the next worker has run", lambda: bool(leader.lock.last().ended))
    assert leader.lock.last().due_since == {WHOLE_RUN: due}
    failing.error = None
    leader.commit(10)
    eventually("it has succeeded", lambda: not leader.lock.last().due_since)
    eventually("the leader shows it", lambda: not leader.shown(DUE))


def test_a_leader_records_that_a_run_is_due_which_no_worker_begins(
    make_worker: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_service_runner, "WATCH_SECONDS", 0.0)
    leader = make_worker("leader", leads=True)
    # A worker that takes part, and serves no table.
    leader.client.create("/s/workers/idle", ephemeral=True)
    leader.commit(4)
    assert leader.lock.last() is None
    leader.commit(5)
    eventually("it is due", lambda: bool(leader.lock.last() and leader.lock.last().due))
    assert leader.lock.last().ended == 0


def test_a_lock_of_the_services_that_zookeeper_refuses_is_a_failure_with_its_reason(
    make_worker: Callable[..., Worker], chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_service_runner, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(table_service_runner, "WATCH_SECONDS", 0.2)
    owner = KazooClient(chroot, auth_data=[("digest", "other:secret")])
    owner.start()
    owner.ensure_path("/s/services")
    may_not_create = make_acl("world", "anyone", read=True, write=True)
    owner.set_acls("/s/services", [may_not_create, make_digest_acl("other", "secret", all=True)])
    worker = make_worker("only")
    worker.commit(5)
    eventually("it has failed", lambda: bool(worker.lock.last() and worker.lock.last().failed))
    [failed] = worker.lock.last().failed
    assert "NoAuthError" in failed.reason
    eventually("it shows", lambda: worker.shown(FAILED) == {WHOLE_RUN: 1})
    assert "NoAuthError" in worker.metrics.sink("only").service_trouble
    owner.set_acls("/s/services", [make_acl("world", "anyone", all=True)])
    eventually("it serves", lambda: worker.runs == 1)
    eventually("it has succeeded", lambda: not worker.lock.last().failed)
    owner.stop()
    owner.close()


def test_a_record_that_nobody_understands_keeps_nobody_from_serving(make_worker: Callable[..., Worker]) -> None:
    worker = make_worker("first")
    worker.client.ensure_path("/s/services")
    worker.client.set("/s/services", b"{broken")
    worker.commit(5)
    eventually("a run is recorded", lambda: bool(worker.lock.last() and worker.lock.last().ended))


def count_read_files(driver: Driver) -> int:
    """Returns the number of data files that a reader opens."""
    reader = driver.spark.read.format("hudi").option("hoodie.metadata.enable", "false")
    return len(set(reader.load(driver.settings.base_path).inputFiles()))


def rows_of(spark: SparkSession, base_path: Path) -> list[tuple[int, str]]:
    return sorted((row.id, row.kind) for row in spark.read.format("hudi").load(str(base_path)).collect())


def test_clustering_beside_an_open_transaction_neither_stops_it_nor_is_stopped(make_driver: MakeDriver) -> None:
    driver = make_driver(**CLUSTERING)
    for number in range(1, 5):
        driver.land(number)
    instant = driver.table.begin(5, 1)
    stats = driver.write(instant, 50)
    driver.table.stop_heartbeats()
    Path(driver.settings.base_path, ".hoodie", ".heartbeat", instant).unlink()
    assert count_read_files(driver) == 4
    results = by_name(driver.table.services())
    assert results["clustering"].instant
    assert not any(result.reason for result in results.values()), results
    assert count_read_files(driver) == 1
    assert driver.table.existing_file_ids(stats) == ()
    assert driver.table.complete(instant, stats, checkpoint(5), allow) is TableOutcome.COMPLETED
    assert driver.count() == 50
    assert driver.table.view().checkpoint == checkpoint(5)
    # One small file is left, and alone: Hudi does not rewrite it for its own sake.
    driver.land(6)
    assert by_name(driver.table.services())["clustering"].instant
    assert not by_name(driver.table.services())["clustering"].instant
    assert driver.count() == driver.count(metadata=False) == 60


def test_columns_that_came_later_are_kept_by_a_clustering(make_driver: MakeDriver, spark: SparkSession) -> None:
    # With the row writer Hudi takes the columns from the table; record by record it trusts its client.
    driver = make_driver(**CLUSTERING, hoodie__datasource__write__row__writer__enable="false")
    driver.land(1)
    base_path = driver.settings.base_path
    spark.sql(f"CREATE TABLE wider USING hudi LOCATION '{base_path}'")
    spark.sql("ALTER TABLE wider ADD COLUMNS (extra string)")
    rows = spark.read.format("hudi").load(base_path).selectExpr(*driver.schema.spark.names)
    wider_rows = rows.selectExpr("id + 100 as id", *driver.schema.spark.names[1:], "'kept' as extra")
    options = {**driver.settings.hudi, "hoodie.table.name": SINK, "hoodie.datasource.write.operation": "bulk_insert"}
    wider_rows.coalesce(1).write.format("hudi").options(**options).mode("append").save(base_path)
    assert by_name(driver.table.services())["clustering"].instant
    assert count_read_files(driver) == 1
    assert spark.read.format("hudi").load(base_path).where("extra = 'kept'").count() == 10
    assert driver.count() == 20
    spark.sql("DROP TABLE wider")


def test_a_plan_that_was_left_behind_is_replaced_and_one_of_others_is_left_alone(make_driver: MakeDriver) -> None:
    driver = make_driver(**CLUSTERING, services__overdue__after="1s")
    for number in (1, 2):
        driver.land(number)
    other_client = service_client(driver)
    our_plan = other_client.schedule("Clustering", {SINK_KEY: SINK})
    # The clustering stops in the middle: files are written, and nothing is complete.
    other_client.client.cluster(our_plan, False).getWriteStatuses().collect()
    results = by_name(driver.table.services())
    assert results["clustering"].instant > our_plan
    with pytest.raises(Py4JJavaError, match="No value present"):
        other_client.client.cluster(our_plan, True)
    assert driver.count() == driver.count(metadata=False) == 20
    driver.land(3)
    foreign_plan = other_client.schedule("Clustering", {})
    assert foreign_plan
    driver.land(4)
    text = f"clustering {foreign_plan} of another writer has been pending for"
    eventually("the plan is too old", lambda: text in by_name(driver.table.services())["archiving"].reason)
    other_client.client.cluster(foreign_plan, True)
    assert not by_name(driver.table.services())["archiving"].reason
    assert driver.count() == driver.count(metadata=False) == 40
    other_client.close()


@pytest.mark.thorough
def test_a_write_that_another_writer_left_pending_blocks_archiving_and_one_of_the_sink_does_not(
    make_driver: MakeDriver,
) -> None:
    driver = make_driver(services__overdue__after="1s")
    driver.land(1)
    driver.table.begin(2, 1)
    foreign = driver.begin_as_another()
    began = time.time()
    text = f"commit {foreign} of another writer has been pending for"
    eventually("it is too old", lambda: text in by_name(driver.table.services())["archiving"].reason)
    [archiving] = [service for service in driver.table.services() if service.reason]
    assert abs(archiving.since - began) < 2, "due since the instant was begun"


@pytest.mark.thorough
def test_a_compaction_that_another_writer_planned_and_left_is_the_reason_why_none_is_done(
    spark: SparkSession, zookeeper_client: KazooClient, zookeeper, tmp_path: Path
) -> None:
    base_path = tmp_path / "table"
    eager = {"hoodie__compact__inline__max__delta__commits": "1", "services__overdue__after": "1s"}
    driver = Driver(spark, table_settings(base_path, zookeeper.address, **eager), zookeeper_client)
    spark.sql(
        f"CREATE TABLE planned (id bigint, kind string) USING hudi LOCATION '{base_path}' TBLPROPERTIES (type='mor',"
        " primaryKey='id', 'hoodie.metadata.enable'='false', 'hoodie.compact.inline'='false')"
    )
    spark.sql("INSERT INTO planned SELECT id, 'a' FROM range(10)")
    spark.sql("UPDATE planned SET kind = 'b' WHERE id = 1")
    other_client = service_client(driver)
    plan = other_client.schedule("Compaction", {})
    text = f"compaction {plan} of another writer has been pending for"
    eventually("it is too old", lambda: text in by_name(driver.table.services())["compaction"].reason)
    assert text in by_name(driver.table.services())["archiving"].reason
    other_client.client.compact(plan, True)
    assert not any(service.reason for service in driver.table.services())
    other_client.close()
    spark.sql("DROP TABLE planned")


LIMITS = {
    "hoodie__keep__min__commits": "3",
    "hoodie__keep__max__commits": "4",
    "hoodie__clean__commits__retained": "1",
    "hoodie__metadata__enable": "true",
}


def assert_served(spark: SparkSession, settings: Settings, client: KazooClient) -> None:
    """Asserts that each service does its work on the table of these settings, beside transactions."""
    driver = Driver(spark, settings, client)
    driver.table.ensure()
    done: set[str] = set()
    for number in range(1, 13):
        driver.land(number)
        if number % 4 == 0:
            # Hudi archives no further than the metadata table is compacted.
            results = by_name((*driver.table.metadata_services(), *driver.table.services()))
            assert not any(service.reason for service in results.values()), results
            done |= {name for name, service in results.items() if service.instant}
    assert {"clustering", "cleaning", "metadata compaction"} <= done
    assert list(Path(settings.base_path, ".hoodie", "timeline", "history").glob("*.parquet"))
    assert driver.count() == driver.count(metadata=False) == 120


def test_a_table_is_cleaned_and_archived_whose_lock_only_the_sinks_user_may_take(
    spark: SparkSession, chroot: str, tmp_path: Path
) -> None:
    user = {"auth_data": [("digest", "sink:secret")], "default_acl": [make_digest_acl("sink", "secret", all=True)]}
    client = KazooClient(chroot, **user)
    client.start()
    assert_served(spark, table_settings(tmp_path / "table", chroot, **LIMITS, **CLUSTERING), client)
    for child in client.get_children("/"):
        client.delete(f"/{child}", recursive=True)
    client.stop()
    client.close()


@pytest.mark.thorough
def test_a_table_is_cleaned_and_archived_where_zookeeper_is_reached_by_tls_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    with tls_zookeeper(tmp_path / "tls") as (_, by_certificate):
        secured = table_settings(tmp_path / "table", "", **by_certificate, **LIMITS, **CLUSTERING)
        with connected(secured.ensemble) as client:
            assert_served(spark, secured, client)


def plan_cleaning(hudi: HudiClient, instant: str, files: list[Path], retained: str) -> None:
    """Plans that a cleaning, at this instant, deletes these files, as another writer does."""
    model, meta = hudi.jvm.org.apache.hudi.avro.model, hudi.meta_client()
    named = hudi.java_list([])
    for file in files:
        named.add(model.HoodieCleanFileInfo(str(file), False))
    by_partition = hudi.java_map({})
    by_partition.put("", named)
    plan = model.HoodieCleanerPlan.newBuilder().setPolicy("KEEP_LATEST_COMMITS").setVersion(2)
    plan.setLastCompletedCommitTimestamp(retained).setFilePathsToBeDeletedPerPartition(by_partition)
    plan.setEarliestInstantToRetain(model.HoodieActionInstant(retained, "commit", "COMPLETED"))
    requested = hudi.instant(meta, "REQUESTED", "clean", instant)
    meta.getActiveTimeline().saveToCleanRequested(requested, hudi.option(plan.build()))


def cleanings(driver: Driver) -> list[str]:
    """Returns the files of cleanings on the timeline."""
    return sorted(file.name for file in Path(driver.settings.base_path, ".hoodie", "timeline").glob("*.clean*"))


def dropped_cleanings(driver: Driver) -> list[str]:
    """Runs the services, none of which fails. Returns the instants of cleanings that they say they have dropped."""
    with capture_logs() as lines:
        results = by_name(driver.table.services())
    assert not any(result.reason for result in results.values()), results
    deleted = [line["file"] for line in lines if line["event"] == "half_written.deleted"]
    dropped = [line["instant"] for line in lines if line["event"] == "cleaning.dropped"]
    return dropped + [Path(file).name.partition(".")[0] for file in deleted]


def test_a_cleaning_that_was_planned_before_a_restore_deletes_nothing_and_the_next_one_goes_on(
    make_driver: MakeDriver,
) -> None:
    driver = make_driver(hoodie__metadata__enable="true", hoodie__clean__commits__retained="1", **CLUSTERING)
    kept = driver.land(1)
    base = Path(driver.settings.base_path)
    files = list(base.glob("*.parquet"))
    newest = driver.land(2)
    hudi = service_client(driver)
    hudi.client.savepoint(kept, "test", "before")
    planned = str(hudi.client.createNewInstantTime(False))
    plan_cleaning(hudi, planned, files, newest)
    restore = str(hudi.client.createNewInstantTime(False))
    table = hudi.java.table.HoodieSparkTable.create(hudi.config, hudi.engine_context, hudi.meta_client())
    assert table.scheduleRestore(hudi.engine_context, restore, kept).isPresent()
    results = by_name(driver.table.services())
    assert all(f"restore {restore} of the table is pending" in service.reason for service in results.values()), results
    table.getMetaClient().reloadActiveTimeline()
    table.restore(hudi.engine_context, restore, kept)
    hudi.client.deleteSavepoint(kept)
    hudi.close()
    assert dropped_cleanings(driver) == [planned]
    assert driver.count() == driver.count(metadata=False) == 10
    assert cleanings(driver) == []
    for number in range(3, 8):
        driver.land(number)
        assert dropped_cleanings(driver) == []
    assert len(cleanings(driver)) >= 3, "nothing was cleaned since"
    assert driver.count() == driver.count(metadata=False) == 60


@pytest.mark.thorough
def test_the_metadata_table_is_left_as_it_is_while_a_restore_is_pending(make_driver: MakeDriver) -> None:
    driver = make_driver(hoodie__metadata__enable="true", hoodie__metadata__compact__max__delta__commits="2")
    first = driver.land(1)
    driver.land(2)
    hudi = service_client(driver)
    restore = str(hudi.client.createNewInstantTime(False))
    table = hudi.java.table.HoodieSparkTable.create(hudi.config, hudi.engine_context, hudi.meta_client())
    assert table.scheduleRestore(hudi.engine_context, restore, first).isPresent()
    hudi.close()
    services = driver.table.metadata_services()
    assert services, "none was due"
    assert all(f"restore {restore} of the table is pending" in service.reason for service in services), services


@pytest.mark.thorough
@pytest.mark.parametrize("state", ["a savepoint was made since", "its files are gone already", "nothing was written"])
def test_a_cleaning_that_must_not_be_carried_out_is_dropped(make_driver: MakeDriver, state: str) -> None:
    driver = make_driver(hoodie__metadata__enable="true")
    first = driver.land(1)
    base = Path(driver.settings.base_path)
    files = list(base.glob("*.parquet"))
    newest = driver.land(2)
    hudi = service_client(driver)
    planned = str(hudi.client.createNewInstantTime(False))
    if state == "its files are gone already":
        files = [base / "gone.parquet"]
    else:
        hudi.client.savepoint(first, "test", "after the plan was made, and before it was written")
    plan_cleaning(hudi, planned, files, newest)
    if state == "nothing was written":
        base.joinpath(".hoodie", "timeline", f"{planned}.clean.requested").write_bytes(b"")
    hudi.close()
    assert dropped_cleanings(driver) == ([] if state == "its files are gone already" else [planned])
    assert driver.count() == driver.count(metadata=False) == 20
    driver.land(3)
    assert dropped_cleanings(driver) == []
    assert driver.count() == 30


def test_a_clustering_whose_plan_another_worker_has_dropped_adds_no_file_to_the_metadata_table(
    make_driver: MakeDriver, zookeeper_client: KazooClient
) -> None:
    driver = make_driver(**CLUSTERING)
    for number in (1, 2):
        driver.land(number)
    takeover = At("Clustering.written", other_services(driver, zookeeper_client).run)
    late = other_services(driver, zookeeper_client, takeover)
    results = by_name(late.run())
    assert takeover.reached
    assert "another worker has completed or dropped the plan" in results["clustering"].reason
    assert driver.count() == driver.count(metadata=False) == 20
    driver.land(3)
    assert driver.count() == driver.count(metadata=False) == 30


def test_a_service_that_cannot_work_is_told_of_and_keeps_none_and_no_commit_from_its_work(
    make_driver: MakeDriver,
) -> None:
    driver = make_driver(**CLUSTERING, hoodie__clustering__plan__strategy__partition__regex__pattern="[")
    for number in (1, 2):
        driver.land(number)
    results = by_name(driver.table.services())
    assert "Unclosed character class" in results["clustering"].reason
    assert not results["cleaning"].reason
    assert not results["archiving"].reason
    driver.land(3)
    assert driver.count() == 30


def test_a_manifest_that_a_killed_process_has_not_renamed_keeps_no_commit_from_the_archive(
    make_driver: MakeDriver,
) -> None:
    limits = {
        "hoodie__keep__min__commits": "3",
        "hoodie__keep__max__commits": "4",
        "hoodie__clean__commits__retained": "1",
    }
    driver = make_driver(**limits)
    history = Path(driver.settings.base_path) / ".hoodie" / "timeline" / "history"
    for number in range(1, 8):
        driver.land(number)
    assert not by_name(driver.table.services())["archiving"].reason
    archived = set(history.glob("*.parquet"))
    assert archived
    torn = history / f"manifest_2.{uuid.uuid4()}"
    torn.write_text("a process died before it renamed this")
    for number in range(8, 14):
        driver.land(number)
    assert not by_name(driver.table.services())["archiving"].reason
    assert set(history.glob("*.parquet")) - archived
    assert not torn.exists()


def test_a_compaction_that_was_left_behind_is_carried_out_again_and_its_first_attempt_is_refused(
    spark: SparkSession, zookeeper_client: KazooClient, zookeeper, tmp_path: Path
) -> None:
    base_path = tmp_path / "table"
    sink_settings = table_settings(base_path, zookeeper.address, hoodie__compact__inline__max__delta__commits="2")
    driver = Driver(spark, sink_settings, zookeeper_client)
    spark.sql(
        f"CREATE TABLE merged (id bigint, kind string) USING hudi LOCATION '{base_path}' TBLPROPERTIES (type='mor',"
        " primaryKey='id', 'hoodie.metadata.enable'='false', 'hoodie.compact.inline'='false')"
    )
    spark.sql("INSERT INTO merged SELECT id, 'a' FROM range(10)")
    for number in range(3):
        spark.sql(f"UPDATE merged SET kind = 'b{number}' WHERE id = {number}")
    rows = rows_of(spark, base_path)
    takeover = At("Compaction.written", other_services(driver, zookeeper_client).run)
    results = by_name(other_services(driver, zookeeper_client, takeover).run())
    assert takeover.reached
    assert "another worker has completed or dropped the plan" in results["compaction"].reason
    [completed] = (base_path / ".hoodie" / "timeline").glob("*.commit")
    assert len(list(base_path.glob(f"*_{completed.name[:17]}.parquet"))) == 1
    assert rows_of(spark, base_path) == rows
    spark.sql("DROP TABLE merged")


@pytest.mark.thorough
def test_a_worker_killed_while_it_clusters_is_taken_over_and_every_record_is_there_once(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(
        records=900,
        **METADATA,
        **{
            "services.clustering": True,
            "services.interval.commits": 2,
            "hoodie.clustering.async.max.commits": 1,
            "flush.size": 200,
            "slice.records": 100,
            "transaction.interval.ms": 100,
            "hoodie.metadata.index.column.stats.enable": False,
        },
    )
    fleet.start("w1")
    fleet.coordinator()
    doomed = fleet.start("w2", "Clustering.scheduled=wait")
    fleet.wait("both are members", lambda view: len(view.members) == 2)
    produce(fleet.kafka, fleet.topic, 1800, PARTITIONS, first=900)
    fleet.wait_fired("Clustering.scheduled")
    timeline = fleet.table / ".hoodie" / "timeline"
    plan_file = max(timeline.glob("*.clustering.requested"))
    inflight_file = plan_file.with_name(plan_file.name.replace("requested", "inflight"))
    fleet.release("Clustering.scheduled")
    eventually("the plan is carried out", inflight_file.exists, 60, fleet.logs)
    doomed.kill()
    assert not list(timeline.glob(f"{plan_file.name[:17]}_*")), "the worker was not killed in the middle"
    fleet.wait("its session has ended", lambda view: len(view.members) == 1)
    produce(fleet.kafka, fleet.topic, 1200, PARTITIONS, first=2700)
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), 1300))
    eventually("the dead worker's plan is gone", lambda: not plan_file.exists(), 60, fleet.logs)

    def clustered_since() -> bool:
        return any(file.name[:17] > plan_file.name[:17] for file in timeline.glob("*.replacecommit"))

    eventually("another plan is carried out", clustered_since, 60, fleet.logs)
    fleet.assert_exactly_once(3900)
