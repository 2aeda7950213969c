"""CPU and memory of process trees over time, so that any window of a run can be looked at afterwards.

Guarantee: a process that ended keeps the CPU seconds it had when it was last seen. What a process used
between its last sample and its end is lost: at most `PERIOD`. Processes are found by session, as
`sink.devtools.local.child_process` makes one for each child.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
import psutil

PERIOD = 0.25


class Role(Enum):
    """The role of a process of a peer."""

    JVM = "JVM"
    PYTHON = "Python"
    """The process that was started, when it is Python: the sink's worker, or a Spark peer's script."""
    SPARK_PYTHON = "Spark's Python workers"
    """All of them together; pages that they share are counted in each."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One process at one moment: CPU seconds since it started, resident bytes, and those with a page that several
    processes share counted in parts (PSS; 0 where it was not asked for)."""

    role: Role
    parent: int
    cpu: float
    resident: int
    proportional: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """The cost of a window by role: CPU seconds, and the highest resident bytes.

    `together`: the highest sum of the resident bytes of all processes at one moment; `proportional`: the same of PSS.
    """

    cpu: dict[Role, float]
    peak: dict[Role, int]
    together: int = 0
    proportional: int = 0


class Sampler:
    """Watches one or more sessions between `with` and its end. `proportional`: PSS too, which costs the kernel more."""

    def __init__(self, leaders: Iterable[int], proportional: bool = False) -> None:
        self._leaders = frozenset(leaders)
        self._proportional = proportional
        self._samples: list[tuple[float, dict[int, Reading]]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def usage(self, start: float, end: float) -> Usage:
        """Returns the cost of the window between two wall-clock seconds."""
        peak: dict[Role, int] = {}
        together = proportional = 0
        for moment, readings in self._samples:
            if start <= moment <= end:
                counted = {role: _counted(readings, role) for role in Role}
                for role, counted_readings in counted.items():
                    sizes = [reading.resident for reading in counted_readings]
                    # The bound for a worker's own Python is one for each worker.
                    size = max(sizes, default=0) if role is Role.PYTHON else sum(sizes)
                    peak[role] = max(peak.get(role, 0), size)
                all_readings = [reading for counted_readings in counted.values() for reading in counted_readings]
                together = max(together, sum(reading.resident for reading in all_readings))
                proportional = max(proportional, sum(reading.proportional for reading in all_readings))
        cpu = {role: self._cpu_at(end, role) - self._cpu_at(start, role) for role in peak}
        return Usage(cpu, {role: size for role, size in peak.items() if size}, together, proportional)

    def _cpu_at(self, moment: float, role: Role) -> float:
        """Returns the CPU seconds of all processes seen until `moment`, interpolated between two samples."""
        latest: dict[int, float] = {}
        totals = []
        for _, readings in self._samples:
            latest |= {pid: reading.cpu for pid, reading in readings.items() if reading.role is role}
            totals.append(sum(latest.values()))
        return float(np.interp(moment, [at for at, _ in self._samples], totals))

    def _watch(self) -> None:
        while True:
            self._samples.append((time.time(), self._read()))
            if self._ended.wait(PERIOD):
                return

    def _read(self) -> dict[int, Reading]:
        readings = {}
        for pid in psutil.pids():
            try:
                if os.getsid(pid) in self._leaders:
                    readings[pid] = _reading(psutil.Process(pid), pid in self._leaders, self._proportional)
            except (psutil.NoSuchProcess, ProcessLookupError, PermissionError):
                continue
        return readings


def _counted(readings: Mapping[int, Reading], role: Role) -> list[Reading]:
    """Returns the readings whose memory counts. A child that a JVM starts shares the JVM's memory until it runs another
    program, and does not count."""
    jvms = {pid for pid, reading in readings.items() if reading.role is role is Role.JVM}
    return [reading for reading in readings.values() if reading.role is role and reading.parent not in jvms]


def _reading(process: psutil.Process, leads: bool, proportional: bool) -> Reading:
    with process.oneshot():
        times = process.cpu_times()
        python = process.name().startswith("python")
        role = Role.JVM if not python else Role.PYTHON if leads else Role.SPARK_PYTHON
        resident = process.memory_info().rss
        pss = process.memory_full_info().pss if proportional else 0
        return Reading(role, process.ppid(), times.user + times.system, resident, pss)
