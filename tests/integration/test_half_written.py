"""Files of the timeline that were cut short, by a full disk or a dead writer, stop no commit and no service: plans, and
those that complete instants.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from coordination.errors import Corrupt, OutcomeUnknown
from coordination.state.model import InstantState
from coordination.zookeeper.table_service_lock import ServiceOutcome
from sink.hudi.metadata_services import MetadataTableServices
from sink.hudi.table import Table, TableOutcome
from sink.hudi.timeline import SINK_KEY
from tests.disk import FullDisk, small_disk
from tests.integration.conftest import MakeDriver, Open
from tests.integration.rewrites_kit import other_services, service_client
from tests.integration.table_kit import CLUSTERING, Driver, allow, by_name, checkpoint
from tests.integration.upsert_kit import BUCKETS, ON_READ, assert_rows, change, send

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

SHARES = [0, *(pytest.param(size, marks=pytest.mark.thorough) for size in (1, 7))]
"""How many eighths of a file are left."""
METADATA_TABLE = {"hoodie__metadata__enable": "true"}


def plan_cut_short(driver: Driver, size: int) -> Path:
    """Plans a clustering, and cuts its file to a share of 8 parts."""
    instant = service_client(driver).schedule("Clustering", {})
    return cut_short(timeline(driver) / f"{instant}.clustering.requested", size)


def cut_short(plan: Path, size: int) -> Path:
    # Its checksum stays: that of a file that was being written may be any.
    content = plan.read_bytes()
    plan.write_bytes(content[: len(content) * size // 8])
    return plan


def completion_cut_short(driver: Driver, pattern: str, size: int) -> Path:
    [file] = timeline(driver).glob(pattern)
    return cut_short(file, size)


def timeline(driver: Driver) -> Path:
    return Path(driver.settings.base_path, ".hoodie", "timeline")


def metadata_timeline(driver: Driver) -> Path:
    return Path(driver.settings.base_path, ".hoodie", "metadata", ".hoodie", "timeline")


def complete_second(driver: Driver) -> tuple[str, list[str]]:
    """Completes transaction 2, of ten rows. Returns its instant and stats."""
    instant = driver.table.begin(2, 1)
    stats = driver.write(instant, 20)
    driver.table.complete(instant, stats, checkpoint(2), allow)
    return instant, stats


def served(table: Table) -> dict[str, ServiceOutcome]:
    """Runs the table services, none of which fails."""
    results = by_name(table.services())
    assert not any(result.reason for result in results.values()), results
    return results


def assert_count(driver: Driver, rows: int) -> None:
    assert driver.count() == driver.count(metadata=False) == rows


@pytest.mark.parametrize("size", SHARES)
def test_a_plan_that_was_cut_short_is_dropped_by_the_next_commit_or_service(make_driver: MakeDriver, size: int) -> None:
    driver = make_driver(**CLUSTERING)
    for number in range(1, 4):
        driver.land(number)
    plan = plan_cut_short(driver, size)
    driver.land(4)
    assert not plan.exists()
    plan = plan_cut_short(driver, size)
    results = served(driver.table)
    assert results["clustering"].instant
    assert not plan.exists()
    assert_count(driver, 40)


@pytest.mark.thorough
@pytest.mark.parametrize("size", SHARES)
def test_a_plan_of_a_rollback_that_was_cut_short_stops_nothing_and_the_instant_is_rolled_back(
    make_driver: MakeDriver, size: int
) -> None:
    driver = make_driver(**CLUSTERING)
    driver.land(1)
    instant = driver.table.begin(2, 1)
    hudi = driver.table._hudi
    table, meta = hudi.table(), hudi.meta_client()
    entry = hudi.instant(meta, "INFLIGHT", hudi.action, instant)
    rollback = str(hudi.client.createNewInstantTime(False))
    table.scheduleRollback(hudi.engine_context, rollback, entry, False, True, False)
    plan = cut_short(timeline(driver) / f"{rollback}.rollback.requested", size)
    driver.table.roll_back(instant)
    assert driver.table.view([instant]).instants[instant] is InstantState.ROLLED_BACK
    driver.land(2)
    served(driver.table)
    assert not plan.exists()
    assert_count(driver, 20)


@pytest.mark.parametrize("size", SHARES)
def test_a_transaction_whose_completion_was_cut_short_is_pending_and_is_completed_again(
    make_driver: MakeDriver, size: int
) -> None:
    driver = make_driver(**METADATA_TABLE)
    driver.land(1)
    instant, stats = complete_second(driver)
    file = completion_cut_short(driver, f"{instant}_*.commit", size)
    table = make_driver(**METADATA_TABLE).table
    view = table.view((instant,))
    assert view.instants[instant] is InstantState.PENDING
    assert view.checkpoint == checkpoint(1)
    assert table.complete(instant, stats, checkpoint(2), allow) is TableOutcome.COMPLETED
    assert not file.exists()
    assert_count(driver, 20)


@pytest.mark.thorough
@pytest.mark.parametrize("size", SHARES)
def test_a_clustering_whose_completion_was_cut_short_is_dropped_and_planned_anew(
    make_driver: MakeDriver, size: int
) -> None:
    driver = make_driver(**CLUSTERING, **METADATA_TABLE)
    for number in (1, 2):
        driver.land(number)
    instant = by_name(driver.table.services())["clustering"].instant
    file = completion_cut_short(driver, f"{instant}_*.replacecommit", size)
    results = served(make_driver(**CLUSTERING, **METADATA_TABLE).table)
    assert results["clustering"].instant > instant
    assert not file.exists()
    assert_count(driver, 20)


def test_what_was_cut_short_is_dropped_before_the_metadata_table_is_compacted(
    make_driver: MakeDriver,
) -> None:
    """A later one would have the instant in its base files, and Hudi could not roll it back."""
    settings = {**CLUSTERING, **METADATA_TABLE, "hoodie__metadata__compact__max__delta__commits": "1"}
    driver = make_driver(**settings)
    for number in (1, 2):
        driver.land(number)
    instant = by_name(driver.table.services())["clustering"].instant
    file = completion_cut_short(driver, f"{instant}_*.replacecommit", 0)
    metadata = by_name(driver.table.metadata_services())
    assert metadata["metadata compaction"].instant
    assert not any(service.reason for service in metadata.values()), metadata
    assert not file.exists()
    assert served(driver.table)["clustering"].instant > instant
    assert_count(driver, 20)


def test_a_rollback_of_a_clustering_is_finished_though_its_plan_is_gone(
    make_driver: MakeDriver, zookeeper_client: KazooClient
) -> None:
    settings = {**CLUSTERING, **METADATA_TABLE}
    driver = make_driver(**settings)
    for number in (1, 2):
        driver.land(number)
    plan = service_client(driver).schedule("Clustering", {SINK_KEY: driver.settings.name})
    services = other_services(driver, zookeeper_client)
    with closing(services._hudi):
        services._drop_clusterings([plan])
    completion_cut_short(driver, "*_*.rollback", 0)
    assert not (timeline(driver) / f"{plan}.clustering.requested").exists()
    served(make_driver(**settings).table)
    [rollback] = timeline(driver).glob("*_*.rollback")
    assert rollback.stat().st_size
    assert_count(driver, 20)


@pytest.mark.thorough
@pytest.mark.parametrize("size", SHARES)
def test_a_cleaning_whose_completion_was_cut_short_is_carried_out_again(make_driver: MakeDriver, size: int) -> None:
    settings = {**CLUSTERING, **METADATA_TABLE, "hoodie__clean__commits__retained": "1"}
    driver = make_driver(**settings)
    for number in range(1, 6):
        driver.land(number)
        results = by_name(driver.table.services())
    instant = results["cleaning"].instant
    assert instant, results
    completion_cut_short(driver, f"{instant}_*.clean", size)
    results = served(make_driver(**settings).table)
    assert results["cleaning"].instant == instant
    assert_count(driver, 50)


@pytest.mark.thorough
@pytest.mark.parametrize("size", SHARES)
def test_a_rollback_whose_completion_was_cut_short_is_carried_out_again(make_driver: MakeDriver, size: int) -> None:
    driver = make_driver(**METADATA_TABLE)
    driver.land(1)
    instant = driver.table.begin(2, 1)
    driver.write(instant, 20)
    driver.table.roll_back(instant)
    completion_cut_short(driver, "*_*.rollback", size)
    table = make_driver(**METADATA_TABLE).table
    assert table.view((instant,)).instants[instant] is InstantState.PENDING
    table.roll_back(instant)
    assert table.view((instant,)).instants[instant] is InstantState.ROLLED_BACK
    driver.land(2)
    assert_count(driver, 20)


def test_a_completion_that_was_cut_short_stays_if_a_later_write_is_whole(make_driver: MakeDriver) -> None:
    driver = make_driver()
    instants = [driver.land(number) for number in (1, 2)]
    file = completion_cut_short(driver, f"{instants[0]}_*.commit", 0)
    with pytest.raises(Corrupt, match=f"commit {instants[0]} is empty"):
        make_driver().table.view()
    assert file.exists()


@pytest.mark.parametrize("size", SHARES)
def test_a_compaction_whose_completion_was_cut_short_is_carried_out_again(open_upserts: Open, kafka, size: int) -> None:
    settings = {**ON_READ, **BUCKETS, **METADATA_TABLE, "hoodie__compact__inline__max__delta__commits": "1"}
    upserts = open_upserts(**settings)
    send(kafka.address, upserts.topic, [change(key, at) for at in range(1, 5) for key in range(10)])
    upserts.land((0, 0, 10))
    upserts.land((0, 10, 20))
    instant = by_name(upserts.table.services())["compaction"].instant
    [file] = Path(upserts.settings.base_path, ".hoodie", "timeline").glob(f"{instant}_*.commit")
    cut_short(file, size)
    upserts = open_upserts(**settings)
    upserts.land((0, 20, 30))
    assert not file.exists()
    results = served(upserts.table)
    assert results["compaction"].instant == instant
    upserts.land((0, 30, 40))
    assert_rows(upserts, {key: {"at": 4, "number": 4} for key in range(10)})


def test_a_transaction_that_has_built_on_what_was_cut_short_is_formed_again(open_upserts: Open, kafka) -> None:
    single = {"hoodie__clustering__plan__strategy__single__group__clustering__enabled": "true"}
    upserts = open_upserts(**CLUSTERING, **single)
    send(kafka.address, upserts.topic, [change(key, at) for at in (1, 2) for key in (1, 2)])
    upserts.land((0, 0, 2))
    clustering = by_name(upserts.table.services())["clustering"].instant
    instant = upserts.begin()
    written = upserts.write(instant, (0, 2, 4))
    assert clustering in {json.loads(stat)["prevCommit"] for stat in written.stats}
    [file] = Path(upserts.settings.base_path, ".hoodie", "timeline").glob(f"{clustering}_*.replacecommit")
    cut_short(file, 0)
    table = open_upserts(**CLUSTERING, **single).table
    assert upserts.complete(instant, written, table) is TableOutcome.CONFLICT
    table.roll_back(instant)
    served(table)
    upserts.land((0, 2, 4))
    assert_rows(upserts, {key: {"at": 2, "number": 2} for key in (1, 2)})


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own for the table."""
    with small_disk(tmp_path / "table", "16m") as mount_point:
        yield mount_point


