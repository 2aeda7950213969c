"""A rewrite of the table's files keeps every commit, wherever the process that carries it out dies or stops."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hudi import HudiTableBuilder

from sink.hudi.client import HudiClient
from sink.hudi.leftovers import note_rollback
from sink.hudi.options import commit_options
from sink.hudi.table import TableOutcome
from sink.hudi.timeline import SINK_KEY
from sink.schema.table_schema import parse_ddl
from tests.integration.conftest import MakeDriver, Open
from tests.integration.rewrites_kit import STEPS, At, ServiceProcess, Step, instants, other_services, service_client
from tests.integration.table_kit import CLUSTERING, SINK, Driver, allow, by_name, checkpoint
from tests.integration.upsert_kit import BUCKETS, INDEXES, ON_READ, Upserts, assert_rows, change, send
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

DDL = "id BIGINT, at BIGINT, number INT"
WIDER_DDL = f"{DDL}, added STRING"
EAGER = {"hoodie__metadata__enable": "true", "hoodie__compact__inline__max__delta__commits": "1"}


def die_before_the_timeline(hudi: HudiClient) -> str:
    """Plans a compaction and carries it out as far as Hudi's metadata table, as a process does that is killed then."""
    instant = hudi.schedule("Compaction", {SINK_KEY: SINK})
    written = hudi.client.compact(instant, False)
    stats = hudi.jvm.java.util.ArrayList()
    for slim in getattr(getattr(hudi.java.client, "SparkRDDWriteClient$SlimWriteStats"), "from")(
        written.getWriteStatuses()
    ):
        stats.add(slim.getWriteStat())
    hudi.java.util.CommonClientUtils.stitchCompactionHoodieWriteStats(written, stats)
    table = hudi.java.table.HoodieSparkTable.create(hudi.config, hudi.engine_context, hudi.meta_client())
    table.getMetadataWriter(instant).get().update(written.getCommitMetadata().get(), instant)
    return instant


@pytest.mark.parametrize("index", ["bucket", "record"])
def test_a_compaction_that_dies_between_metadata_table_and_timeline_loses_no_update(
    open_upserts: Open, kafka, index: str
) -> None:
    upserts = open_upserts(**ON_READ, **EAGER, **INDEXES[index])
    send(kafka.address, upserts.topic, [change(key, at) for at in range(1, 6) for key in range(10)])
    upserts.land((0, 0, 10))
    upserts.land((0, 10, 20))
    dead = service_client(upserts)
    instant = die_before_the_timeline(dead)
    upserts.land((0, 20, 30))
    upserts.land((0, 30, 40))
    assert_rows(upserts, {key: {"at": 4, "number": 4} for key in range(10)})
    results = by_name(upserts.table.services())
    assert results["compaction"].instant == instant, results
    assert_rows(upserts, {key: {"at": 4, "number": 4} for key in range(10)})
    upserts.land((0, 40, 50))
    assert by_name(upserts.table.services())["compaction"].instant > instant
    assert_rows(upserts, {key: {"at": 5, "number": 5} for key in range(10)})


@pytest.fixture
def service_process(tmp_path: Path) -> Iterator[Callable[[Upserts], ServiceProcess]]:
    processes: list[ServiceProcess] = []

    def start(upserts: Upserts) -> ServiceProcess:
        [properties] = Path(upserts.settings.base_path).parent.glob("*.properties")
        processes.append(ServiceProcess(properties, tmp_path / f"services-{len(processes)}.log"))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()


def test_a_compaction_that_is_carried_out_again_outlasts_the_tasks_of_a_stopped_process(
    open_upserts: Open, kafka, service_process: Callable[[Upserts], ServiceProcess]
) -> None:
    upserts = open_upserts(**ON_READ, **EAGER, **BUCKETS)
    send(kafka.address, upserts.topic, [change(key, at) for at in range(1, 4) for key in range(10)])
    upserts.land((0, 0, 10))
    upserts.land((0, 10, 20))
    base = Path(upserts.settings.base_path)
    base_files = set(base.glob("*.parquet"))
    first = service_process(upserts)
    first.begin()
    eventually("the first attempt writes a file", lambda: set(base.glob("*.parquet")) - base_files, 120)
    first.pause()
    [plan] = (base / ".hoodie" / "timeline").glob("*.compaction.requested")
    instant = plan.name.partition(".")[0]
    assert not list(plan.parent.glob(f"{instant}_*")), "the first attempt was complete before it was stopped"
    results = by_name(upserts.table.services())
    assert results["compaction"].instant == instant, results
    upserts.land((0, 20, 30))
    rows = {key: {"at": 3, "number": 3} for key in range(10)}
    assert_rows(upserts, rows)
    first.resume()
    # Its late task misses its file, or it finds under the table lock that the plan is complete.
    assert first.results()["compaction"]["reason"]
    assert_rows(upserts, rows)
    assert by_name(upserts.table.services())["compaction"].instant > instant
    assert_rows(upserts, rows)


