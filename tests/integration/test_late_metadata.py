"""Log files that a process writes late into the metadata table do not stay, where readers would look for files that are
gone.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sink.hudi.data_files import listed_by_metadata
from sink.hudi.leftovers import TEMP
from sink.hudi.overtaken import note_attempt
from tests.integration.conftest import MakeDriver, Open
from tests.integration.rewrites_kit import complete_twice, service_client
from tests.integration.table_kit import Driver
from tests.integration.test_overtaken import ARCHIVES, Table, overtaken
from tests.integration.test_rewrites import EAGER, leave_late_file
from tests.integration.upsert_kit import BUCKETS, ON_READ, assert_rows

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def log_files(table: Table) -> list[Path]:
    return sorted(table.base.glob(".hoodie/metadata/files/.files-*.log.*"))


def write_late(table: Table, instant: str) -> Path:
    """Adds a log file of the instant, as a process does that goes on after another one has settled the instant."""
    [*_, newest] = log_files(table)
    name = newest.name.split("_")
    late = newest.with_name("_".join([name[0], f"{instant}.log.1", f"{name[2]}9"]))
    late.write_bytes(newest.read_bytes())
    return late


@pytest.fixture
def table(open_upserts: Open, kafka) -> Table:
    return Table(open_upserts(**ON_READ, **BUCKETS, **{**EAGER, **ARCHIVES}), kafka.address)


@pytest.mark.thorough
def test_a_late_log_file_of_the_metadata_table_is_deleted_before_readers_see_it(table: Table) -> None:
    """Until the metadata table's timeline begins after an instant that was rolled back, no reader takes it for
    complete.
    """
    table.land()
    instant = table.upserts.begin()
    table.upserts.table.roll_back(instant)
    late = write_late(table, instant)
    kept = set(log_files(table)) - {late}
    table.serve()
    assert kept <= set(log_files(table))
    assert not late.exists()


@pytest.mark.thorough
def test_a_metadata_table_is_made_anew_when_readers_have_seen_a_late_log_file(table: Table) -> None:
    table.land()
    instant = table.upserts.begin()
    table.upserts.table.roll_back(instant)
    timeline = table.base / ".hoodie" / "metadata" / ".hoodie" / "timeline"
    while any(timeline.glob(f"{'0' * 17}*")) or min(path.name for path in timeline.glob("2*")) < instant:
        table.land()
        table.serve()
    late = write_late(table, instant)
    table.serve()
    assert not late.exists()
    assert any(timeline.glob(f"{'0' * 17}*"))
    table.land()
    assert_rows(table.upserts, table.rows)


def test_a_metadata_table_with_log_files_of_two_attempts_at_a_compaction_is_made_anew(table: Table) -> None:
    """A process that goes on after another one has completed its compaction, and dies before it completes it, too."""
    table.land()
    table.land()
    instant = table.serve()["compaction"]
    assert instant
    note_attempt(service_client(table.upserts), instant)
    late = write_late(table, instant)
    table.serve()
    assert not late.exists()
    table.land()
    assert_rows(table.upserts, table.rows)


def delete_as_another(driver: Driver, _late: Path) -> None:
    with closing(driver.table._hudi.with_options(driver.table._hudi.options)) as another:
        another.delete_metadata_table(another.meta_client())


def complete_an_instant_twice(driver: Driver, _late: Path) -> None:
    complete_twice(Path(driver.settings.base_path))


def make_as_another(driver: Driver, late: Path) -> None:
    """Has another writer make the metadata table anew, which lists the late file."""
    [whole, *_] = {*Path(driver.settings.base_path).glob("*.parquet")} - {late}
    shutil.copy(whole, late)
    with closing(driver.table._hudi.with_options(driver.table._hudi.options)) as another:
        another.delete_metadata_table(another.meta_client())
        another.init_table()
        assert listed_by_metadata(another, [late.name])


@pytest.mark.parametrize(
    "make_anew",
    [
        complete_an_instant_twice,
        pytest.param(delete_as_another, marks=pytest.mark.thorough),
        pytest.param(make_as_another, marks=pytest.mark.thorough),
    ],
)
def test_no_metadata_table_that_is_made_anew_lists_a_file_that_is_deleted_later(
    make_driver: MakeDriver, make_anew: Callable[[Driver, Path], None]
) -> None:
    """Hudi lists all files but those of pending instants."""
    driver = make_driver(hoodie__metadata__enable="true", **ARCHIVES)
    driver.land(1)
    instant = driver.table.begin(2, 1)
    late = leave_late_file(driver, instant)
    shutil.rmtree(Path(driver.settings.base_path, TEMP, instant))
    driver.table.roll_back(instant)
    make_anew(driver, late)
    number = 1
    while driver.table._timeline.snapshot().first < instant:
        number += 1
        driver.land(number)
        assert not [service for service in driver.table.services() if service.reason]
        assert driver.count() == driver.count(metadata=False) == 10 * number
    assert not late.exists()


@pytest.mark.thorough
def test_no_metadata_table_that_is_made_anew_lists_late_files_of_a_compaction(table: Table) -> None:
    overtaken(table)
    complete_twice(table.base)
    table.land()
    assert_rows(table.upserts, table.rows)
    table.serve()
    assert_rows(table.upserts, table.rows)
