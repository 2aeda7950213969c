"""A plan of a table service that was cut short, by a full store or a dead writer, stops no commit and no service."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordination.state.model import InstantState
from tests.integration.conftest import MakeDriver
from tests.integration.rewrites_kit import service_client
from tests.integration.table_kit import CLUSTERING, Driver, by_name

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def plan_cut_short(driver: Driver, size: int) -> Path:
    """Plans a clustering, and cuts its file to a share of 8 parts."""
    instant = service_client(driver).schedule("Clustering", {})
    return cut_short(Path(driver.settings.base_path, ".hoodie", "timeline", f"{instant}.clustering.requested"), size)


def cut_short(plan: Path, size: int) -> Path:
    content = plan.read_bytes()
    plan.with_name(f".{plan.name}.crc").unlink(missing_ok=True)
    plan.write_bytes(content[: len(content) * size // 8])
    return plan


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_plan_that_was_cut_short_is_dropped_by_the_next_commit_or_service(make_driver: MakeDriver, size: int) -> None:
    driver = make_driver(**CLUSTERING)
    for number in range(1, 4):
        driver.land(number)
    plan = plan_cut_short(driver, size)
    driver.land(4)
    assert not plan.exists()
    plan = plan_cut_short(driver, size)
    results = by_name(driver.table.services())
    assert not any(result.reason for result in results.values()), results
    assert results["clustering"].instant
    assert not plan.exists()
    assert driver.count() == driver.count(metadata=False) == 40


@pytest.mark.parametrize("size", [0, 1, 7])
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
    plan = cut_short(Path(driver.settings.base_path, ".hoodie", "timeline", f"{rollback}.rollback.requested"), size)
    driver.table.roll_back(instant)
    assert driver.table.view([instant]).instants[instant] is InstantState.ROLLED_BACK
    driver.land(2)
    results = by_name(driver.table.services())
    assert not any(result.reason for result in results.values()), results
    assert not plan.exists()
    assert driver.count() == driver.count(metadata=False) == 20
