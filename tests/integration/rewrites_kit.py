"""Runs a sink's table services in a process of their own, which a test stops or kills in the middle.

`python -m tests.integration.rewrites_kit PROPERTIES LOG` is that process: for each line that it reads it runs the
services once, and prints what each says.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import structlog
from kazoo.client import KazooClient

from sink.clients.spark.session import start_session
from sink.hudi.client import HudiClient
from sink.hudi.lock import TableLocks
from sink.hudi.options import service_options
from sink.hudi.table import Table
from sink.hudi.table_services import HudiTableServices
from sink.write.rows.row_spec import table_schema
from tests.integration.table_kit import Driver
from tests.integration.upsert_kit import Upserts
from tests.one_sink import load

STEPS = ("planned", "begun", "in the metadata table", "on the timeline")


@dataclass(frozen=True)
class Step:
    """A moment of a service's run, known by the files that Hudi has written by then."""

    service: str
    """compaction, clustering or clean, as on the timeline."""
    name: str

    def reached(self, base: Path, earlier: Collection[str]) -> bool:
        """Whether an instant of the service that is not among `earlier` has come so far."""
        timeline = base / ".hoodie" / "timeline"
        for plan in instants(base, self.service) - set(earlier):
            match self.name:
                case "planned":
                    return True
                case "begun":
                    found = timeline.glob(f"{plan}.*inflight")
                case "in the metadata table":
                    found = (base / ".hoodie" / "metadata" / ".hoodie" / "timeline").glob(f"{plan}_*.deltacommit")
                case _:
                    found = timeline.glob(f"{plan}_*")
            if any(found):
                return True
        return False


def instants(base: Path, service: str) -> set[str]:
    """Returns the instants of the service on the active timeline."""
    return {plan.name.partition(".")[0] for plan in (base / ".hoodie" / "timeline").glob(f"*.{service}.requested")}


class ServiceProcess:
    """The services of the sink of these settings, in another process with a JVM of its own."""

    def __init__(self, properties: Path, log: Path) -> None:
        self._log = log
        command = [sys.executable, "-m", "tests.integration.rewrites_kit", str(properties), str(log)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._answer() == "ready"

    def begin(self) -> None:
        """Has the process run the services."""
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()

    def results(self) -> dict[str, dict[str, Any]]:
        """Waits for the end of the run. Returns what each service says, by its name."""
        return {result["name"]: result for result in self._answer()}

    def kill_at(self, step: Step, base: Path, earlier: Collection[str], seconds: float = 120) -> bool:
        """Kills the process at the step. Returns whether it came so far before its run ended."""
        deadline = time.monotonic() + seconds
        while not (reached := step.reached(base, earlier)) and time.monotonic() < deadline:
            if select.select([self._process.stdout], [], [], 0.001)[0]:
                break
        self.kill()
        return reached

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: int) -> None:
        """Signals Python, its JVM and Spark's Python workers."""
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            for one in (*process.children(recursive=True), process):
                with suppress(ProcessLookupError):
                    os.kill(one.pid, number)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the process of the services ended; see {self._log}"
        return json.loads(line)


def _serve(properties: str, log: str) -> None:
    # Standard output has the answers.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    settings = load(Path(properties), {})
    client = KazooClient(settings.zookeeper)
    client.start()
    table = Table(
        start_session(settings.session, "other", Path(log)),
        settings.table,
        table_schema(settings.table, settings.records),
        TableLocks(client, settings.table.lock),
    )
    print(json.dumps("ready"), flush=True)
    for _ in sys.stdin:
        print(json.dumps([asdict(result) for result in table.services()]), flush=True)


class At:
    """Failpoints of a run of services: does something once at a point."""

    def __init__(self, point: str, action: Callable[[], object]) -> None:
        self._point, self._action = point, action
        self.reached = False

    def reach(self, point: str) -> None:
        if point == self._point and not self.reached:
            self.reached = True
            self._action()


def service_client(table: Driver | Upserts) -> HudiClient:
    """Returns the client of another worker of the sink that runs its services."""
    settings = table.settings
    avro = table_schema(settings.table, settings.records).avro(settings.table_name)
    return HudiClient(table.spark, settings.table.store, avro, service_options(settings.table))


def other_services(table: Driver | Upserts, client: KazooClient, at: At | None = None) -> HudiTableServices:
    """Returns the services of another worker of the sink. They do something once, `at` a point."""
    settings = table.settings.table
    services = HudiTableServices(service_client(table), settings, TableLocks(client, settings.lock))
    if at is not None:
        services._failpoints = at  # type: ignore[assignment]
    return services


def complete_twice(base: Path) -> Path:
    """Completes an instant of the metadata table a second time, as a process does that stood still in it and wakes.
    Returns the second completion.
    """
    [completion, *_] = sorted((base / ".hoodie" / "metadata" / ".hoodie" / "timeline").glob("2*_*.deltacommit"))
    later = str(int(completion.name[18:35]) + 1)
    twice = completion.with_name(f"{completion.name[:18]}{later}{completion.suffix}")
    twice.write_bytes(completion.read_bytes())
    return twice


if __name__ == "__main__":
    _serve(*sys.argv[1:])
