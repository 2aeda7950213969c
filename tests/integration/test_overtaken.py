"""Files that an attempt at a rewrite wrote late, after another process had gone on, are deleted if it left them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from sink.hudi.client import HudiClient
from sink.hudi.options import service_options
from sink.hudi.overtaken import note_attempt
from sink.hudi.table import TableOutcome
from sink.hudi.timeline import SINK_KEY
from sink.hudi.written_plan import write_plan
from tests.integration.conftest import MakeDriver, Open
from tests.integration.rewrites_kit import service_client
from tests.integration.table_kit import CLUSTERING, SINK, allow, by_name, checkpoint
from tests.integration.test_rewrites import EAGER, LATE, leave_late_file
from tests.integration.upsert_kit import BUCKETS, INDEXES, NO_METADATA, ON_READ, Upserts, assert_rows, change, send

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SINGLE_GROUPS = {"hoodie__clustering__plan__strategy__single__group__clustering__enabled": "true"}
KEEPS_LITTLE = {"hoodie__clean__commits__retained": "1", "hoodie__keep__min__commits": "2"}
ARCHIVES = {**KEEPS_LITTLE, "hoodie__keep__max__commits": "3", "hoodie__metadata__compact__max__delta__commits": "2"}


class Table:
    """A table whose every transaction changes ten keys."""

    def __init__(self, upserts: Upserts, kafka: str) -> None:
        self.upserts, self._kafka, self._landed = upserts, kafka, 0
        self.base = Path(upserts.settings.base_path)

    def land(self) -> None:
        self._landed += 1
        send(self._kafka, self.upserts.topic, [change(key, self._landed) for key in range(10)])
        self.upserts.land((0, 10 * self._landed - 10, 10 * self._landed))

    @property
    def rows(self) -> Mapping[int, Mapping[str, Any]]:
        return {key: {"at": self._landed, "number": self._landed} for key in range(10)}

    def serve(self) -> dict[str, str]:
        """Runs all services. Returns their instants."""
        results = by_name(self.upserts.table.services())
        assert not any(result.reason for result in results.values()), results
        return {name: result.instant for name, result in results.items()}

    def files(self, instant: str) -> set[Path]:
        return set(self.base.glob(f"*_{instant}.parquet"))

    def is_active(self, instant: str) -> bool:
        return any((self.base / ".hoodie" / "timeline").glob(f"{instant}*"))


def stop_before_the_tasks(hudi: HudiClient) -> tuple[str, Callable[[], None]]:
    """Plans a compaction and begins it, as a process does that is stopped before its first task. Returns the instant,
    and what runs the tasks and dies then.
    """
    instant = hudi.schedule("Compaction", {SINK_KEY: SINK})
    table = hudi.java.table.HoodieSparkTable.create(hudi.config, hudi.engine_context, hudi.meta_client())
    statuses = hudi.java.data.HoodieJavaRDD.getJavaRDD(table.compact(hudi.engine_context, instant).getWriteStatuses())

    def run_late() -> None:
        assert statuses.count()

    return instant, run_late


def overtaken(table: Table) -> tuple[str, set[Path], set[Path]]:
    """Has a compaction be overtaken and then killed. Returns its instant, its committed files and its late files."""
    for _ in range(2):
        table.land()
    instant, run_late = stop_before_the_tasks(service_client(table.upserts))
    assert table.serve()["compaction"] == instant
    committed = table.files(instant)
    run_late()
    late = table.files(instant) - committed
    assert len(late) == len(committed)
    return instant, committed, late


def move(files: Collection[Path], to: Path) -> set[Path]:
    to.mkdir(exist_ok=True)
    return {Path(shutil.move(file, to / file.name)) for file in files}


@pytest.mark.parametrize(
    "metadata",
    [pytest.param(EAGER, id="metadata", marks=pytest.mark.thorough), pytest.param({**EAGER, **NO_METADATA}, id="none")],
)
def test_late_files_of_an_attempt_that_was_overtaken_and_killed_are_deleted(
    open_upserts: Open,
    kafka,
    metadata: Mapping[str, str],
) -> None:
    table = Table(open_upserts(**ON_READ, **BUCKETS, **metadata), kafka.address)
    instant, committed, late = overtaken(table)
    table.serve()
    assert table.files(instant) == committed
    assert_rows(table.upserts, table.rows)
    # Their markers are gone with them. A store shows a file when the last request for it arrives.
    for file in committed:
        shutil.copy(file, table.base / f"{file.name.partition('_')[0]}_9-9-9_{instant}.parquet")
    table.serve()
    assert table.files(instant) == committed
    assert not any(file.exists() for file in late)


@pytest.mark.thorough
def test_late_files_are_deleted_that_come_when_the_timeline_has_forgotten_their_compaction(
    open_upserts: Open,
    kafka,
    tmp_path: Path,
) -> None:
    settings = {**ON_READ, **EAGER, **INDEXES["record"], **CLUSTERING, **SINGLE_GROUPS, **ARCHIVES}
    table = Table(open_upserts(**settings), kafka.address)
    instant, _, late = overtaken(table)
    aside = move(late, tmp_path / "aside")
    clusterings = []
    while table.is_active(instant) or not clusterings or table.is_active(clusterings[0]):
        assert len(clusterings) < 12, "nothing was archived"
        table.land()
        table.upserts.table.metadata_services()
        clusterings.append(table.serve()["clustering"])
    assert not table.files(instant)
    assert_rows(table.upserts, table.rows)
    move(aside, table.base)
    without = {"hoodie.metadata.enable": "false"}
    assert len(table.upserts.rows(**without)) == 20, "readers take the late files for committed until they are deleted"
    table.serve()
    assert not table.files(instant)
    assert len(table.upserts.rows(**without)) == 10
    assert_rows(table.upserts, table.rows)


@pytest.mark.thorough
def test_a_late_file_stays_while_a_plan_or_a_savepoint_names_it(
    open_upserts: Open,
    kafka,
    tmp_path: Path,
) -> None:
    table = Table(open_upserts(**ON_READ, **BUCKETS, **{**EAGER, **NO_METADATA}), kafka.address)
    instant, committed, late = overtaken(table)
    # Without the metadata table, Hudi's view has one of two files of one group and instant.
    aside = move(committed, tmp_path / "aside")
    table.land()
    another = service_client(table.upserts)
    plan = another.schedule("Compaction", {})
    move(aside, table.base)
    table.serve()
    assert table.files(instant) == committed | late
    aside = move(committed, tmp_path / "aside")
    another.client.savepoint(instant, "tests", "a savepoint")
    move(aside, table.base)
    another.client.compact(plan, True)
    table.serve()
    assert table.files(instant) == committed | late
    another.client.deleteSavepoint(instant)
    table.serve()
    assert not late & table.files(instant)
    assert_rows(table.upserts, table.rows)


def test_late_files_are_deleted_of_noted_instants_that_are_complete_and_of_no_others(make_driver: MakeDriver) -> None:
    limits = {"keep__min__commits": "3", "keep__max__commits": "4", "clean__commits__retained": "1"}
    driver = make_driver(**{f"hoodie__{name}": value for name, value in limits.items()})
    archived, *_, complete = [driver.land(number) for number in range(1, 8)]
    assert not by_name(driver.table.services())["archiving"].reason
    assert not list(Path(driver.settings.base_path, ".hoodie", "timeline").glob(f"{archived}*"))
    ours, foreign = (driver.table.begin(8, 1) for _ in range(2))
    for instant in (ours, foreign):
        driver.roll_back_as_another(instant)
    pending = driver.table.begin(8, 1)
    unproven = f"{int(archived) - 1}"
    late_files = {name: leave_late_file(driver, instant) for name, instant in locals().items() if name in LATE}
    for instant in (archived, complete, foreign, pending, unproven):
        note_attempt(driver.table._hudi, instant)
    assert not by_name(driver.table.services())["cleaning"].reason
    assert {name for name, file in late_files.items() if not file.exists()} == {"archived", "complete"}
    assert driver.table.complete(pending, driver.write(pending, 80), checkpoint(8), allow) is TableOutcome.COMPLETED
    for file in late_files.values():
        file.unlink(missing_ok=True)
    assert driver.count() == 80


def test_a_file_of_a_dropped_clustering_that_comes_after_the_rollback_is_deleted(
    make_driver: MakeDriver, tmp_path: Path
) -> None:
    driver = make_driver(**CLUSTERING)
    for number in (1, 2):
        driver.land(number)
    base, avro = Path(driver.settings.base_path), driver.schema.avro(driver.settings.table_name)
    hudi = HudiClient(driver.spark, driver.settings.table.store, avro, service_options(driver.settings.table))
    instant = hudi.schedule("Clustering", {SINK_KEY: SINK})
    write_plan(hudi, "Clustering", instant)
    copies = [shutil.copy(file, tmp_path) for file in base.glob(f"*_{instant}.parquet")]
    assert copies
    assert by_name(driver.table.services())["clustering"].instant > instant
    assert not list(base.glob(f"*_{instant}.parquet"))
    # A store shows a file when the last request for it arrives. Its marker is gone.
    move([Path(copy) for copy in copies], base)
    assert not by_name(driver.table.services())["archiving"].reason
    assert not list(base.glob(f"*_{instant}.parquet"))
    assert driver.count() == 20
