"""Storage that refuses writes for a while loses nothing: a full disk, and one that became read-only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.disk import FullDisk, ReadOnlyDisk, mount_small, unmount
from tests.fleet import produce
from tests.integration.conftest import PARTITIONS, RECORDS, MakeFleet
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ENDS = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 32 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    if not mount_small(place, "32m"):
        pytest.skip("mounting a small file system needs root")
    yield place
    unmount(place)


@pytest.mark.parametrize("trouble", [FullDisk, ReadOnlyDisk])
def test_storage_that_refuses_writes_for_a_while_loses_nothing(
    fleet: MakeFleet, disk: Path, trouble: Callable[[Path], FullDisk | ReadOnlyDisk]
) -> None:
    it = fleet(**{"target.base.path": str(disk / "table")})
    it.table = disk / "table"
    it.start("w1")
    it.start("w2")
    it.wait_landed(ENDS)
    refusing = trouble(disk)
    refusing.begin()
    produce(it.kafka, it.topic, 3000, PARTITIONS, first=RECORDS)
    eventually("a worker was refused", lambda: any(refusing.error in it.log(name) for name in it.workers), 120, it.logs)
    refusing.end()
    it.wait_landed({p: end + 1000 for p, end in ENDS.items()})
    assert it.view().halt is None
    it.assert_exactly_once(RECORDS + 3000)
