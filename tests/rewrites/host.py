"""A worker's process with a JVM of its own, which carries out one command after another, and which a test may kill.

`python -m tests.rewrites.host SETTINGS LOG` is that process: it reads a command a line from standard input and answers
each with one line. The classes that it calls are the sink's own; what another writer of the table does is Hudi's own.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil
from kazoo.client import KazooClient
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from coordination.errors import Conflict, SinkError
from coordination.state.model import (
    Checkpoint,
    LogView,
    PartitionCheckpoint,
    Slice,
    SliceResult,
    TableView,
    TopicPartition,
    WriteTask,
)
from sink.clients.java.errors import JAVA_ERRORS, message
from sink.clients.spark.session import start_session
from sink.config import Settings
from sink.hudi.client import HudiClient
from sink.hudi.lock import TableLocks
from sink.hudi.options import commit_options, service_options
from sink.hudi.specification import DEFAULT_LOCK_BASE_PATH, LOCK_BASE_PATH, LOCK_KEY
from sink.hudi.table import Table
from sink.storage.access import hadoop_options
from sink.telemetry.failpoints import DIRECTORY
from sink.write.engines.engine import engine_of
from sink.write.rows.row_spec import ColumnResolver, table_schema
from tests.one_sink import load

ANSWER_SECONDS = 180.0
SESSION_SECONDS = 30.0
FENCE = "/rewrites"
"""Below it, for each sink, the epoch of its coordinator."""
_LOCK = "hoodie.write.lock"
T = TypeVar("T")


class Died(Exception):
    """A host's process has ended."""


class Refused(SinkError):
    """The coordinator that asks to complete an instant leads no longer."""


class Host:
    """A worker's process, as the one that commands it sees it."""

    def __init__(self, properties: Path, directory: Path, name: str) -> None:
        self.name = name
        self._log = directory / f"{name}.log"
        self.failpoints = directory / f"{name}.failpoints"
        self.failpoints.mkdir()
        command = [sys.executable, "-m", "tests.rewrites.host", str(properties), str(self._log)]
        environment = {**os.environ, DIRECTORY: str(self.failpoints)}
        with self._log.with_suffix(".err").open("w") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            )
        self._is_up = False
        self.paused = False
        self.cpu_seconds = 0.0
        """CPU time of the process and those below it when it was killed."""

    def begin(self, command: str, **arguments: Any) -> None:
        """Has the process begin a command, whose `answer` is awaited later."""
        if not self._is_up:
            # Its first line says that its session has started.
            self.answer()
            self._is_up = True
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([command, arguments]) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise Died(f"{self.name} has ended; see {self._log}") from error

    @property
    def has_answered(self) -> bool:
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def answer(self, seconds: float = ANSWER_SECONDS) -> Any:
        """Returns what a command returned, or `{"error": ..., "said": ...}`."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            raise TimeoutError(f"{self.name} has not answered within {seconds:g} s; see {self._log}")
        line = self._process.stdout.readline()
        if not line:
            raise Died(f"{self.name} has ended; see {self._log}")
        return json.loads(line)

    def ask(self, command: str, **arguments: Any) -> Any:
        """Returns what the command returned. Raises AssertionError if it failed."""
        answer = self.attempt(command, **arguments)
        assert not failed(answer), f"{command}: {answer}"
        return answer

    def attempt(self, command: str, **arguments: Any) -> Any:
        self.begin(command, **arguments)
        return self.answer()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.paused = False

    def kill(self) -> None:
        self.count_cpu()
        self._signal(signal.SIGKILL)
        self._process.wait()

    def count_cpu(self) -> float:
        """Returns the CPU seconds that the process and those below it have used so far."""
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
            self.cpu_seconds = sum(sum(used[:4]) for used in times)
        return self.cpu_seconds

    def arm(self, point: str, action: str) -> None:
        """Arms a failpoint, which fires once."""
        for stale in (self.failpoints / point, self.failpoints / f"{point}.go"):
            stale.unlink(missing_ok=True)
        armed = self.failpoints / f"{point}.armed"
        temporary = armed.with_suffix(".new")
        temporary.write_text(f"{self._process.pid} {action}")
        temporary.replace(armed)

    def reached(self, point: str) -> bool:
        return (self.failpoints / point).exists()

    def let_go(self, point: str) -> None:
        """Lets the process go on that waits at a failpoint, and disarms the point."""
        (self.failpoints / f"{point}.armed").unlink(missing_ok=True)
        (self.failpoints / f"{point}.go").touch()

    def _signal(self, number: int) -> None:
        """Signals Python, its JVM and Spark's Python workers."""
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            for one in (*process.children(recursive=True), process):
                with suppress(ProcessLookupError):
                    os.kill(one.pid, number)


