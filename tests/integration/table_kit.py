"""Settings, checkpoints and data files for the tests of the table, and a second driver in its own process.

`python -m tests.integration.table_kit BASE ZOOKEEPER LOG` is that driver. It reads one JSON command a line
from standard input and answers each with one line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from coordination.errors import SinkError
from coordination.state.model import Checkpoint, PartitionCheckpoint, TableView, TopicPartition
from coordination.zookeeper.table_service_lock import ServiceOutcome
from sink.clients.spark.session import start_session
from sink.config import Settings
from sink.hudi.client import HudiClient
from sink.hudi.lock import TableLocks
from sink.hudi.options import commit_options, service_options
from sink.hudi.specification import DEFAULT_LOCK_BASE_PATH, LOCK_BASE_PATH, LOCK_KEY
from sink.hudi.table import Table
from sink.hudi.table_services import HudiTableServices
from sink.schema.table_schema import TableSchema
from sink.write.rows.row_spec import table_schema
from tests.integration.sinktable import own_lock
from tests.one_sink import load

DDL = "id bigint, kind string"
SINK = "orders"
CLUSTERING = {"services__clustering": "true", "hoodie__clustering__async__max__commits": "1"}
"""Settings with which each run of the table services clusters."""
METADATA = {"hoodie.metadata.enable": True}
"""The default. It takes a third of the work of a young table, so that a fleet goes without unless its test asks."""


def table_settings(base: Path, zookeeper: str, **more: str) -> Settings:
    base.parent.mkdir(parents=True, exist_ok=True)
    config = base.parent / f"{base.name}.properties"
    values = {
        "zookeeper.connect": zookeeper,
        "kafka.bootstrap.servers": "127.0.0.1:9",
        "kafka.topic.names": "t",
        "target.base.path": str(base),
        "target.table.name": SINK,
        "schema.ddl": DDL,
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        # The metadata table takes most of the time of a small commit: tests that are about it turn it on.
        "hoodie.metadata.enable": "false",
        "hoodie.metadata.index.column.stats.enable": "false",
        **own_lock(str(base)),
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    config.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return load(config, {})


def by_name(results: tuple[ServiceOutcome, ...]) -> dict[str, ServiceOutcome]:
    return {result.name: result for result in results}


def checkpoint(number: int, base: int | None = None) -> Checkpoint:
    return Checkpoint(
        sink=SINK,
        keeper="keeper",
        cluster="cluster",
        epoch=1,
        number=number,
        base=number - 1 if base is None else base,
        config="config",
        topics={"t": "topic-id"},
        ends={TopicPartition("t", 0): PartitionCheckpoint(number * 10, 0)},
    )


def allow(view: TableView) -> None:
    """A guard that allows every completion."""


def plan_rollback(spark: SparkSession, sink_settings: Settings, instant: str) -> None:
    """Plans a rollback as another writer does that dies before it carries the plan out; its heartbeat is fresh."""
    hudi = HudiClient(spark, sink_settings.table.store, "{}", commit_options(sink_settings.table))
    meta = hudi.meta_client()
    table = hudi.java.table.HoodieSparkTable.create(hudi.config, hudi.engine_context, meta)
    rollback = str(hudi.client.createNewInstantTime(False))
    pending = hudi.instant(meta, "INFLIGHT", hudi.action, instant)
    table.scheduleRollback(hudi.engine_context, rollback, pending, False, True, False)
    hudi.heartbeats.start(rollback)
    hudi.close()


class Driver:
    """A table and a writer of its files, in this process or (`OtherProcess`) in another."""

    def __init__(self, spark: SparkSession, sink_settings: Settings, client: KazooClient) -> None:
        self.spark = spark
        self.settings = sink_settings
        self.schema: TableSchema = table_schema(sink_settings.table, sink_settings.records)
        self.table = Table(
            spark, sink_settings.table, self.schema, TableLocks(client, sink_settings.table.lock, wait=20)
        )
        self._rows = HudiClient(
            spark,
            sink_settings.table.store,
            self.schema.avro(sink_settings.table_name),
            commit_options(sink_settings.table),
        )

    def write(self, instant: str, first: int, count: int = 10, kind: str = "a") -> list[str]:
        """Writes `count` rows from `first` on into one file."""
        frame = self.spark.range(first, first + count, 1, 1).selectExpr(
            "id",
            f"'{kind}' as kind",
            "'t' as _kafka_topic",
            "0 as _kafka_partition",
            "id as _kafka_offset",
            "timestamp_seconds(id) as _kafka_timestamp",
        )
        return self._rows.bulk_insert_rows(frame._jdf, instant)

    def land(self, number: int) -> str:
        """Runs a whole transaction of ten rows."""
        instant = self.table.begin(number, 1)
        self.table.complete(instant, self.write(instant, number * 10), checkpoint(number), allow)
        return instant

    def begin_as_another(self) -> str:
        """Begins an instant as another writer does, without owner."""
        return self._rows.begin({})

    def land_as_another(self, first: int) -> None:
        """Commits as another writer does, without owner and checkpoint."""
        instant = self.begin_as_another()
        self._rows.commit_stats(instant, self._rows.write_stats(self.write(instant, first)), {}, lambda: None)

    def roll_back_as_another(self, instant: str) -> None:
        """Rolls back as another writer's clean-up of failed writes does."""
        self._rows.roll_back(instant)

    def plan_rollback_as_another(self, instant: str) -> None:
        """Calls `plan_rollback`. Like Hudi's own client, it plans no second rollback of an instant."""
        if instant not in self.table._timeline.snapshot().rolling_back:
            plan_rollback(self.spark, self.settings, instant)

    def plan_restore_as_another(self, target: str, restore: str = "") -> Callable[[], None]:
        """Plans a restore as another writer does, at this instant of its clock. Returns what carries it out."""
        hudi = self._rows
        restore = restore or str(hudi.client.createNewInstantTime(False))
        table = hudi.java.table.HoodieSparkTable.create(hudi.config, hudi.engine_context, hudi.meta_client())
        assert table.scheduleRestore(hudi.engine_context, restore, target).isPresent()

        def carry_out() -> None:
            table.getMetaClient().reloadActiveTimeline()
            table.restore(hudi.engine_context, restore, target)

        return carry_out

    def count(self, metadata: bool = True) -> int:
        reader = self.spark.read.format("hudi").option("hoodie.metadata.enable", str(metadata).lower())
        return reader.load(self.settings.base_path).count()