@pytest.mark.parametrize("size", SHARES)
def test_a_plan_of_the_metadata_table_that_was_cut_short_is_dropped_by_the_next_transaction(
    make_driver: MakeDriver, size: int
) -> None:
    driver = make_driver(**METADATA_TABLE, hoodie__metadata__compact__max__delta__commits="2")
    for number in range(1, 4):
        driver.land(number)
    services = MetadataTableServices(driver.table._hudi, driver.settings.table, driver.table._locks)
    with closing(services._hudi), services._clients:
        instant = services._compaction_instant()
        assert services._client.scheduleCompactionAtInstant(instant, services._hudi.option())
    plan = cut_short(metadata_timeline(driver) / f"{instant}.compaction.requested", size)
    driver.land(4)
    assert not plan.exists()
    assert not any(service.reason for service in driver.table.metadata_services())
    driver.land(5)
    assert_count(driver, 50)


@pytest.mark.parametrize("size", SHARES)
@pytest.mark.parametrize("file", ["completed", pytest.param("inflight", marks=pytest.mark.thorough)])
def test_a_transaction_whose_files_in_the_metadata_table_were_cut_short_is_completed_again(
    make_driver: MakeDriver, file: str, size: int
) -> None:
    driver = make_driver(**METADATA_TABLE)
    driver.land(1)
    instant, stats = complete_second(driver)
    [completion] = timeline(driver).glob(f"{instant}_*.commit")
    [in_metadata_table] = metadata_timeline(driver).glob(f"{instant}_*.deltacommit")
    completion.unlink()
    if file == "completed":
        cut_short(in_metadata_table, size)
    else:
        in_metadata_table.unlink()
        cut_short(metadata_timeline(driver) / f"{instant}.deltacommit.inflight", size)
    table = make_driver(**METADATA_TABLE).table
    assert table.complete(instant, stats, checkpoint(2), allow) is TableOutcome.COMPLETED
    driver.land(3)
    assert_count(driver, 30)


