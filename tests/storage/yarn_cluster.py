"""A real YARN cluster for tests: Hadoop's own, a resource manager and one node manager in one JVM, on loopback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sink.clients.artifacts import pyspark_jars
from sink.clients.java import find_java
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
    # A full disk of the machine, and what Java reserves and never touches, are nothing to a test.
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.9",
    "yarn.nodemanager.vmem-check-enabled": "false",
}


@contextmanager
def a_yarn(directory: Path) -> Iterator[Path]:
    """The directory for `HADOOP_CONF_DIR`."""
    with hadoop_jvm(directory, "yarn") as gateway:
        yarn = gateway.jvm.org.apache.hadoop.yarn
        conf = yarn.conf.YarnConfiguration()
        for name, value in _CONF.items():
            conf.set(name, value)
        cluster = yarn.server.MiniYARNCluster("sink", 1, 1, 1)
        cluster.init(conf)
        cluster.start()
        known = {name: cluster.getConfig().get(name) for name in _ADDRESSES}
        write_site(directory / "conf", "yarn-site", {name: value for name, value in known.items() if value})
        yield directory / "conf"
        cluster.stop()


def on_yarn(directory: Path) -> Mapping[str, object]:
    """Settings for the cluster's only host, which has Spark's jars already."""
    java = str(find_java().home)
    return {
        "spark.master": "yarn",
        "spark.executor.instances": 2,
        "spark.executor.memory": "600m",
        # Beside the heap: what Python takes counts, too.
        "spark.executor.memoryOverhead": "900m",
        "spark.yarn.am.memory": "256m",
        "spark.yarn.jars": f"local:{pyspark_jars()}/*",
        "spark.yarn.stagingDir": directory.as_uri(),
        "spark.yarn.appMasterEnv.JAVA_HOME": java,
        "spark.executorEnv.JAVA_HOME": java,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
    }
