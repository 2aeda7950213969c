"""The same fleet with executors on YARN, which write to HDFS and to S3."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import METADATA, PARTITIONS, RECORDS, MakeFleet
from tests.integration.s3_kit import table_location
from tests.storage.hdfs_cluster import SERVICE
from tests.storage.yarn_cluster import a_yarn, on_yarn

pytestmark = [pytest.mark.integration, pytest.mark.thorough, pytest.mark.timeout(900)]

ENDS = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of Hadoop's settings for clients of a cluster."""
    with a_yarn(tmp_path_factory.mktemp("yarn")) as conf:
        yield conf


@pytest.fixture(params=["hdfs", "s3"])
def location(request: pytest.FixtureRequest) -> dict[str, str]:
    """Settings of a table that does not exist yet."""
    if request.param == "s3":
        return table_location(request.getfixturevalue("s3"))
    cluster = request.getfixturevalue("hdfs")
    return {**cluster.settings, "target.base.path": f"hdfs://{SERVICE}/{uuid.uuid4().hex}/orders"}


def test_slices_are_written_on_executors_of_yarn(
    make_fleet: MakeFleet, yarn: Path, location: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn))
    fleet = make_fleet(**METADATA, **location, **on_yarn(tmp_path / "staging"))
    fleet.start("w1")
    fleet.wait_landed(ENDS)
    fleet.assert_exactly_once(RECORDS)