def test_a_disk_that_is_full_when_an_instant_is_begun_leaves_nothing_of_it(make_driver: MakeDriver, disk: Path) -> None:
    driver = make_driver()
    driver.land(1)
    full = FullDisk(disk)
    fill(full, disk)
    with pytest.raises(OutcomeUnknown, match="No space left on device"):
        driver.table.begin(2, 1)
    full.end()
    timeline = disk / ".hoodie" / "timeline"
    begun = {file.name.partition(".")[0] for file in timeline.glob("*.inflight")}
    assert {file.name.partition(".")[0] for file in timeline.glob("*.requested")} == begun
    driver.land(2)
    assert driver.count() == 20


def fill(full: FullDisk, disk: Path) -> None:
    """Leaves room for a file's name, and none for its content."""
    full.begin()
    os.truncate(disk / "filler", (disk / "filler").stat().st_size - 4096)


class FillsDisk:
    """The table lock of `driver`. The disk is full from when the metadata table has a next instant."""

    def __init__(self, driver: Driver, disk: Path) -> None:
        self._disk, self._locks, self._full = disk, driver.table._locks, FullDisk(disk)
        self._timeline = metadata_timeline(driver)
        self._earlier = self._completed()
        self.is_full = False

    @contextmanager
    def __call__(self, purpose: str) -> Iterator[Callable[[], None]]:
        with self._locks(purpose) as require_held:
            yield lambda: (require_held(), self._fill())[0]

    def end(self) -> None:
        self._full.end()

    def _fill(self) -> None:
        if not self.is_full and self._completed() > self._earlier:
            fill(self._full, self._disk)
            self.is_full = True

    def _completed(self) -> set[str]:
        return {file.name for file in self._timeline.glob("*_*.deltacommit")}


