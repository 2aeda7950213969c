"""The sink's notes of its rollbacks are in no rollback's way, and end."""

from __future__ import annotations

import shutil
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from coordination.errors import OutcomeUnknown
from coordination.state.model import InstantState
from sink.hudi.leftovers import NOTES, TEMP, note_rollback
from tests.integration.conftest import MakeDriver, Open
from tests.integration.table_kit import by_name
from tests.integration.test_rewrites import leave_late_file
from tests.integration.upsert_kit import BUCKETS, ON_READ, assert_rows, change, send

KEEPS_LITTLE = {
    "hoodie__clean__commits__retained": "1",
    "hoodie__keep__min__commits": "2",
    "hoodie__keep__max__commits": "3",
    "hoodie__metadata__compact__max__delta__commits": "2",
}
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.mark.parametrize("kind", [{}, ON_READ], ids=["copy on write", "merge on read"])
def test_an_instant_that_a_late_writer_makes_pending_again_is_rolled_back_again_with_the_late_files(
    open_upserts: Open,
    kafka,
    kind: dict[str, str],
) -> None:
    upserts = open_upserts(**kind, **BUCKETS)
    send(kafka.address, upserts.topic, [change(key, at) for at in (1, 2) for key in range(10)])
    upserts.land((0, 0, 10))
    base, instant = Path(upserts.settings.base_path), upserts.begin()
    upserts.write(instant, (0, 10, 20))
    [inflight] = base.glob(f".hoodie/timeline/{instant}*.inflight")
    written = [path for path in base.rglob("*") if path.is_file() and path.stat().st_mtime >= inflight.stat().st_mtime]
    kept = {
        path: path.read_bytes() for path in written if instant in path.name and not path.name.endswith(".requested")
    }
    upserts.table.roll_back(instant)
    gone = {path: content for path, content in kept.items() if not path.exists()}
    assert inflight in gone
    for path, content in gone.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    # The requested file stays away: Hudi fails at that when all else is removed, and ends the rollback the next time.
    with suppress(OutcomeUnknown):
        upserts.table.roll_back(instant)
    upserts.table.roll_back(instant)
    assert upserts.table.view([instant]).instants[instant] is InstantState.ROLLED_BACK
    assert [path for path in gone if path.exists()] == []
    upserts.land((0, 10, 20))
    assert_rows(upserts, {key: {"at": 2, "number": 2} for key in range(10)})


def test_a_note_of_a_rollback_is_kept_for_seven_days_whatever_has_become_of_its_instant(
    make_driver: MakeDriver,
) -> None:
    driver = make_driver(hoodie__metadata__enable="true")
    complete = driver.land(1)
    young = driver.table.begin(2, 1)
    driver.table.roll_back(young)
    hudi, base = driver.table._hudi, Path(driver.settings.base_path)
    old, older = (f"{datetime.now(timezone.utc) - timedelta(days=days):%Y%m%d%H%M%S}000" for days in (8, 9))
    for instant in (complete, old, older):
        note_rollback(hudi, instant)
    late = leave_late_file(driver, old)
    assert not by_name(driver.table.services())["archiving"].reason
    assert set(hudi.names(NOTES)) == {complete, young}
    assert not late.exists()
    assert not (base / TEMP / old).exists()
    driver.land(2)
    assert driver.count() == driver.count(metadata=False) == 20


@pytest.mark.parametrize("partitions", [{}, {"partition__field__name": "kind"}], ids=["", "partitioned"])
def test_a_file_whose_marker_the_rollback_has_deleted_goes_before_the_timeline_forgets_its_instant(
    make_driver: MakeDriver, partitions: dict[str, str]
) -> None:
    driver = make_driver(hoodie__metadata__enable="true", **KEEPS_LITTLE, **partitions)
    driver.land(1)
    instant = driver.table.begin(2, 1)
    base = Path(driver.settings.base_path)
    [landed, *_] = (path for path in base.rglob("*.parquet") if ".hoodie" not in path.parts)
    late = leave_late_file(driver, instant, str(landed.parent.relative_to(base)))
    shutil.rmtree(base / TEMP / instant)
    driver.table.roll_back(instant)
    number = 1
    while driver.table._timeline.snapshot().first < instant:
        assert late.exists() or number > 3
        number += 1
        driver.land(number)
        assert not by_name(driver.table.services())["archiving"].reason
    assert not late.exists()
    assert set(driver.table._hudi.names(NOTES)) == {instant, f"{instant}.listed"}
    assert driver.count() == driver.count(metadata=False) == 10 * number
