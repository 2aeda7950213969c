"""Archiving that is overtaken: it stops at each of its steps, another process archives more, and it goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from coordination.errors import Conflict, Corrupt
from sink.clients.java.errors import JAVA_ERRORS
from sink.hudi.archiving import Archiving
from sink.hudi.client import HudiClient
from sink.hudi.options import service_options
from tests.integration.table_kit import Driver, by_name

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

LIMITS = {
    "hoodie__keep__min__commits": "3",
    "hoodie__keep__max__commits": "4",
    "hoodie__clean__commits__retained": "1",
    "hoodie__timeline__compaction__batch__size": "3",
    "hoodie__timeline__manifest__retained__versions": "1",
}
STEPS = ("_due", "_write", "_publish", "_create", "_rename", "_compact", "_clean", "_delete")
MakeDriver = Callable[..., Driver]


class Overtaken(Archiving):
    """Calls `meanwhile` once, before the `turn`th of its steps."""

    def __init__(self, hudi: HudiClient, turn: int, meanwhile: Callable[[], None]) -> None:
        super().__init__(hudi, hudi.table(), ".hoodie/timeline", lambda: None)
        self._left = turn
        self._meanwhile = meanwhile

    def __getattribute__(self, name: str) -> Any:
        if name in STEPS:
            self._left -= 1
            if self._left == 0:
                self._meanwhile()
        return super().__getattribute__(name)

    @property
    def is_over(self) -> bool:
        return self._left > 0


@pytest.fixture
def hudi(make_driver: MakeDriver):
    """The table's services, as a worker has them that is overtaken."""
    driver = make_driver(**LIMITS)
    avro = driver.schema.avro(driver.settings.table_name)
    client = HudiClient(driver.spark, driver.settings.table.store, avro, service_options(driver.settings.table))
    yield driver, client
    client.close()


def completed(client: HudiClient) -> list[str]:
    """Returns the instants of commits that Hudi finds, active or archived."""
    meta = client.meta_client()
    timelines = (meta.getActiveTimeline(), meta.getArchivedTimeline())
    found = [timeline.getCommitsTimeline().filterCompletedInstants().getInstants() for timeline in timelines]
    return sorted({str(instant.requestedTime()) for instants in found for instant in instants})


def manifests(history: Path) -> list[Path]:
    return sorted(history.glob("manifest_*"), key=lambda path: int(path.name.removeprefix("manifest_")))


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.thorough), 10])
def test_an_archiving_that_is_overtaken_at_any_of_its_steps_takes_no_commit_out_of_the_archive(
    hudi, stride: int
) -> None:
    driver, client = hudi
    history = Path(driver.settings.base_path) / ".hoodie" / "timeline" / "history"
    landed: list[str] = []

    def land(count: int) -> None:
        landed.extend(driver.land(len(landed) + number + 1) for number in range(count))

    def archive_more() -> None:
        land(2)
        assert not by_name(driver.table.services())["archiving"].reason

    for turn in range(1, 90, stride):
        land(5)
        archiving = Overtaken(client, turn, archive_more)
        with suppress(Conflict, Corrupt, *JAVA_ERRORS):
            archiving.run()
        assert completed(client) == landed, turn
        assert not (history / "_version_").exists()
        if archiving.is_over:
            break
    else:
        pytest.fail("an archiving has more steps than were tried")
    assert turn > 15
    archive_more()
    assert completed(client) == landed
    assert driver.count() == 10 * len(landed)
    newest = json.loads(manifests(history)[-1].read_text())["files"]
    assert any(file["fileName"].endswith("_1.parquet") for file in newest), "nothing was joined"
    assert len(list(history.glob("*.parquet"))) <= len(newest) + 8, "nothing was deleted"
    assert len(manifests(history)) <= 4


def test_a_version_file_that_another_writer_has_set_back_hides_nothing_after_the_next_run(hudi) -> None:
    driver, client = hudi
    history = Path(driver.settings.base_path) / ".hoodie" / "timeline" / "history"
    landed = [driver.land(number) for number in range(1, 7)]
    assert not by_name(driver.table.services())["archiving"].reason
    first = manifests(history)[-1]
    markers = [history.parents[1] / ".temp" / instant for instant in (landed[3], "20200101000000000")]
    for directory in markers:
        directory.mkdir(parents=True)
    (history / "manifest_99").write_text("its writer died")
    (history / "_version_").write_text(first.name.removeprefix("manifest_"))
    landed += [driver.land(number) for number in range(7, 12)]
    assert not by_name(driver.table.services())["archiving"].reason
    assert not (history / "_version_").exists()
    assert completed(client) == landed
    assert driver.count() == 110
    assert [directory.exists() for directory in markers] == [False, True], "markers go with their instant"


def test_a_version_file_that_names_a_manifest_which_is_gone_is_not_replaced_by_an_older_one(hudi) -> None:
    driver, _ = hudi
    history = Path(driver.settings.base_path) / ".hoodie" / "timeline" / "history"
    for number in range(1, 7):
        driver.land(number)
    assert not by_name(driver.table.services())["archiving"].reason
    (history / "_version_").write_text("99")
    before = {path.name for path in history.iterdir()}
    reason = by_name(driver.table.services())["archiving"].reason
    assert "_version_: manifest_99 cannot be read. Restore it" in reason
    assert {path.name for path in history.iterdir()} == before
