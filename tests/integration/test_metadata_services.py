"""Hudi's metadata table: table services clean, compact and archive it, and all rows stay."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.integration.conftest import MakeDriver
from tests.integration.table_kit import Driver, OtherProcess, allow, checkpoint

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

METADATA_TABLE = {"hoodie__metadata__enable": "true"}
EVERY = 6
MOST = 45


def compactions(driver: Driver) -> int:
    timeline = Path(driver.settings.base_path) / ".hoodie" / "metadata" / ".hoodie" / "timeline"
    return len(sorted(timeline.glob("*.commit")))


def test_a_transaction_leaves_the_metadata_table_to_the_services_and_serves_it_where_they_never_come(
    make_driver: MakeDriver,
) -> None:
    driver = make_driver(**METADATA_TABLE, hoodie__metadata__compact__max__delta__commits="3")
    for number in range(1, 5):
        driver.land(number)
    assert compactions(driver) == 0
    for number in range(5, 9):
        driver.land(number)
    assert compactions(driver) == 1
    assert driver.count() == driver.count(metadata=False) == 80


def test_commits_after_a_compaction_on_a_host_whose_clock_is_ahead_are_read(make_driver: MakeDriver, zookeeper) -> None:
    settings = {**METADATA_TABLE, "hoodie__metadata__compact__max__delta__commits": "3"}
    driver = make_driver(**settings)
    for number in range(1, 5):
        driver.land(number)
    base = Path(driver.settings.base_path)
    ahead = OtherProcess(base, zookeeper.address)
    try:
        ahead.ask("set_clock_ahead")
        ahead.open(base, **settings)
        assert set(ahead.ask("metadata_services")) == {""}
    finally:
        ahead.kill()
    assert compactions(driver) == 1
    for number in range(5, 9):
        driver.land(number)
    assert driver.count() == driver.count(metadata=False) == 80
    assert not any(service.reason for service in driver.table.metadata_services())
    assert compactions(driver) == 2
    assert driver.count() == driver.count(metadata=False) == 80


def test_services_clean_compact_and_archive_the_metadata_table_when_it_wants_it(make_driver: MakeDriver) -> None:
    limits = {"hoodie__keep__min__commits": "24", "hoodie__keep__max__commits": "25"}
    driver = make_driver(**METADATA_TABLE, **limits, hoodie__metadata__compact__max__delta__commits=str(EVERY))
    driver.land(1)
    assert driver.table.metadata_services() == ()
    timeline = Path(driver.settings.base_path) / ".hoodie" / "metadata" / ".hoodie" / "timeline"
    number, runs, cleaned = 1, 0, False
    # Hudi keeps the files of the last 20 commits of a metadata table, whatever is asked for.
    while not cleaned or not list((timeline / "history").glob("*.parquet")):
        assert number < MOST, "nothing was cleaned or archived"
        while not (services := driver.table.metadata_services()):
            number += 1
            driver.land(number)
        assert [service.name for service in services] == [
            f"metadata {name}" for name in ("cleaning", "compaction", "archiving")
        ]
        assert not any(service.reason for service in services), services
        assert services[1].instant
        assert driver.table.metadata_services() == ()
        runs, cleaned = runs + 1, cleaned or bool(services[0].instant)
    assert number <= runs * EVERY, "not every transaction since a compaction was counted"
    torn = timeline / "history" / f"manifest_9.{uuid.uuid4()}"
    torn.write_text("a process died before it renamed this")
    while not (services := driver.table.metadata_services()):
        number += 1
        driver.land(number)
    assert not any(service.reason for service in services), services
    assert not torn.exists()
    assert driver.count() == driver.count(metadata=False) == 10 * number


def test_a_compaction_of_the_metadata_table_leaves_an_open_transaction_what_its_rollback_needs(
    make_driver: MakeDriver,
) -> None:
    driver = make_driver(**METADATA_TABLE, hoodie__metadata__compact__max__delta__commits="3")
    for number in range(1, 4):
        driver.land(number)
    instant = driver.table.begin(4, 1)
    stats = driver.write(instant, 40)
    driver.table.complete(instant, stats, checkpoint(4), allow)
    # As if its writer had died after the metadata table had it and before the table did.
    timeline = Path(driver.settings.base_path) / ".hoodie" / "timeline"
    next(iter(timeline.glob(f"{instant}_*.commit"))).unlink()
    driver.table.stop_heartbeats()
    [_, compaction, _] = driver.table.metadata_services()
    assert not compaction.reason
    assert compaction.instant < instant
    other = make_driver(**METADATA_TABLE)
    other.table.roll_back(instant)
    other.land(5)
    assert other.count() == other.count(metadata=False) == 40