def other_writer_options(settings: Settings) -> dict[str, str]:
    """Returns the options of another writer's client for table services, which takes the table lock as Hudi does."""
    lock = "hoodie.write.lock"
    return {
        **service_options(settings.table),
        f"{lock}.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
        # The port belongs into the url: without it the first commit hangs for minutes.
        f"{lock}.zookeeper.url": settings.zookeeper,
        f"{lock}.zookeeper.port": settings.zookeeper.split(",")[0].split("/")[0].rpartition(":")[2],
        LOCK_BASE_PATH: settings.hudi.get(LOCK_BASE_PATH, DEFAULT_LOCK_BASE_PATH),
        LOCK_KEY: settings.hudi.get(LOCK_KEY, settings.table_name),
    }


def hudi_lock_provider(spark: SparkSession, sink_settings: Settings) -> Any:
    """Hudi's own lock provider, as another writer configures it."""
    hudi = HudiClient(spark, sink_settings.table.store, "{}", other_writer_options(sink_settings))
    properties = hudi.java.common.config.TypedProperties()
    for name, value in other_writer_options(sink_settings).items():
        properties.setProperty(name, value)
    return hudi.java.client.transaction.lock.ZookeeperBasedLockProvider(
        hudi.java.common.config.LockConfiguration(properties), hudi.storage_conf
    )


def try_lock(spark: SparkSession, provider: Any, seconds: int) -> bool:
    return bool(provider.tryLock(seconds, spark.sparkContext._jvm.java.util.concurrent.TimeUnit.SECONDS))


class OtherProcess:
    """A driver in another process with its own JVM, on a host in time zone `zone`."""

    def __init__(self, base: Path, zookeeper: str, zone: str = "UTC") -> None:
        self._log = base.parent / "other.log"
        command = [sys.executable, "-m", "tests.integration.table_kit", str(base), zookeeper, str(self._log)]
        environment = {**os.environ, "TZ": zone}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._answer()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def open(self, base: Path, **more: str) -> None:
        """Takes a driver of another table, or with other settings, from now on."""
        self.ask("open", str(base), more)

    def ask(self, name: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the other driver ended; see {self._log}"
        return json.loads(line)

    def kill(self) -> None:
        """Sends SIGKILL to Python. The JVM ends too, because its standard input is gone."""
        self._process.kill()
        self._process.wait()


@contextmanager
def connected(zookeeper: str) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper)
    client.start()
    yield client
    client.stop()
    client.close()


def _serve(base: str, zookeeper: str, log: str) -> None:
    sink_settings = table_settings(Path(base), zookeeper)
    with connected(zookeeper) as client:
        driver = Driver(start_session(sink_settings.session, "other", Path(log)), sink_settings, client)
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            name, *arguments = json.loads(line)
            if name == "open":
                driver.table.stop_heartbeats()
                base, more = arguments
                driver = Driver(driver.spark, table_settings(Path(base), zookeeper, **more), client)
                print(json.dumps("ready"), flush=True)
                continue
            try:
                answer: Any = _perform(driver, name, arguments)
            except SinkError as error:
                answer = {"error": type(error).__name__, "said": str(error)}
            print(json.dumps(answer), flush=True)


def _perform(driver: Driver, name: str, arguments: Sequence[Any]) -> Any:
    match name:
        case "set_clock_ahead":
            # Hudi sees the clock ten hours ahead: it takes the zone from here with its first instant.
            zones = driver.spark._jvm.java.util.TimeZone
            return zones.setDefault(zones.getTimeZone("GMT+10"))
        case "set_clock_ahead_by":
            [seconds] = arguments
            zone = driver.spark._jvm.java.util.SimpleTimeZone(1000 * seconds, f"+00:00:{seconds:02}")
            return zone.setDefault(zone)
        case "begin":
            return driver.table.begin(*arguments)
        case "write":
            return driver.write(*arguments)
        case "complete":
            instant, stats, number = arguments
            return driver.table.complete(instant, stats, checkpoint(number), allow).name
        case "roll_back":
            return driver.table.roll_back(*arguments)
        case "plan":
            locks = driver.table._locks
            return HudiTableServices(driver.table._hudi, driver.settings.table, locks)._plan(*arguments)
        case "metadata_services":
            return [service.reason for service in driver.table.metadata_services()]
    raise AssertionError(name)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
