"""Fleets on HDFS land every record exactly once, whichever worker and whichever namenode is lost; the commands read
the table there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs

from sink.storage.access import Access, hdfs_access
from sink.storage.files import open_storage
from tests.fleet import produce
from tests.integration.commands_kit import command, every_command_works
from tests.integration.conftest import METADATA, PARTITIONS, RECORDS, MakeFleet
from tests.integration.test_cluster import master  # noqa: F401
from tests.storage.hdfs_cluster import SERVICE, HdfsCluster

pytestmark = [pytest.mark.integration, pytest.mark.thorough, pytest.mark.timeout(900)]

MORE = 3000


def ends(records: int) -> dict[int, int]:
    return dict.fromkeys(range(PARTITIONS), records // PARTITIONS)


@pytest.fixture
def first_active(hdfs: HdfsCluster) -> Iterator[HdfsCluster]:
    yield hdfs
    hdfs.start(0)
    hdfs.activate(0)


def test_a_killed_coordinator_and_namenodes_that_fail_over_cost_nothing(
    make_fleet: MakeFleet, first_active: HdfsCluster
) -> None:
    hdfs = first_active
    fleet = make_fleet(
        **METADATA, **hdfs.settings, **{"target.base.path": f"hdfs://{SERVICE}/{uuid.uuid4().hex}/orders"}
    )
    fleet.lose_coordinator()
    hdfs.stop(0)
    hdfs.activate(1)
    fleet.wait_landed(ends(RECORDS))
    fleet.assert_exactly_once(RECORDS)
    # And back, while both run: the formerly active one answers its clients that it is a standby.
    hdfs.start(0)
    produce(fleet.kafka, fleet.topic, MORE, PARTITIONS, first=RECORDS)
    hdfs.activate(0)
    fleet.wait_landed(ends(RECORDS + MORE))
    fleet.assert_exactly_once(RECORDS + MORE)


def test_every_command_reaches_a_table_on_hdfs_by_hadoops_own_files(
    make_fleet: MakeFleet, topic, hdfs: HdfsCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hdfs.conf_dir(tmp_path / "hadoop")))
    directory = f"/{uuid.uuid4().hex}"
    settings = {"target.base.path": f"hdfs://{directory}/orders", "errors.tolerance": "all"}
    fleet = make_fleet(name=topic(partitions=PARTITIONS), **METADATA, **settings)
    every_command_works(fleet)


def test_executors_of_a_standalone_cluster_write_to_hdfs(
    make_fleet: MakeFleet,
    hdfs: HdfsCluster,
    master: str,  # noqa: F811
) -> None:
    on_cluster = {"spark.master": master, "spark.executor.memory": "600m", "spark.cores.max": 2}
    fleet = make_fleet(
        **hdfs.settings, **on_cluster, **{"target.base.path": f"hdfs://{SERVICE}/{uuid.uuid4().hex}/orders"}
    )
    fleet.start("w1")
    fleet.wait_landed(ends(RECORDS))
    fleet.assert_exactly_once(RECORDS)


def test_a_check_of_the_settings_leaves_nothing_behind(
    make_fleet: MakeFleet, hdfs: HdfsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = uuid.uuid4().hex
    fleet = make_fleet(30, **hdfs.settings, **{"target.base.path": f"hdfs://{SERVICE}/{directory}/a/orders"})
    fleet.configure("w1")
    root = open_storage(f"hdfs://{SERVICE}/", Access(hdfs=hdfs_access(hdfs.settings, {})))
    assert "is empty: the table will be created" in command(fleet, "validate").stdout
    assert root.files.get_file_info(f"/{directory}").type is fs.FileType.NotFound
    # HDFS believes the user name that a client gives, and its root belongs to the user who started it.
    monkeypatch.setenv("HADOOP_USER_NAME", "nobody-here")
    result = command(fleet, "validate", fails=True)
    assert "Permission denied: user=nobody-here, access=WRITE" in " ".join((result.stdout + result.stderr).split())
