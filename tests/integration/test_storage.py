"""Storage that refuses writes for a while loses nothing: a full disk, and one that became read-only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.disk import FullDisk, ReadOnlyDisk, small_disk
from tests.fleet import Fleet, produce
from tests.integration.conftest import METADATA, PARTITIONS, RECORDS, MakeFleet
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ENDS = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 32 MiB."""
    with small_disk(tmp_path / "disk", "32m") as mount_point:
        yield mount_point


@pytest.mark.thorough
def test_storage_that_refuses_writes_for_a_while_loses_nothing(make_fleet: MakeFleet, disk: Path) -> None:
    fleet = make_fleet(**METADATA, **{"target.base.path": str(disk / "table")})
    fleet.table = disk / "table"
    fleet.start("w1")
    fleet.start("w2")
    fleet.wait_landed(ENDS)
    landed = RECORDS
    for fault in (FullDisk(disk), ReadOnlyDisk(disk)):
        log_lengths = {name: len(fleet.log(name)) for name in fleet.workers}
        fault.begin()
        produce(fleet.kafka, fleet.topic, 3000, PARTITIONS, first=landed)
        landed += 3000
        eventually("a worker was refused", partial(_refused, fleet, fault.error, log_lengths), 120, fleet.logs)
        fault.end()
        fleet.wait_landed(dict.fromkeys(range(PARTITIONS), landed // PARTITIONS))
        assert fleet.view().halt is None
        fleet.assert_exactly_once(landed)


def _refused(fleet: Fleet, error: str, log_lengths: Mapping[str, int]) -> bool:
    return any(error in fleet.log(name)[length:] for name, length in log_lengths.items())
