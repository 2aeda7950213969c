"""Table services: who runs them, what they leave of the table, and what becomes of a run that fails or dies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from coordination.errors import Unavailable
from coordination.state import codec
from coordination.zookeeper.table_service_lock import Service, TableServiceLock, TableServiceRun
from sink.hudi import TableOutcome
from sink.hudi.client import HudiClient
from sink.hudi.lock import TableLocks
from sink.hudi.options import service_options
from sink.hudi.table_services import HudiTableServices
from sink.hudi.timeline import SINK_KEY
from sink.runtime.table_service_runner import TableServiceRunner
from sink.telemetry.metrics import ProcessMetrics
from tests.fleet import produce
from tests.integration.conftest import METADATA, PARTITIONS, MakeDriver, MakeFleet
from tests.integration.table_kit import SINK, Driver, allow, checkpoint, settings
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

DONE = (Service("cleaning", 0.5, "20260101000000000"),)


class Worker:
    """One that stands for the lock; its services are counted, and do nothing."""

    def __init__(self, place: Path, chroot: str, name: str, leads: bool = False) -> None:
        self.client = KazooClient(chroot)
        self.client.start()
        self.client.ensure_path("/s/workers")
        self.client.create(f"/s/workers/{name}", ephemeral=True)
        self.leads, self.runs, self.error = leads, 0, False
        self.may_end = threading.Event()
        self.may_end.set()
        given = settings(place / name, chroot, worker__id=name, services__interval__commits="5")
        self.lock = TableServiceLock(self.client, "/s", name)
        self.services = TableServiceRunner(given, self.lock, self.run, lambda: self.leads, ProcessMetrics().sink(name))
        self.services.start()

    def run(self) -> tuple[Service, ...]:
        self.runs += 1
        assert self.may_end.wait(60)
        if self.error:
            raise Unavailable("storage is away")
        return DONE

    def commit(self, number: int) -> None:
        """As the ledger has it once transaction `number` is settled."""
        self.client.ensure_path("/s/transactions")
        self.client.set("/s/transactions", codec.to_bytes({"committed": number}))

    def close(self) -> None:
        self.may_end.set()
        self.services.end()
        self.client.stop()
        self.client.close()


@pytest.fixture
def worker(chroot: str, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    made: list[Worker] = []

    def make(name: str, leads: bool = False) -> Worker:
        made.append(Worker(tmp_path, chroot, name, leads))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_leader_serves_as_long_as_it_is_alone_and_who_follows_goes_on_from_its_last_run(
    worker: Callable[..., Worker],
) -> None:
    leader = worker("leader", leads=True)
    leader.commit(4)
    leader.commit(7)
    eventually("the leader has served", lambda: leader.lock.last() is not None)
    assert leader.lock.last() == TableServiceRun("leader", leader.lock.last().ended, 7, DONE)
    follower = worker("follower")
    leader.commit(11)
    eventually("the leader has left the lock", lambda: not leader.lock._candidacy._lock.is_acquired)
    leader.commit(12)
    eventually("the follower has served", lambda: follower.runs == 1)
    assert leader.runs == 1
    assert follower.lock.last().committed == 12


def test_a_run_that_a_stop_interrupts_has_not_failed(worker: Callable[..., Worker]) -> None:
    only = worker("only")
    only.error = True
    only.may_end.clear()
    only.commit(5)
    eventually("it runs", lambda: only.runs == 1)
    with capture_logs() as lines:
        only.services.end()
        only.may_end.set()
        only.services.join(60)
    assert [line["event"] for line in lines if line["event"].startswith("services.")] == []


def test_a_run_that_fails_is_recorded_and_comes_again_after_as_many_transactions(
    worker: Callable[..., Worker],
) -> None:
    only = worker("only")
    only.error = True
    only.commit(5)
    eventually("a run is recorded", lambda: only.lock.last() is not None)
    [failed] = only.lock.last().failed
    assert "storage is away" in failed.reason
    only.error = False
    only.commit(9)
    only.commit(10)
    eventually("another run is recorded", lambda: not only.lock.last().failed)
    assert only.runs == 2


def test_a_record_that_nobody_understands_keeps_nobody_from_serving(worker: Callable[..., Worker]) -> None:
    first = worker("first")
    first.client.ensure_path("/s/services")
    first.client.set("/s/services", b"{broken")
    first.commit(5)
    eventually("a run is recorded", lambda: first.lock.last() is not None)


CLUSTERING = {"services__clustering": "true", "hoodie__clustering__async__max__commits": "1"}


def of(services: tuple[Service, ...]) -> dict[str, Service]:
    return {each.name: each for each in services}


def shown(driver: Driver) -> int:
    """Data files that a reader opens."""
    reader = driver.spark.read.format("hudi").option("hoodie.metadata.enable", "false")
    return len(set(reader.load(driver.settings.base_path).inputFiles()))


def services_of(driver: Driver) -> HudiClient:
    """As another worker has it."""
    given = driver.settings
    return HudiClient(driver.spark, given.base_path, driver.schema.avro(given.table_name), service_options(given))


def rows_of(spark: SparkSession, base: Path) -> list[tuple[int, str]]:
    return sorted((row.id, row.kind) for row in spark.read.format("hudi").load(str(base)).collect())


def test_clustering_beside_an_open_transaction_neither_stops_it_nor_is_stopped(make_driver: MakeDriver) -> None:
    driver = make_driver(**CLUSTERING)
    for number in range(1, 5):
        driver.land(number)
    instant = driver.table.begin(5, 1)
    stats = driver.write(instant, 50)
    driver.table.stop_heartbeats()
    Path(driver.settings.base_path, ".hoodie", ".heartbeat", instant).unlink()
    assert shown(driver) == 4
    done = of(driver.table.services())
    assert done["clustering"].instant
    assert not any(each.reason for each in done.values()), done
    assert shown(driver) == 1
    assert driver.table.existing_file_ids(stats) == ()
    assert driver.table.complete(instant, stats, checkpoint(5), allow) is TableOutcome.COMPLETED
    assert driver.count() == 50
    assert driver.table.view().checkpoint == checkpoint(5)
    # One file is small now, and alone: nothing is rewritten for its own sake.
    driver.land(6)
    assert of(driver.table.services())["clustering"].instant
    assert not of(driver.table.services())["clustering"].instant
    assert driver.count() == driver.count(metadata=False) == 60


def test_columns_that_came_later_are_kept_by_a_clustering(make_driver: MakeDriver, spark: SparkSession) -> None:
    # By rows Hudi asks the table for its columns; record by record it trusts its client.
    driver = make_driver(**CLUSTERING, hoodie__datasource__write__row__writer__enable="false")
    driver.land(1)
    base = driver.settings.base_path
    spark.sql(f"CREATE TABLE wider USING hudi LOCATION '{base}'")
    spark.sql("ALTER TABLE wider ADD COLUMNS (extra string)")
    rows = spark.read.format("hudi").load(base).selectExpr(*driver.schema.spark.names)
    later = rows.selectExpr("id + 100 as id", *driver.schema.spark.names[1:], "'kept' as extra")
    options = {**driver.settings.hudi, "hoodie.table.name": SINK, "hoodie.datasource.write.operation": "bulk_insert"}
    later.coalesce(1).write.format("hudi").options(**options).mode("append").save(base)
    assert of(driver.table.services())["clustering"].instant
    assert shown(driver) == 1
    assert spark.read.format("hudi").load(base).where("extra = 'kept'").count() == 10
    assert driver.count() == 20
    spark.sql("DROP TABLE wider")


def test_a_plan_that_was_left_behind_is_replaced_and_one_of_others_is_left_alone(make_driver: MakeDriver) -> None:
    driver = make_driver(**CLUSTERING)
    for number in (1, 2):
        driver.land(number)
    left = services_of(driver)
    ours = left.schedule("Clustering", {SINK_KEY: SINK})
    # Into the middle of it: files are written, and nothing is complete.
    left.client.cluster(ours, False).getWriteStatuses().collect()
    done = of(driver.table.services())
    assert done["clustering"].instant > ours
    with pytest.raises(Py4JJavaError, match="No value present"):
        left.execute("Clustering", ours)
    assert driver.count() == driver.count(metadata=False) == 20
    driver.land(3)
    theirs = left.schedule("Clustering", {})
    assert theirs
    driver.land(4)
    driver.table.services()
    left.execute("Clustering", theirs)
    assert driver.count() == driver.count(metadata=False) == 40
    left.close()


def test_a_service_that_cannot_work_is_told_of_and_keeps_none_and_no_commit_from_its_work(
    make_driver: MakeDriver,
) -> None:
    driver = make_driver(**CLUSTERING, hoodie__clustering__plan__strategy__class="no.such.Strategy")
    for number in (1, 2):
        driver.land(number)
    done = of(driver.table.services())
    assert "no.such.Strategy" in done["clustering"].reason
    assert not done["cleaning"].reason
    assert not done["archiving"].reason
    driver.land(3)
    assert driver.count() == 30


def test_a_merge_on_read_table_is_compacted_and_a_compaction_that_was_left_behind_is_replaced(
    spark: SparkSession, zookeeper_client: KazooClient, zookeeper, tmp_path: Path
) -> None:
    base = tmp_path / "table"
    given = settings(base, zookeeper.address, hoodie__compact__inline__max__delta__commits="2")
    driver = Driver(spark, given, zookeeper_client)
    spark.sql(
        f"CREATE TABLE merged (id bigint, kind string) USING hudi LOCATION '{base}' TBLPROPERTIES (type='mor',"
        " primaryKey='id', 'hoodie.metadata.enable'='false', 'hoodie.compact.inline'='false')"
    )
    spark.sql("INSERT INTO merged SELECT id, 'a' FROM range(10)")
    for number in range(3):
        spark.sql(f"UPDATE merged SET kind = 'b{number}' WHERE id = {number}")
    rows = rows_of(spark, base)
    left = services_of(driver)
    ours = left.schedule("Compaction", {SINK_KEY: SINK})
    late = left.client.compact(ours, False)
    late.getWriteStatuses().collect()
    done = of(HudiTableServices(left, given, TableLocks(zookeeper_client, given)).run())
    assert done["compaction"].instant > ours, done
    assert not any(each.reason for each in done.values()), done
    assert not list((base / ".hoodie" / "timeline").glob(f"{ours}*"))
    assert not list(base.glob(f"*_{ours}.parquet"))
    assert rows_of(spark, base) == rows
    with pytest.raises(IllegalArgumentException, match=r"compaction\.inflight does not exist"):
        left.client.commitCompaction(ours, late, left.option())
    assert rows_of(spark, base) == rows
    left.close()
    spark.sql("DROP TABLE merged")


@pytest.mark.thorough
def test_a_worker_killed_while_it_clusters_is_taken_over_and_every_record_is_there_once(fleet: MakeFleet) -> None:
    it = fleet(
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
    it.start("w1")
    it.coordinator()
    doomed = it.start("w2", "Clustering.scheduled=wait")
    it.wait("both are members", lambda view: len(view.members) == 2)
    produce(it.kafka, it.topic, 1800, PARTITIONS, first=900)
    it.wait_fired("Clustering.scheduled")
    timeline = it.table / ".hoodie" / "timeline"
    planned = max(timeline.glob("*.clustering.requested"))
    running = planned.with_name(planned.name.replace("requested", "inflight"))
    it.let_go("Clustering.scheduled")
    eventually("it is being carried out", running.exists, 60, it.logs)
    doomed.kill()
    assert not list(timeline.glob(f"{planned.name[:17]}_*")), "it was not killed in the middle"
    it.wait("its session has ended", lambda view: len(view.members) == 1)
    produce(it.kafka, it.topic, 1200, PARTITIONS, first=2700)
    it.wait_landed(dict.fromkeys(range(PARTITIONS), 1300))
    eventually("the plan of the dead is gone", lambda: not planned.exists(), 60, it.logs)

    def clustered_since() -> bool:
        return any(each.name[:17] > planned.name[:17] for each in timeline.glob("*.replacecommit"))

    eventually("another is carried out", clustered_since, 60, it.logs)
    it.assert_exactly_once(3900)