@pytest.mark.thorough
def test_a_compaction_that_is_killed_after_any_of_its_steps_loses_no_commit(
    open_upserts: Open, kafka, service_process: Callable[[Upserts], ServiceProcess]
) -> None:
    """Clusterings and cleanings that are killed are steps of `tests/rewrites`."""
    settings = {
        "services__compaction": "true",
        "services__clustering": "false",
        "hoodie__clean__commits__retained": "1",
    }
    upserts = open_upserts(**ON_READ, **EAGER, **INDEXES["bucket"], **settings)
    base, at = Path(upserts.settings.base_path), 0

    def land() -> dict[int, dict[str, int]]:
        """Changes every key. Returns the rows of the table after that."""
        nonlocal at
        send(kafka.address, upserts.topic, [change(key, at + 1) for key in range(10)])
        upserts.land((0, 10 * at, 10 * at + 10))
        at += 1
        return {key: {"at": at, "number": at} for key in range(10)}

    for _ in range(3):
        land()
        upserts.table.services()
    for name in STEPS:
        land()
        assert_rows(upserts, land())
        process, earlier = service_process(upserts), instants(base, "compaction")
        process.begin()
        assert process.kill_at(Step("compaction", name), base, earlier), f"the compaction was not {name}"
        assert_rows(upserts, land())
        for _ in range(2):
            results = by_name(upserts.table.services())
            assert not any(result.reason for result in results.values()), (name, results)
            assert_rows(upserts, land())


def test_a_compaction_has_the_columns_of_the_moment_of_its_completion(
    open_upserts: Open, kafka, zookeeper_client
) -> None:
    upserts = open_upserts(**ON_READ, **EAGER, **BUCKETS)
    send(kafka.address, upserts.topic, [*(change(key, at) for at in (1, 2) for key in range(10))])
    send(kafka.address, upserts.topic, [change(key, 3, added="a") for key in range(5)])
    upserts.land((0, 0, 10))
    upserts.land((0, 10, 20))
    wider = open_upserts(WIDER_DDL, **ON_READ, **EAGER, **BUCKETS)
    instant = wider.begin()
    written = wider.write(instant, (0, 20, 25))
    widen = At("Compaction.written", lambda: wider.complete(instant, written))
    results = by_name(other_services(upserts, zookeeper_client, widen).run())
    assert results["compaction"].instant > instant, results
    assert widen.reached
    new = {key: {"at": 3, "number": 3, "added": "a"} for key in range(5)}
    old = {key: {"at": 2, "number": 2, "added": None} for key in range(5, 10)}
    assert_rows(upserts, {**new, **old})