def test_a_disk_that_is_full_when_a_transaction_is_completed_leaves_it_pending(
    make_driver: MakeDriver, disk: Path
) -> None:
    driver = make_driver(**METADATA_TABLE)
    driver.land(1)
    instant = driver.table.begin(2, 1)
    stats = driver.write(instant, 20)
    locks = driver.table._locks = FillsDisk(driver, disk)
    with pytest.raises(OutcomeUnknown, match="No space left on device"):
        driver.table.complete(instant, stats, checkpoint(2), allow)
    assert [file.stat().st_size for file in disk.glob(f".hoodie/timeline/{instant}_*.commit")] == [0]
    locks.end()
    assert driver.table.view((instant,)).instants[instant] is InstantState.PENDING
    assert driver.table.complete(instant, stats, checkpoint(2), allow) is TableOutcome.COMPLETED
    assert_count(driver, 20)


def test_a_disk_that_is_full_when_a_clustering_is_completed_shows_no_row_twice(
    make_driver: MakeDriver, disk: Path
) -> None:
    driver = make_driver(**CLUSTERING, **METADATA_TABLE)
    for number in (1, 2):
        driver.land(number)
    locks = driver.table._locks = FillsDisk(driver, disk)
    assert "No space left on device" in by_name(driver.table.services())["clustering"].reason
    assert [file.stat().st_size for file in disk.glob(".hoodie/timeline/*_*.replacecommit")] == []
    locks.end()
    assert_count(driver, 20)
    served(driver.table)
    assert_count(driver, 20)
