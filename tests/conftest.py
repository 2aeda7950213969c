"""Real servers for the tests: embedded, in containers, or running ones that the environment names.

`TEST_ZOOKEEPER` and `TEST_KAFKA` give addresses of running servers; `TEST_SERVERS=docker` takes
containers where a Docker engine answers; otherwise the servers of `sink.devtools.local` are started. All processes of a
run share them: a test owns only its `chroot` and the topics that it created. A test that stops or empties a server
starts one of its own (`sink.devtools.local.zookeeper.ZooKeeperServer(tmp_path)`).
"""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from sink.clients.host.child_environment import overrides_a_setting
from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.kafka_tools import note_topic_id
from tests.storage.hdfs_cluster import HdfsCluster, a_cluster
from tests.storage.s3_server import Store, a_store
from tests.thorough import is_thorough

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_HEAP = "1g"

OWN_PROCESSES = frozenset({"make_fleet", "fleet", "demo"})
"""Fixtures whose tests start every Spark that they use as a process of its own. A module that has a `fleet` of its own
starts none with it."""
LONGEST = (
    "test_s3_outage",
    "test_takeover",
    "test_demo",
    "test_audit_service",
    "test_many_sinks",
    "test_topics",
    "test_s3_fleet",
    "test_security",
)
"""Files with tests of such fixtures that take half a minute or more. They run before the other fleets, so that none
runs alone at the end."""

TopicFactory = Callable[..., str]
SERVERS = ("TEST_ZOOKEEPER", "TEST_KAFKA", "TEST_SERVERS")
OWN_SERVERS = "own"
"""The last of these, where the controller of a run has started the servers."""
_STARTED = pytest.StashKey[ExitStack]()


def pytest_configure() -> None:
    """Keeps this process's settings from the processes that tests start, and lets their JVMs start fast."""
    for name in [name for name in os.environ if overrides_a_setting(name)]:
        del os.environ[name]
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell ignores SIGINT for a background job, and every process that the tests start would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    from tests.jvm import start_fast

    start_fast()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Starts one ZooKeeper and one broker for all processes of a run."""
    if any(name in os.environ for name in SERVERS):
        return
    stack = config.stash[_STARTED] = ExitStack()
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sink-test-servers-")))
    servers = ZooKeeperServer(directory / "zookeeper"), KafkaServer(directory / "kafka")
    for server in servers:
        server.launch()
    addresses = [stack.enter_context(server).address for server in servers]
    os.environ.update(zip(SERVERS, [*addresses, OWN_SERVERS], strict=True))


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash.get(_STARTED, ExitStack()).close()


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the marks in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups tests for `--dist loadgroup`: a file's tests share one process and its Spark, a fleet may run anywhere."""
    for item in items:
        if is_thorough(item.nodeid):
            item.add_marker(pytest.mark.thorough)
        if not OWN_PROCESSES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(str(item.path)))
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Ends a run with what was skipped. Each reason names the command that would end it."""
    yield
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.getreports("skipped"))
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"{count} skipped: {reason}")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Restores logging: a command that runs in this process configures it, on a stream that ends with its test."""
    loggers = [logging.getLogger(name) for name in ("", "sink", "coordination", "kazoo")]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@dataclass(frozen=True, slots=True)
class Address:
    """A server that the tests did not start."""

    address: str


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer | Address]:
    """A ZooKeeper, by its `.address`, that outlives the test. Stay below `chroot`."""
    if address := os.environ.get("TEST_ZOOKEEPER"):
        yield Address(address)
    elif _docker():
        from testcontainers.core.container import DockerContainer
        from testcontainers.core.waiting_utils import wait_for_logs

        with DockerContainer("zookeeper:3.8").with_exposed_ports(2181) as container:
            wait_for_logs(container, "binding to port")
            yield Address(f"{container.get_container_host_ip()}:{container.get_exposed_port(2181)}")
    else:
        with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
            yield server


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer | Address]:
    """A broker, by its `.address`, that outlives the test. Use topics of the `topic` fixture."""
    if address := os.environ.get("TEST_KAFKA"):
        yield Address(address)
    elif _docker():
        from testcontainers.kafka import KafkaContainer

        with KafkaContainer().with_kraft() as container:
            yield Address(container.get_bootstrap_server())
    else:
        with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
            yield server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """An S3 server that outlives the test. Create a bucket for each test."""
    with a_store(tmp_path_factory.mktemp("s3")) as store:
        yield store


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    """An HDFS cluster that outlives the test, its first namenode active. Stay in a directory of each test's own."""
    with a_cluster(tmp_path_factory.mktemp("hdfs")) as cluster:
        yield cluster


