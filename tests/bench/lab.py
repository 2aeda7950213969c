"""The common parts of all runs: the servers, the filled topic, the cores and the heap; and how a run is measured.

Every process of a run inherits the bench's own CPU affinity, the broker included, so that all peers are
pinned alike. Raises `Unavailable` when a peer fails or does not end in time.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.bench.lake_store import LakeStore
from tests.bench.results import Run, Shape
from tests.bench.sampler import Sampler

PATIENCE = 1800.0


@dataclass(frozen=True, slots=True)
class Load:
    """`records` are counted. `lead` records come before them in the topic: a peer may warm up with them. The sink moves
    `transaction` records in one transaction."""

    records: int
    lead: int
    transaction: int

    @property
    def total(self) -> int:
        return self.records + self.lead


@dataclass(frozen=True, slots=True)
class Lab:
    """`topic` has the partitions of `shape`, all equally long. `sink_heap` is the heap of the sink's JVMs, `heap` that
    of the other peers'."""

    directory: Path
    zookeeper: ZooKeeperServer
    kafka: KafkaServer
    topic: str
    shape: Shape
    load: Load
    cores: int
    heap: str
    sink_heap: str
    store: LakeStore | None = None
    """Where tables are; on the disk without one."""

    def run_directory(self, name: str) -> Path:
        """Makes an empty directory for one run on this topic."""
        directory = self.directory / "runs" / f"{name}-{self.shape.partitions}-{self.shape.warm_up}"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        return directory


@dataclass(frozen=True, slots=True)
class Window:
    """Wall-clock seconds between which `records` were moved."""

    start: float
    end: float
    records: int


class StoreSampler:
    """Watches the store's server and the proxy before it; nothing where tables are on the disk."""

    def __init__(self, store: LakeStore | None) -> None:
        names = ("store_cpu", "proxy_cpu")[-len(store.pids) :] if store else ()
        self._samplers = {name: Sampler([pid]) for name, pid in zip(names, store.pids if store else (), strict=True)}
        self._stack = ExitStack()

    def __enter__(self) -> StoreSampler:
        for sampler in self._samplers.values():
            self._stack.enter_context(sampler)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def details(self, window: Window) -> Mapping[str, float]:
        """Returns the CPU seconds of server and proxy in the window."""
        usages = {name: sampler.usage(window.start, window.end) for name, sampler in self._samplers.items()}
        return {name: sum(usage.cpu.values()) for name, usage in usages.items()}


def measured_run(
    lab: Lab,
    peer: str,
    number: int,
    window: Window,
    samplers: tuple[Sampler, Sampler],
    phases: tuple[Mapping[str, float], ...] = (),
    details: Mapping[str, float] | None = None,
) -> Run:
    """Returns the run's figures. `samplers` are those of the peer and of the broker."""
    peer_usage, broker_usage = (sampler.usage(window.start, window.end) for sampler in samplers)
    return Run(
        peer=peer,
        round=number,
        records=window.records,
        seconds=window.end - window.start,
        cpu={role.value: seconds for role, seconds in peer_usage.cpu.items()},
        broker_cpu=sum(broker_usage.cpu.values()),
        peak={role.value: size for role, size in peer_usage.peak.items()},
        phases=phases,
        details=details or {},
        partitions=lab.shape.partitions,
        warm_up=lab.shape.warm_up,
        together=peer_usage.together,
    )