class Appends:
    """An append table of one transaction a file, whose columns a transaction may widen."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._number = driver, 0
        self.base_path = driver.settings.base_path

    def begin(self, ddl: str, row: str) -> Callable[[], TableOutcome]:
        """Begins a transaction of ten rows, whose columns `row` computes from `id`, and writes them. Returns what
        completes it.
        """
        driver, self._number = self._driver, self._number + 1
        number, schema, instant = self._number, parse_ddl(ddl), driver.table.begin(self._number, 1)
        avro = schema.avro(driver.settings.table_name)
        writer = HudiClient(driver.spark, driver.settings.table.store, avro, commit_options(driver.settings.table))
        kafka = ("'t' as _kafka_topic", "0 as _kafka_partition", "id as _kafka_offset", "timestamp_seconds(id)")
        first = 10 * number
        frame = driver.spark.range(first, first + 10, 1, 1).selectExpr(
            "id", *row.split(";"), *kafka[:3], f"{kafka[3]} as _kafka_timestamp"
        )
        stats = writer.bulk_insert_rows(frame._jdf, instant)
        return lambda: driver.table.complete(instant, stats, checkpoint(number), allow, schema.columns_json)

    def count(self, where: str, metadata: str) -> int:
        frame = self._driver.spark.read.format("hudi").option("hoodie.metadata.enable", metadata)
        return frame.load(self.base_path).where(where).count()


def test_a_clustering_has_the_columns_of_the_moment_of_its_completion(
    make_driver: MakeDriver, zookeeper_client
) -> None:
    driver = make_driver(schema__ddl="id bigint, number int", hoodie__metadata__enable="true", **CLUSTERING)
    appends = Appends(driver)
    for _ in range(2):
        assert appends.begin("id bigint, number int", "cast(id as int) as number")() is TableOutcome.COMPLETED
    wider = "cast(id + 1099511627776 as bigint) as number;if(id < 0, null, 'kept') as added"
    widen = At("Clustering.written", appends.begin("id bigint, number bigint, added string", wider))
    results = by_name(other_services(driver, zookeeper_client, widen).run())
    assert results["clustering"].instant, results
    assert widen.reached
    for metadata in ("true", "false"):
        assert appends.count("added = 'kept' and number > 1099511627776", metadata) == 10
        assert appends.count("number < 100", metadata) == 20
    schema = HudiTableBuilder.from_base_uri(Path(appends.base_path).as_uri()).build().get_schema()
    assert "added" in schema.names


def test_columns_that_a_later_instant_does_not_name_are_a_conflict_and_land_with_a_new_instant(
    open_upserts: Open, kafka
) -> None:
    upserts = open_upserts(**ON_READ, **EAGER, **BUCKETS)
    send(kafka.address, upserts.topic, [*(change(key, at) for at in (1, 2) for key in range(10))])
    send(kafka.address, upserts.topic, [change(key, 3, added="a") for key in range(10)])
    upserts.land((0, 0, 10))
    upserts.land((0, 10, 20))
    wider = open_upserts(WIDER_DDL, **ON_READ, **EAGER, **BUCKETS)
    instant = wider.begin()
    written = wider.write(instant, (0, 20, 30))
    assert by_name(upserts.table.services())["compaction"].instant > instant
    assert wider.complete(instant, written) is TableOutcome.CONFLICT
    wider.table.roll_back(instant)
    wider.land((0, 20, 30))
    assert_rows(upserts, {key: {"at": 3, "number": 3, "added": "a"} for key in range(10)})


def test_a_sweep_deletes_files_of_instants_that_this_sink_rolled_back_and_no_others(make_driver: MakeDriver) -> None:
    limits = {"keep__min__commits": "3", "keep__max__commits": "4", "clean__commits__retained": "1"}
    driver = make_driver(**{f"hoodie__{name}": value for name, value in limits.items()})
    archived, *_, complete = [driver.land(number) for number in range(1, 8)]
    assert not by_name(driver.table.services())["archiving"].reason
    timeline = Path(driver.settings.base_path, ".hoodie", "timeline")
    assert not list(timeline.glob(f"{archived}*"))
    ours, foreign = (driver.table.begin(8, 1) for _ in range(2))
    driver.table.roll_back(ours)
    driver.roll_back_as_another(foreign)
    pending = driver.table.begin(8, 1)
    unproven = f"{int(archived) - 1}"
    late_files = {name: leave_late_file(driver, instant) for name, instant in locals().items() if name in LATE}
    # As a compaction leaves that was rolled back once and carried out again.
    for instant in (archived, complete, pending):
        note_rollback(driver.table._hudi, instant)
    assert not by_name(driver.table.services())["archiving"].reason
    assert {name for name, file in late_files.items() if not file.exists()} == {"ours"}
    assert driver.table.complete(pending, driver.write(pending, 80), checkpoint(8), allow) is TableOutcome.COMPLETED


LATE = ("archived", "complete", "ours", "foreign", "pending", "unproven")


def leave_late_file(driver: Driver, instant: str, partition: str = "") -> Path:
    """Leaves a data file of the instant and its marker, as a task does that outlives its job."""
    file = Path(driver.settings.base_path, partition, f"{uuid.uuid4()}-0_0-1-1_{instant}.parquet")
    file.write_bytes(b"late")
    marker = Path(driver.settings.base_path, ".hoodie", ".temp", instant, partition, f"{file.name}.marker.CREATE")
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()
    return file
