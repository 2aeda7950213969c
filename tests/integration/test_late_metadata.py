"""Log files that a process writes late into the metadata table do not stay, where readers would look for files that are
gone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sink.hudi.overtaken import note_attempt
from tests.integration.conftest import Open
from tests.integration.rewrites_kit import service_client
from tests.integration.test_overtaken import ARCHIVES, Table
from tests.integration.test_rewrites import EAGER
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
