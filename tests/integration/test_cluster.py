"""The same fleet on a Spark standalone cluster: a master and two workers of one core each, on loopback."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sink.clients.java.installation import pyspark_jars
from sink.devtools.local.servers import LOOPBACK, Server, free_ports
from tests.integration.conftest import PARTITIONS, RECORDS, MakeFleet
from tests.integration.sinktable import slices_of
from tests.integration.upsert_kit import BY_RECORD_INDEX, UPSERTING, expected, plain, random_log, rows, send

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ENDS = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)


class SparkDaemon(Server):
    """A standalone master, or a worker of the given master."""

    def __init__(self, directory: Path, master: SparkDaemon | None = None) -> None:
        super().__init__(directory, 0, "Spark worker" if master else "Spark master")
        self._master = master
        self._page = free_ports(1)[0]

    def _command(self) -> list[str]:
        role = ["org.apache.spark.deploy.master.Master"]
        if self._master is not None:
            role = ["org.apache.spark.deploy.worker.Worker", "-c", "1", "-m", "1g", "-d", str(self.directory)]
        addresses = ["--host", LOOPBACK, "--port", str(self.port), "--webui-port", str(self._page)]
        master_url = [f"spark://{self._master.address}"] if self._master is not None else []
        home = pyspark_jars().parent
        daemon = self._java("256m", [pyspark_jars() / "*"], *role, *addresses, *master_url, versions=(17, 11))
        return ["env", f"SPARK_HOME={home}", "SPARK_SCALA_VERSION=2.12", "SPARK_LOCAL_IP=127.0.0.1", *daemon]

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self._page}/json/", timeout=2) as page:
                return bool(page.status == 200)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    with (
        SparkDaemon(tmp_path / "master") as daemon,
        SparkDaemon(tmp_path / "one", daemon),
        SparkDaemon(tmp_path / "two", daemon),
    ):
        yield f"spark://{daemon.address}"


@pytest.mark.parametrize("engine", ["arrow", pytest.param("hudi", marks=pytest.mark.thorough)])
def test_slices_are_written_on_the_executors_of_a_cluster(make_fleet: MakeFleet, master: str, engine: str) -> None:
    fleet = make_fleet(
        **{"spark.master": master, "spark.executor.memory": "600m", "write.engine": engine, "spark.cores.max": 2}
    )
    fleet.start("w1")
    fleet.wait_landed(ENDS)
    fleet.assert_exactly_once(RECORDS)


@pytest.mark.thorough
def test_rows_are_changed_on_the_executors_of_a_cluster(
    make_fleet: MakeFleet, master: str, topic: Any, kafka: Any
) -> None:
    log, name = random_log(8, 2, 600, 100, ordered=False), topic(partitions=2)
    for partition in (0, 1):
        send(kafka.address, name, log.changes(partition), partition)
    on_cluster = {"spark.master": master, "spark.executor.memory": "600m", "spark.cores.max": 2}
    fleet = make_fleet(name=name, **{**on_cluster, **UPSERTING, **BY_RECORD_INDEX, "flush.size": 300})
    fleet.start("w1")
    ends = {partition: len(log.partitions[partition]) for partition in (0, 1)}
    fleet.wait_landed(ends)
    slices = slices_of(name, *((partition, 0, end) for partition, end in ends.items()))
    assert rows(fleet.table) == plain(expected(log, slices, ordered=False))
