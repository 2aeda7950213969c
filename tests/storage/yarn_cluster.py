"""Runs a real YARN cluster for tests: Hadoop's MiniYARNCluster in one JVM, on loopback, with one node manager."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sink.clients.java.installation import find_java, pyspark_jars
from sink.devtools.local.servers import LOOPBACK
from tests.storage.hadoop_jvm import hadoop_jvm, write_site

_ADDRESSES = tuple(
    f"yarn.resourcemanager.{name}address" for name in ("", "scheduler.", "resource-tracker.", "admin.", "webapp.")
)
_CONF = {
    "yarn.minicluster.yarn.nodemanager.resource.memory-mb": "6144",
    "yarn.nodemanager.resource.cpu-vcores": "4",
    "yarn.resourcemanager.scheduler.class": (
        "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
    ),
    "yarn.scheduler.minimum-allocation-mb": "256",
    # Tests ignore a full disk of the machine, and memory that Java reserves but never touches.
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.9",
    "yarn.nodemanager.vmem-check-enabled": "false",
}


@contextmanager
def a_yarn(directory: Path) -> Iterator[Path]:
    """Yields the directory for `HADOOP_CONF_DIR`."""
    with hadoop_jvm(directory, "yarn") as gateway:
        yarn = gateway.jvm.org.apache.hadoop.yarn
        conf = yarn.conf.YarnConfiguration()
        for name, value in _CONF.items():
            conf.set(name, value)
        cluster = yarn.server.MiniYARNCluster("sink", 1, 1, 1)
        cluster.init(conf)
        cluster.start()
        addresses = {name: cluster.getConfig().get(name) for name in _ADDRESSES}
        write_site(directory / "conf", "yarn-site", {name: value for name, value in addresses.items() if value})
        yield directory / "conf"
        cluster.stop()


def on_yarn(directory: Path) -> Mapping[str, object]:
    """Returns settings for the cluster's only host, which has Spark's jars already."""
    java = str(find_java().home)
    return {
        "spark.master": "yarn",
        "spark.executor.instances": 2,
        "spark.executor.memory": "600m",
        # Beyond the heap: YARN counts Python's memory, too.
        "spark.executor.memoryOverhead": "900m",
        "spark.yarn.am.memory": "256m",
        "spark.yarn.jars": f"local:{pyspark_jars()}/*",
        "spark.yarn.stagingDir": directory.as_uri(),
        "spark.yarn.appMasterEnv.JAVA_HOME": java,
        "spark.executorEnv.JAVA_HOME": java,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
    }
