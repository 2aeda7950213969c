"""Storage that refuses writes for a while loses nothing: a full disk, and one that became read-only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.disk import FullDisk, ReadOnlyDisk, mount_small, unmount
from tests.fleet import Fleet, produce
from tests.integration.conftest import METADATA, PARTITIONS, RECORDS, MakeFleet
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ENDS = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 32 MiB."""
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    if not mount_small(mount_point, "32m"):
        pytest.skip("mounting a small file system needs root")
    yield mount_point
    unmount(mount_point)


@pytest.mark.thorough
def test_storage_that_refuses_writes_for_a_while_loses_nothing(fleet: MakeFleet, disk: Path) -> None:
    it = fleet(**METADATA, **{"target.base.path": str(disk / "table")})
    it.table = disk / "table"
    it.start("w1")
    it.start("w2")
    it.wait_landed(ENDS)
    landed = RECORDS
    for fault in (FullDisk(disk), ReadOnlyDisk(disk)):
        log_lengths = {name: len(it.log(name)) for name in it.workers}
        fault.begin()
        produce(it.kafka, it.topic, 3000, PARTITIONS, first=landed)
        landed += 3000
        eventually("a worker was refused", partial(_refused, it, fault.error, log_lengths), 120, it.logs)
        fault.end()
        it.wait_landed(dict.fromkeys(range(PARTITIONS), landed // PARTITIONS))
        assert it.view().halt is None
        it.assert_exactly_once(landed)


def _refused(fleet: Fleet, error: str, log_lengths: Mapping[str, int]) -> bool:
    return any(error in fleet.log(name)[length:] for name, length in log_lengths.items())