def failed(answer: Any) -> str:
    """Returns what a command said that failed, or an empty text."""
    return f"{answer['error']}: {answer['said']}" if isinstance(answer, dict) and "error" in answer else ""


@dataclass
class _Sink:
    settings: Settings
    table: Table
    engine: Any
    columns: ColumnResolver


class _Commands:
    """The commands of a host; each method without an underscore is one. A `topic` is its name, its id and the id of its
    cluster.
    """

    def __init__(self, spark: SparkSession, zookeeper: str) -> None:
        self._spark = spark
        self._client = KazooClient(zookeeper)
        self._client.start()
        self._sinks: dict[str, _Sink] = {}

    def wait_connected(self) -> None:
        """Waits until ZooKeeper answers again: a command that was to lose its session may have ended before that."""
        wait_until(lambda: self._client.connected, SESSION_SECONDS)

    def session(self) -> list[Any]:
        """Returns what another client needs to end the ZooKeeper session of this process."""
        session, password = self._client.client_id
        return [session, password.hex()]

    def forget(self) -> None:
        """Forgets all tables, whose heartbeats end."""
        for sink in self._sinks.values():
            sink.table.stop_heartbeats()
        self._sinks = {}
        self._spark.catalog.clearCache()

    def open(self, properties: str) -> None:
        """Takes a sink, by its settings; its table is created if it is missing."""
        if properties in self._sinks:
            self._sinks.pop(properties).table.stop_heartbeats()
        settings = load(Path(properties), {})
        for name, value in hadoop_options(settings.storage).items():
            self._spark.sparkContext._jsc.hadoopConfiguration().set(name.removeprefix("spark.hadoop."), value)
        schema = table_schema(settings.table, settings.records)
        table = Table(self._spark, settings.table, schema, TableLocks(self._client, settings.table.lock))
        engine = engine_of(self._spark, settings.table, settings.records, schema)
        engine.check()
        table.ensure()
        self._sinks[properties] = _Sink(
            settings, table, engine, ColumnResolver(settings.table, settings.records, table)
        )

    def begin(self, sink: str, number: int) -> str:
        return self._sinks[sink].table.begin(number, 1)

    def write(self, sink: str, instant: str, topic: list[str], ranges: list[tuple[int, int, int]]) -> dict[str, Any]:
        """Writes a slice for each `(partition, start, end)`. Returns what the coordinator gets."""
        taken = self._sinks[sink]
        taken.table.view()
        name, topic_id, cluster = topic
        columns = taken.columns.resolve(LogView(cluster, {}))
        assert not columns.schema_conflict, columns.schema_conflict
        tasks = [WriteTask((Slice(name, *bounds, topic_id, 0),)) for bounds in ranges]
        written = taken.engine.write(instant, tasks, columns.columns, cluster=cluster)
        existing = taken.table.existing_file_ids(written.stats)
        assert not existing, f"the table has files of a batch that is formed again: {existing}"
        results = [
            (result.slice.partition, result.slice.start, result.slice.end, result.records, result.digest)
            for result in written.results
        ]
        return {"stats": list(written.stats), "results": results, "columns": columns.columns}

    def complete(
        self, sink: str, instant: str, topic: list[str], number: int, ends: Mapping[str, int], written: Any, epoch: int
    ) -> str:
        taken = self._sinks[sink]
        name, topic_id, cluster = topic
        results = tuple(
            SliceResult(Slice(name, partition, start, end, topic_id, 0), records, digest)
            for partition, start, end, records, digest in written["results"]
        )
        new = Checkpoint(
            sink=taken.settings.name,
            keeper="keeper",
            cluster=cluster,
            epoch=1,
            number=number,
            base=number - 1,
            config="config",
            topics={name: topic_id},
            ends={TopicPartition(name, int(partition)): PartitionCheckpoint(end, 0) for partition, end in ends.items()},
            results=results,
        )

        def guard(view: TableView) -> None:
            newest = view.checkpoint.number if view.checkpoint else 0
            if newest != new.base:
                raise Conflict(f"the table's checkpoint is transaction {newest}, this one extends {new.base}")
            path = f"{FENCE}/{taken.settings.name}"
            self._client.sync(path)
            if int(self._client.get(path)[0]) != epoch:
                raise Refused(f"another worker coordinates {taken.settings.name}")

        return taken.table.complete(instant, written["stats"], new, guard, written["columns"]).name

    def roll_back(self, sink: str, instant: str) -> None:
        self._sinks[sink].table.roll_back(instant)

    def view(self, sink: str) -> dict[str, Any]:
        """Returns number and ends of the table's newest checkpoint, and the sink's pending instants."""
        found = self._sinks[sink].table.view()
        checkpoint = found.checkpoint
        ends = {} if checkpoint is None else {key.partition: end.end for key, end in checkpoint.ends.items()}
        return {"number": checkpoint.number if checkpoint else 0, "ends": ends, "orphans": list(found.orphans)}

    def services(self, sink: str) -> list[dict[str, Any]]:
        return [asdict(service) for service in self._sinks[sink].table.services()]

    def metadata_services(self, sink: str) -> list[dict[str, Any]]:
        return [asdict(service) for service in self._sinks[sink].table.metadata_services()]

    def rows(self, sink: str, metadata: bool) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._read(sink, metadata).toJSON().collect()]

    def write_rows(self, sink: str, metadata: bool, folder: str) -> None:
        self._read(sink, metadata).write.parquet(Path(folder).as_uri())

    def _read(self, sink: str, metadata: bool) -> DataFrame:
        reader = self._spark.read.format("hudi").option("hoodie.metadata.enable", str(metadata).lower())
        return reader.load(self._sinks[sink].settings.base_path)

    def upsert_as_another(self, sink: str, rows: list[Mapping[str, Any]], operation: str, schema: str) -> None:
        """Writes rows with Spark's data source for Hudi, as any other job does that takes the table's lock."""
        settings = self._sinks[sink].settings
        options = {**commit_options(settings.table), **_hudis_lock(settings)}
        options |= {"hoodie.datasource.write.operation": operation, "hoodie.combine.before.upsert": "true"}
        frame = self._spark.createDataFrame([tuple(row.values()) for row in rows], schema)
        frame.coalesce(1).write.format("hudi").options(**options).mode("append").save()

    def drop_partition_as_another(self, sink: str, directory: str) -> None:
        settings = self._sinks[sink].settings
        options = {**commit_options(settings.table), **_hudis_lock(settings)}
        options |= {
            "hoodie.datasource.write.operation": "delete_partition",
            "hoodie.datasource.write.partitions.to.delete": directory,
        }
        frame = self._spark.read.format("hudi").load(settings.base_path).limit(0)
        frame.write.format("hudi").options(**options).mode("append").save()

    def roll_back_replacements_as_another(self, sink: str) -> None:
        """Rolls back what a drop that Hudi has refused leaves pending, as the program that was refused does."""
        with closing(self._another(sink)) as hudi:
            pending = hudi.meta_client().getActiveTimeline().filterPendingReplaceTimeline()
            for instant in [str(entry.requestedTime()) for entry in pending.getInstants()]:
                hudi.client.rollback(instant)

    def savepoint(self, sink: str) -> str:
        """Saves the newest completion, as an operator does. Returns its instant."""
        with closing(self._another(sink)) as hudi:
            commits = hudi.meta_client().getActiveTimeline().getCommitsTimeline().filterCompletedInstants()
            newest = max(hudi.json(commits.getInstants()), key=lambda entry: entry["completionTime"])
            instant = str(newest["requestedTime"])
            hudi.client.savepoint(instant, "rewrites", "a savepoint")
            return instant

    def restore(self, sink: str, instant: str) -> str:
        """Restores the table to a savepoint, or finishes that, and deletes the savepoint, whose instant it returns."""
        with closing(self._another(sink)) as hudi:
            hudi.client.restoreToSavepoint(instant)
            hudi.client.deleteSavepoint(instant)
            return instant

    def delete_metadata_table(self, sink: str) -> None:
        """Deletes the metadata table, as an operator does by `CALL delete_metadata_table`."""
        with closing(self._another(sink)) as hudi:
            hudi.delete_metadata_table(hudi.meta_client())

    def roll_back_as_another(self, sink: str, instant: str) -> None:
        with closing(self._another(sink)) as hudi:
            hudi.client.rollback(instant)

    def plan_roll_back_as_another(self, sink: str, instant: str) -> None:
        """Plans a rollback as another writer does that dies then."""
        with closing(self._another(sink)) as hudi:
            meta = hudi.meta_client()
            table = hudi.java.table.HoodieSparkTable.create(hudi.config, hudi.engine_context, meta)
            entry = hudi.instant(meta, "INFLIGHT", hudi.action, instant)
            rollback = str(hudi.client.createNewInstantTime(False))
            table.scheduleRollback(hudi.engine_context, rollback, entry, False, True, False)

    def clean_as_another(self, sink: str) -> None:
        """Cleans as another job does, which first rolls back what it takes for the instants of dead writers."""
        with closing(self._another(sink)) as hudi:
            hudi.client.clean()

    def compact_as_another(self, sink: str) -> str:
        with closing(self._another(sink)) as hudi:
            planned = hudi.client.scheduleCompaction(hudi.option())
            if not planned.isPresent():
                return ""
            hudi.client.compact(planned.get(), True)
            return str(planned.get())

    def _another(self, sink: str) -> HudiClient:
        """Returns the client of another writer of the table."""
        settings = self._sinks[sink].settings
        avro = self._sinks[sink].table._hudi.table_schema(self._sinks[sink].table._hudi.meta_client())
        options = {**service_options(settings.table), **_hudis_lock(settings)}
        options |= {"hoodie.clustering.async.enabled": "false", "hoodie.clean.failed.writes.policy": "LAZY"}
        return HudiClient(self._spark, settings.table.store, avro or "{}", options)