@pytest.fixture
def chroot(zookeeper: ZooKeeperServer | Address) -> Iterator[str]:
    """Yields `host:port/path` of an empty tree for one test, and deletes the tree afterwards."""
    with temporary_chroot(zookeeper.address) as root:
        yield root


@contextmanager
def temporary_chroot(address: str) -> Iterator[str]:
    root = f"/test-{uuid.uuid4().hex[:12]}"
    client = KazooClient(hosts=address)
    client.start()
    client.create(root)
    yield f"{address}{root}"
    client.delete(root, recursive=True)
    client.stop()
    client.close()


@pytest.fixture
def topic(kafka: KafkaServer | Address) -> Iterator[TopicFactory]:
    """Creates a topic and returns its name: `topic(partitions=3, config={"cleanup.policy": "compact"})`."""
    with topics(kafka.address) as make:
        yield make


@contextmanager
def topics(address: str) -> Iterator[TopicFactory]:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
    created: list[str] = []

    def make(partitions: int = 1, name: str = "", config: Mapping[str, str] | None = None) -> str:
        name = name or f"t{uuid.uuid4().hex[:12]}"
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin.create_topics([new])[name].result(timeout=30)
        note_topic_id(admin, name)
        created.append(name)
        return name

    yield make
    remaining = set(created) & set(admin.list_topics(timeout=30).topics)
    for deletion in admin.delete_topics(sorted(remaining)).values() if remaining else ():
        deletion.result(timeout=30)


@pytest.fixture(scope="module")
def spark(shared_spark: SparkSession) -> Iterator[SparkSession]:
    """A Spark session as a worker starts it, on two cores. Settings that a module changes are restored after it."""
    original = {row.key: row.value for row in shared_spark.sql("SET").collect()}
    yield shared_spark
    for row in shared_spark.sql("SET").collect():
        if row.key not in original:
            shared_spark.conf.unset(row.key)
        elif row.value != original[row.key]:
            shared_spark.conf.set(row.key, original[row.key])


@pytest.fixture(scope="session")
def shared_spark(
    tmp_path_factory: pytest.TempPathFactory,
    zookeeper: ZooKeeperServer | Address,
    kafka: KafkaServer | Address,
) -> Iterator[SparkSession]:
    """A Spark session in the one JVM of this process."""
    from sink.clients.spark.session import start_session
    from tests.jvm import end_jvm
    from tests.one_sink import load

    directory = tmp_path_factory.mktemp("spark")
    config = directory / "sink.properties"
    settings = {
        "zookeeper.connect": zookeeper.address,
        "kafka.bootstrap.servers": kafka.address,
        "kafka.topic.names": "none",
        # An s3a path puts the jars for S3 on the class path.
        "target.base.path": "s3a://none/table",
        "target.table.name": "none",
        "schema.ddl": "id long",
        "spark.master": "local[2]",
        "spark.driver.memory": SPARK_HEAP,
    }
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    session = start_session(load(config, {}).session, "tests", directory / "spark.log")
    yield session
    session.stop()
    end_jvm()


def _docker() -> bool:
    """Whether TEST_SERVERS asks for containers, and a Docker engine answers."""
    if os.environ.get("TEST_SERVERS") != "docker":
        return False
    from docker.errors import DockerException

    import docker

    try:
        docker.from_env().ping()
    except DockerException:
        return False
    return True
