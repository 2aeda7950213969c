"""Incremental readers miss no commit, though the clock of one host is ahead."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from coordination.errors import Unavailable
from tests.integration.conftest import MakeDriver
from tests.integration.table_kit import Driver, OtherProcess, checkpoint
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

AHEAD_SECONDS = 5
ON_READ = {
    "target__table__type": "merge_on_read",
    "write__operation": "insert",
    "record__key__fields": "id",
    "hoodie__metadata__enable": "true",
}


def completions(driver: Driver) -> list[str]:
    """Returns when each instant was completed, by the clock of the host that did it."""
    names = Path(driver.settings.base_path, ".hoodie", "timeline").glob("*_*commit")
    return sorted(name.name.partition("_")[2].partition(".")[0] for name in names)


def read_since(driver: Driver, completion: str) -> list[int]:
    reader = driver.spark.read.format("hudi").option("hoodie.datasource.query.type", "incremental")
    frame = reader.option("hoodie.datasource.read.begin.instanttime", completion).load(driver.settings.base_path)
    return sorted(row["id"] for row in frame.select("id").collect())


@pytest.mark.thorough
@pytest.mark.parametrize("more", [{}, ON_READ], ids=["copy on write", "merge on read"])
def test_a_commit_after_that_of_a_host_whose_clock_is_ahead_is_read_by_who_has_read_that_one(
    make_driver: MakeDriver, zookeeper, more: dict[str, str]
) -> None:
    driver = make_driver(**more)
    base = Path(driver.settings.base_path)
    ahead = OtherProcess(base, zookeeper.address)
    try:
        ahead.open(base, **more)
        ahead.ask("set_clock_ahead_by", AHEAD_SECONDS)
        instant = ahead.ask("begin", 1, 1)
        stats = ahead.ask("write", instant, 0)
        assert ahead.ask("complete", instant, stats, 1) == "COMPLETED"
    finally:
        ahead.kill()
    [seen] = completions(driver)

    with pytest.raises(Unavailable, match="is behind that of another worker"):
        driver.land(2)

    def lands() -> bool:
        with suppress(Unavailable):
            driver.land(2)
            return True
        return False

    eventually("the clock of this host is past the commit", lands)
    assert driver.table.view().checkpoint == checkpoint(2)
    assert read_since(driver, seen) == list(range(20, 30))
