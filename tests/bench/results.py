"""Results of runs, as data: written to JSON whole, so that every figure in the docs can be traced to its run."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """Partitions of a topic, and the records that come before the counted ones."""

    partitions: int
    warm_up: int

    def __str__(self) -> str:
        return f"{self.partitions:,} partitions, {self.warm_up / 1e6:g} million to warm up"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one peer. Seconds, bytes, records; `cpu` and `peak` by role, `broker_cpu` in the same window.

    `phases` are seconds of each counted transaction by phase; `details` what only this peer has. `partitions` are the
    topic's, and `warm_up` the requested number of records before the counted ones. `together`: the highest sum
    of all resident bytes at one moment. Results from before these were noted had four partitions.
    """

    peer: str
    round: int
    records: int
    seconds: float
    cpu: Mapping[str, float]
    broker_cpu: float
    peak: Mapping[str, int]
    phases: tuple[Mapping[str, float], ...] = ()
    details: Mapping[str, float] = field(default_factory=dict)
    partitions: int = 4
    warm_up: int = 0
    together: int = 0
    files: float = 0.0
    """Data files of a counted commit, median; 0 where they were not counted, as with `write_tasks`."""
    write_tasks: float = 0.0
    """Spark tasks that wrote them."""
    table_partitions: int = 1

    @property
    def shape(self) -> Shape:
        return Shape(self.partitions, self.warm_up)

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds

    @property
    def cpu_per_million(self) -> float:
        """CPU seconds of all its processes for a million records."""
        return sum(self.cpu.values()) / self.records * 1e6


@dataclass(frozen=True, slots=True)
class Freshness:
    """Seconds from produce to visible, at a trickle. `commits` is how many the table had at the start, `partitions` how
    many the topic has."""

    commits: int
    records: int
    rate: float
    p50: float
    p99: float
    most: float
    transactions: int
    phases: tuple[Mapping[str, float], ...] = ()
    partitions: int = 4


@dataclass(frozen=True, slots=True)
class Backlog:
    """One worker with a small heap reads many partitions with records of all sizes. Bytes, seconds, records."""

    partitions: int
    table_partitions: int
    heap: str
    records: int
    large: int
    """How many records have `large_bytes`; the rest have about 140."""
    large_bytes: int
    landed: int
    """Records in committed transactions."""
    seconds: float
    """From the plan of the first committed transaction to the last COMMITTED; the whole wait if not all landed."""
    committed: int
    """Transactions."""
    aborted: int
    out_of_memory: int
    """Lines in the logs of the worker and its JVM that report it."""
    jvm: int
    """Highest resident bytes, as the next two."""
    pythons: int
    together: int
    proportional: int
    """As `together`, with shared pages counted once (PSS)."""
    trouble: str = ""
    """Why the bench gave up, or the reason of the last abort."""

    @property
    def all_landed(self) -> bool:
        return self.landed == self.records


@dataclass(frozen=True, slots=True)
class Machine:
    cpus: int
    pinned: tuple[int, ...]
    memory: int
    processor: str
    system: str
    python: str
    java: str
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Results:
    command: str
    began: str
    machine: Machine
    conditions: Mapping[str, str]
    runs: tuple[Run, ...] = ()
    freshness: tuple[Freshness, ...] = ()
    backlogs: tuple[Backlog, ...] = ()
    failed: tuple[str, ...] = ()
    """Runs without a result, and why."""
    note: str = ""
    """A person's remark on the results, for the head of the docs."""

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Results:
        document: dict[str, Any] = json.loads(path.read_text())
        machine = document.pop("machine")
        lead = {"warm_up": int(document["conditions"].get("lead", 0))}
        runs = tuple(Run(**{**lead, **run, "phases": tuple(run["phases"])}) for run in document.pop("runs"))
        freshness = tuple(
            Freshness(**{**entry, "phases": tuple(entry["phases"])}) for entry in document.pop("freshness")
        )
        backlogs = tuple(Backlog(**entry) for entry in document.pop("backlogs", ()))
        pinned = tuple(machine.pop("pinned"))
        failed = tuple(document.pop("failed"))
        return cls(
            **document,
            machine=Machine(**machine, pinned=pinned),
            runs=runs,
            freshness=freshness,
            backlogs=backlogs,
            failed=failed,
        )


def merge_results(parts: Sequence[Results]) -> Results:
    """Merges the results of several commands on one machine; the first one's conditions stand."""
    return replace(
        parts[0],
        command="; ".join(part.command for part in parts),
        runs=tuple(run for part in parts for run in part.runs),
        freshness=tuple(freshness for part in parts for freshness in part.freshness),
        backlogs=tuple(backlog for part in parts for backlog in part.backlogs),
        failed=tuple(failure for part in parts for failure in part.failed),
    )


def this_machine(java: str) -> Machine:
    packages = ("pyspark", "pyarrow", "kazoo", "confluent-kafka")
    return Machine(
        cpus=psutil.cpu_count() or 0,
        pinned=tuple(sorted(os.sched_getaffinity(0))),
        memory=psutil.virtual_memory().total,
        processor=_processor(),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        java=java,
        versions={name: version(name) for name in packages},
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
