"""Runs workers of the sink as real processes, and collects their transactions from ZooKeeper while they run.

The ledger keeps only the last transactions; the fleet collects them while it waits. Raises `Unavailable`
when a worker ends, the sink halts, or a wait times out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import yaml
from kazoo.client import KazooClient

from coordination.errors import Unavailable
from coordination.state.model import Phase
from coordination.state.tree import KeeperView, Summary
from coordination.zookeeper.keeper import Keeper
from sink.audit.audit import audit
from sink.audit.coverage import WHOLE, Coverage
from sink.audit.log import TopicAccess
from sink.storage.access import NO_ACCESS
from sink.storage.table_files import TableFiles, open_table
from sink.telemetry.failpoints import DIRECTORY, VARIABLE
from tests.bench.figures import IDLE
from tests.bench.lab import PATIENCE, Lab
from tests.bench.orders import DDL
from tests.one_sink import load
from tests.workers import WorkerProcess

ROOT = "/bench"
POLL_SECONDS = 0.25
AUDITED_SHARE = 0.05
"""The share of a table's slices whose contents are compared: all of them would take longer than the run."""
GATE = "ReadLog.before"
_ENDED = "ENDED"


class Fleet:
    """`with` ends its workers. Every fleet has a sink and a table of its own."""

    def __init__(self, lab: Lab, name: str, topic: str, settings: Mapping[str, object]) -> None:
        self.directory = lab.run_directory(name)
        self.table = self.directory / "table"
        self.store = lab.store
        self.base_path = lab.store.base_path() if lab.store else str(self.table)
        self.name = f"{name}-{int(time.time())}"
        self.workers: list[WorkerProcess] = []
        self._ended: dict[int, Summary] = {}
        self._settings = {
            "sink.name": self.name,
            "zookeeper.connect": lab.zookeeper.address,
            "zookeeper.root": ROOT,
            "kafka.bootstrap.servers": lab.kafka.address,
            "kafka.topic.names": topic,
            "target.base.path": self.base_path,
            **(lab.store.settings if lab.store else {}),
            "target.table.name": "orders",
            "schema.ddl": DDL,
            "spark.driver.memory": lab.sink_heap,
            "log.dir": str(self.directory),
            **settings,
        }
        self._client = KazooClient(hosts=lab.zookeeper.address)
        self._keeper = Keeper(self._client, f"{ROOT}/{self.name}", lambda: None)

    def __enter__(self) -> Fleet:
        self._client.start()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.kill()
        self._client.stop()
        self._client.close()

    @property
    def last(self) -> int:
        """The highest transaction number that was seen to end."""
        return max(self._ended, default=0)

    def files(self) -> TableFiles:
        """Opens the table for a reader of its timeline."""
        return open_table(self.base_path, self.store.access if self.store else NO_ACCESS)

    def audit(self) -> None:
        """Audits all offsets and digests, and the contents of a sample. Raises Unavailable if that does not hold."""
        settings = load(next(self.directory.glob("*.yaml")))
        names_commits = settings.hudi.get("hoodie.populate.meta.fields", "true") == "true"
        report = audit(
            settings.base_path,
            settings.name,
            TopicAccess(settings.bootstrap, topics=tuple(settings.topics)),
            storage=settings.storage,
            global_keys=settings.key_is_global,
            content=settings.provenance,
            # Rows that do not name their commits are compared as a whole.
            coverage=Coverage(sample=AUDITED_SHARE) if names_commits else WHOLE,
        )
        if not report.held:
            raise Unavailable(f"the audit of {self.name} does not hold: {report.to_json()}")

    @property
    def in_flight(self) -> int:
        """How many transactions the settings of the launched workers allow to be open at once."""
        return load(next(self.directory.glob("*.yaml"))).in_flight

    def launch(self, worker: str, settings: Mapping[str, object] | None = None, gated: bool = False) -> WorkerProcess:
        """Starts a worker. `gated`: a coordinator reads no log, and so plans nothing, before `open_gate`."""
        config = self.directory / f"{worker}.yaml"
        config.write_text(yaml.safe_dump({**self._settings, **(settings or {}), "worker.id": worker}))
        environment = {VARIABLE: f"{GATE}=wait" if gated else "", DIRECTORY: str(self.directory)}
        process = WorkerProcess(config, self.directory / f"{worker}.log", environment, worker)
        process.start()
        self.workers.append(process)
        return process

    def open_gate(self) -> None:
        (self.directory / f"{GATE}.go").touch()

    def wait(self, condition: Callable[[KeeperView], bool], description: str, seconds: float = PATIENCE) -> KeeperView:
        deadline = time.monotonic() + seconds
        while True:
            view = self._look()
            if condition(view):
                return view
            self._check(view, time.monotonic() > deadline, description)
            time.sleep(POLL_SECONDS)

    def wait_landed(self, ends: Mapping[int, int], seconds: float = PATIENCE) -> None:
        def landed(view: KeeperView) -> bool:
            settled = {source.partition: state.end for source, state in view.states.items() if not state.open}
            return not view.transactions and all(settled.get(p, -1) >= end for p, end in ends.items())

        self.wait(landed, "all records", seconds)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Collects transactions that end while the caller does something else than wait."""
        ended = threading.Event()

        def collect() -> None:
            while not ended.wait(POLL_SECONDS):
                self._look()

        thread = threading.Thread(target=collect, name="collecting", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    @property
    def ended(self) -> list[Summary]:
        """Transactions seen to end, oldest first, aborted ones too."""
        return [self._ended[number] for number in sorted(self._ended)]

    def committed(self) -> list[Summary]:
        """Transactions seen to end, oldest first. Raises if one was aborted: no figure is right then."""
        summaries = self.ended
        for summary in summaries:
            if summary.outcome != Phase.COMMITTED.value:
                raise Unavailable(f"transaction {summary.number} ended as {summary.outcome}: {summary.reason}")
        return summaries

    def _look(self) -> KeeperView:
        view = self._keeper.read()
        self._ended |= {summary.number: summary for summary in view.ledger.history}
        return view

    def _check(self, view: KeeperView, is_late: bool, description: str) -> None:
        if view.halt is not None:
            raise Unavailable(f"the sink {self.name} has halted: {view.halt.reason}")
        for worker in self.workers:
            if not worker.running and worker.exit_status != 0:
                problem = f"{worker.name} ended with status {worker.exit_status}"
                raise Unavailable(f"{problem}: {worker.tail()} (log: {worker.log})")
        if is_late:
            raise Unavailable(f"{self.name}: {description} not seen in time; logs are in {self.directory}")


def phases(summaries: list[Summary]) -> tuple[Mapping[str, float], ...]:
    """Returns the seconds of each transaction by phase. `plan` begins at the end of the previous transaction. `idle`
    lasts from the end of the previous write to the start of this one. The first transaction has no previous one.

    `begin` lasts to STARTED, `write` to PREPARED, `commit` to COMMITTED, `settle` to the end. A transaction that was
    planned during the previous write begins when that write ends.
    """
    seconds_by_phase = []
    for previous, summary in zip([None, *summaries], summaries, strict=False):
        times = summary.times
        written = previous.times[Phase.PREPARED.value] if previous else times[Phase.PLANNED.value]
        opened = max(times[Phase.PLANNED.value], written)
        seconds_by_phase.append(
            {
                "plan": max(0.0, opened - previous.times[_ENDED]) if previous else 0.0,
                "begin": times[Phase.STARTED.value] - opened,
                "write": times[Phase.PREPARED.value] - times[Phase.STARTED.value],
                "commit": times[Phase.COMMITTED.value] - times[Phase.PREPARED.value],
                "settle": times[_ENDED] - times[Phase.COMMITTED.value],
                IDLE: times[Phase.STARTED.value] - written,
            }
        )
    return tuple(seconds_by_phase)