def _hudis_lock(settings: Settings) -> dict[str, str]:
    """Returns the options by which another writer takes the table's lock."""
    return {
        f"{_LOCK}.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
        # The port belongs into the url: without it the first commit hangs for minutes.
        f"{_LOCK}.zookeeper.url": settings.zookeeper,
        f"{_LOCK}.zookeeper.port": settings.zookeeper.split(",")[0].split("/")[0].rpartition(":")[2],
        LOCK_BASE_PATH: settings.hudi.get(LOCK_BASE_PATH, DEFAULT_LOCK_BASE_PATH),
        LOCK_KEY: settings.hudi.get(LOCK_KEY, settings.table_name),
    }


def _serve(properties: str, log: str) -> None:
    settings = load(Path(properties), {})
    # What the JVM prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    commands = _Commands(start_session(settings.session, "rewrites", Path(log)), settings.zookeeper)

    def answer(value: Any) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    answer("ready")
    for line in sys.stdin:
        name, arguments = json.loads(line)
        commands.wait_connected()
        try:
            answer(getattr(commands, name)(**arguments))
        except (SinkError, *JAVA_ERRORS, OSError, AssertionError) as error:
            said = message(error, 600) if isinstance(error, Py4JJavaError) else str(error)[:600]
            answer({"error": type(error).__name__, "said": said})


def wait_until(condition: Callable[[], T], seconds: float, pause: float = 0.002) -> T:
    """Returns the first true value of the condition, or its last after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(pause)
    return value


def ranges_of(ends: Mapping[int, int], starts: Mapping[int, int]) -> Sequence[tuple[int, int, int]]:
    """Returns `(partition, start, end)` of each partition that has something to be read."""
    return [
        (partition, starts.get(partition, 0), end) for partition, end in ends.items() if end > starts.get(partition, 0)
    ]


if __name__ == "__main__":
    _serve(*sys.argv[1:])
