"""Table services: which worker runs them, what they do to the table, and what follows a run that fails or dies."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from coordination.errors import Unavailable
from coordination.state import codec
from coordination.zookeeper.records import AuditRecord
from coordination.zookeeper.table_service_lock import Service, TableServiceLock, TableServiceRun
from sink.hudi import TableOutcome
from sink.hudi.client import HudiClient
from sink.hudi.lock import TableLocks
from sink.hudi.options import service_options
from sink.hudi.table_services import HudiTableServices
from sink.hudi.timeline import SINK_KEY
from sink.runtime.table_reports import TableReports
from sink.runtime.table_service_runner import MetadataUpkeep, TableServiceRunner
from sink.telemetry.metrics import ProcessMetrics
from tests.fleet import produce
from tests.integration.conftest import METADATA, PARTITIONS, MakeDriver, MakeFleet
from tests.integration.table_kit import SINK, Driver, allow, checkpoint, table_settings
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

DONE = (Service("cleaning", 0.5, "20260101000000000"),)


class Worker:
    """A worker that contends for the lock. Its services do nothing but count their runs."""

    def __init__(self, directory: Path, chroot: str, name: str, leads: bool = False) -> None:
        self.client = KazooClient(chroot)
        self.client.start()
        self.client.ensure_path("/s/workers")
        self.client.create(f"/s/workers/{name}", ephemeral=True)
        self.leads, self.runs, self.error = leads, 0, False
        self.may_end = threading.Event()
        self.may_end.set()
        worker_settings = table_settings(directory / name, chroot, worker__id=name, services__interval__commits="5")
        self.lock = TableServiceLock(self.client, "/s", name)
        metrics = ProcessMetrics().sink(name)
        self.services = TableServiceRunner(
            worker_settings,
            self.lock,
            self.run,
            lambda: self.leads,
            metrics,
            None,
            TableReports(AuditRecord(self.client, "/s"), lambda: None, metrics),
            MetadataUpkeep(lambda _wait: (), 1000),
            lambda run: run(),
        )
        self.services.start()

    def run(self) -> tuple[Service, ...]:
        self.runs += 1
        assert self.may_end.wait(60)
        if self.error:
            raise Unavailable("storage is away")
        return DONE

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
    eventually("the leader has served", lambda: leader.lock.last() is not None)
    assert leader.lock.last() == TableServiceRun("leader", leader.lock.last().ended, 7, DONE)
    follower = make_worker("follower")
    leader.commit(11)
    eventually("the leader has left the lock", lambda: not leader.lock._candidacy._lock.is_acquired)
    leader.commit(12)
    eventually("the follower has served", lambda: follower.runs == 1)
    assert leader.runs == 1
    assert follower.lock.last().committed == 12


def test_a_run_that_a_stop_interrupts_has_not_failed(make_worker: Callable[..., Worker]) -> None:
    worker = make_worker("only")
    worker.error = True
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
    worker.error = True
    worker.commit(5)
    eventually("a run is recorded", lambda: worker.lock.last() is not None)
    [failed] = worker.lock.last().failed
    assert "storage is away" in failed.reason
    worker.error = False
    worker.commit(9)
    worker.commit(10)
    eventually("another run is recorded", lambda: not worker.lock.last().failed)
    assert worker.runs == 2


def test_a_record_that_nobody_understands_keeps_nobody_from_serving(make_worker: Callable[..., Worker]) -> None:
    worker = make_worker("first")
    worker.client.ensure_path("/s/services")
    worker.client.set("/s/services", b"{broken")
    worker.commit(5)
    eventually("a run is recorded", lambda: worker.lock.last() is not None)


CLUSTERING = {"services__clustering": "true", "hoodie__clustering__async__max__commits": "1"}


def by_name(results: tuple[Service, ...]) -> dict[str, Service]:
    return {result.name: result for result in results}


def count_read_files(driver: Driver) -> int:
    """Returns the number of data files that a reader opens."""
    reader = driver.spark.read.format("hudi").option("hoodie.metadata.enable", "false")
    return len(set(reader.load(driver.settings.base_path).inputFiles()))


def service_client(driver: Driver) -> HudiClient:
    """Returns the client for table services, as another worker has it."""
    sink_settings = driver.settings
    return HudiClient(
        driver.spark,
        sink_settings.base_path,
        driver.schema.avro(sink_settings.table_name),
        service_options(sink_settings),
    )


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
    driver = make_driver(**CLUSTERING)
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
    driver.table.services()
    other_client.client.cluster(foreign_plan, True)
    assert driver.count() == driver.count(metadata=False) == 40
    other_client.close()


def test_a_table_is_cleaned_and_archived_whose_lock_only_the_sinks_user_may_take(
    spark: SparkSession, chroot: str, tmp_path: Path
) -> None:
    limits = {"keep__min__commits": "3", "keep__max__commits": "4", "clean__commits__retained": "1"}
    often = {f"hoodie__{name}": value for name, value in limits.items()}
    sink_settings = table_settings(tmp_path / "table", chroot, hoodie__metadata__enable="true", **often, **CLUSTERING)
    user = {"auth_data": [("digest", "sink:secret")], "default_acl": [make_digest_acl("sink", "secret", all=True)]}
    client = KazooClient(chroot, **user)
    client.start()
    driver = Driver(spark, sink_settings, client)
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
    assert list((tmp_path / "table" / ".hoodie" / "timeline" / "history").glob("*.parquet"))
    assert driver.count() == driver.count(metadata=False) == 120
    for child in client.get_children("/"):
        client.delete(f"/{child}", recursive=True)
    client.stop()
    client.close()


def test_a_cleaning_that_was_planned_before_a_restore_deletes_nothing(make_driver: MakeDriver) -> None:
    driver = make_driver()
    kept = driver.land(1)
    driver.land(2)
    hudi = service_client(driver)
    hudi.client.savepoint(kept, "test", "before")
    meta = hudi.meta_client()
    planned = str(hudi.client.createNewInstantTime(False))
    requested = hudi.instant(meta, "REQUESTED", "clean", planned)
    plan = hudi.jvm.org.apache.hudi.avro.model.HoodieCleanerPlan.newBuilder()
    plan.setPolicy("KEEP_LATEST_COMMITS").setLastCompletedCommitTimestamp(kept)
    plan.setFilesToBeDeletedPerPartition(hudi.jvm.java.util.HashMap())
    meta.getActiveTimeline().saveToCleanRequested(requested, hudi.option(plan.build()))
    restore = str(hudi.client.createNewInstantTime(False))
    table = hudi.java.table.HoodieSparkTable.create(hudi.config, hudi.engine_context, hudi.meta_client())
    assert table.scheduleRestore(hudi.engine_context, restore, kept).isPresent()
    assert f"restore {restore} of the table is pending" in by_name(driver.table.services())["cleaning"].reason
    table.getMetaClient().reloadActiveTimeline()
    table.restore(hudi.engine_context, restore, kept)
    hudi.close()
    assert "the table was restored since" in by_name(driver.table.services())["cleaning"].reason
    assert driver.count() == 10


class Takeover:
    """Failpoints of a run of services: another worker takes over when the files of the first plan are written."""

    def __init__(self, point: str, run: Callable[[], object]) -> None:
        self._point = point
        self._run = run
        self.taken = False

    def reach(self, point: str) -> None:
        if point == self._point and not self.taken:
            self.taken = True
            self._run()


def test_a_clustering_whose_plan_another_worker_has_dropped_adds_no_file_to_the_metadata_table(
    make_driver: MakeDriver, zookeeper_client: KazooClient
) -> None:
    driver = make_driver(**CLUSTERING)
    for number in (1, 2):
        driver.land(number)
    locks = TableLocks(zookeeper_client, driver.settings)
    late, successor = (HudiTableServices(service_client(driver), driver.settings, locks) for _ in range(2))
    takeover = Takeover("Clustering.written", successor.run)
    late._failpoints = takeover  # type: ignore[assignment]
    results = by_name(late.run())
    assert takeover.taken
    assert "another worker has completed or dropped the plan meanwhile" in results["clustering"].reason
    assert driver.count() == driver.count(metadata=False) == 20
    driver.land(3)
    assert driver.count() == driver.count(metadata=False) == 30


def test_a_service_that_cannot_work_is_told_of_and_keeps_none_and_no_commit_from_its_work(
    make_driver: MakeDriver,
) -> None:
    driver = make_driver(**CLUSTERING, hoodie__clustering__plan__strategy__class="no.such.Strategy")
    for number in (1, 2):
        driver.land(number)
    results = by_name(driver.table.services())
    assert "no.such.Strategy" in results["clustering"].reason
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
    locks = TableLocks(zookeeper_client, sink_settings)
    first, second = (HudiTableServices(service_client(driver), sink_settings, locks) for _ in range(2))
    takeover = Takeover("Compaction.written", second.run)
    first._failpoints = takeover  # type: ignore[assignment]
    results = by_name(first.run())
    assert takeover.taken
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
