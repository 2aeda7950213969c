"""A table partition whose files all go is filled again: what comes stays, and what went stays away."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.client import KazooClient

from sink.hudi.table import TableOutcome
from tests.integration.conftest import MakeDriver
from tests.integration.rewrites_kit import At, other_services, service_client
from tests.integration.table_kit import Driver, allow, by_name, checkpoint
from tests.integration.test_replaced_groups import begin_deleting

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SOON = {
    "partition__field__name": "kind",
    "hoodie__clean__commits__retained": "1",
    "hoodie__keep__min__commits": "2",
    "hoodie__keep__max__commits": "3",
}


def write(driver: Driver, number: int, kind: str) -> tuple[str, list[str]]:
    instant = driver.table.begin(number, 1)
    return instant, driver.write(instant, number * 10, kind=kind)


def complete(driver: Driver, number: int, instant: str, stats: list[str]) -> None:
    assert driver.table.complete(instant, stats, checkpoint(number), allow) is TableOutcome.COMPLETED


@pytest.mark.parametrize("metadata", ["true", pytest.param("false", marks=pytest.mark.thorough)])
def test_a_partition_that_is_cleaned_away_may_be_filled_meanwhile_and_later(
    make_driver: MakeDriver, zookeeper_client: KazooClient, metadata: str
) -> None:
    driver = make_driver(**SOON, hoodie__metadata__enable=metadata)
    complete(driver, 1, *write(driver, 1, "a"))
    other_client = service_client(driver)
    begin_deleting(other_client, "kind=a")()
    other_client.close()
    complete(driver, 2, *write(driver, 2, "b"))
    complete(driver, 3, *write(driver, 3, "b"))
    written: list[tuple[str, list[str]]] = []
    fill = At("Cleaning.scheduled", lambda: written.append(write(driver, 4, "a")))
    cleaning = by_name(other_services(driver, zookeeper_client, fill).run())["cleaning"]
    assert cleaning.instant, cleaning
    [transaction] = written
    complete(driver, 4, *transaction)
    assert driver.count() == driver.count(metadata=False) == 30
    number, timeline = 4, Path(driver.settings.base_path, ".hoodie", "timeline")
    while any(timeline.glob("*.replacecommit")):
        number += 1
        assert number < 30, "the deletion is not archived"
        complete(driver, number, *write(driver, number, "ab"[number % 2]))
        driver.table.metadata_services()
        assert not any(result.reason for result in driver.table.services())
    assert driver.count() == driver.count(metadata=False) == 10 * (number - 1)
