"""The cost of knowing the fleet: CPU of an idle worker, bytes from ZooKeeper, and how soon workers that come and go are
known.

`python -m tests.bench.presence --workers 100 --sinks 1000` runs the presence code of so many workers, without Spark,
against one ZooKeeper. Each worker hosts every sink, has a ZooKeeper session of its own, and polls twice a second, as a
worker does; a few processes share the workers. It counts the bytes that kazoo reads, and the CPU time of the processes.
Then a guest joins without a coordinator, leaves, joins again and is killed. A worker counts as known or gone when the
last of the others knows it, from the moment when its record appeared or disappeared in ZooKeeper. No worker hands a
coordinator over unless `--hand-over` is given: here nobody takes one over, so that all workers would go on to give.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import kazoo.protocol.connection
from kazoo.client import KazooClient

from coordination.zookeeper.worker_records import DIRECTORY
from sink.devtools.local.zookeeper import ZooKeeperServer
from sink.runtime.process import presence as presence_module
from sink.runtime.process.presence import Presence
from sink.runtime.sinks.life import SinkState

POLL_SECONDS = 0.5
ROOT = "/sink"
GUEST = "guest"
SPAWN = multiprocessing.get_context("spawn")


@dataclass
class HostedSink:
    """Stands for a sink that has joined its fleet. It is its own settings, too."""

    name: str
    leads: bool
    interval_ms: int = 60_000
    state: SinkState = SinkState.JOINED
    reason: str = ""
    is_impaired: bool = False
    refusal: None = None
    troubles: tuple[str, ...] = ()

    @property
    def settings(self) -> HostedSink:
        return self

    @property
    def observed(self) -> HostedSink:
        return self


@dataclass(frozen=True)
class ProcessSettings:
    worker_id: str
    zookeeper_root: str = ROOT


class Switchovers:
    """Takes the place of operators' requests: the sink's coordinator just leaves."""

    count = 0

    def __init__(self, settings: HostedSink, *_: object) -> None:
        self._sink = settings

    def switchover(self) -> None:
        self._sink.leads = False
        Switchovers.count += 1


class ReadBytes:
    """Counts the bytes that kazoo reads in this process, from the moment when it is made."""

    def __init__(self) -> None:
        self.count = 0
        lock, original = threading.Lock(), kazoo.protocol.connection.ConnectionHandler._read

        def counted(handler: Any, length: int, timeout: float) -> Any:
            with lock:
                self.count += length
            return original(handler, length, timeout)

        kazoo.protocol.connection.ConnectionHandler._read = counted


@dataclass
class Worker:
    """One worker's session and presence, polled by a thread. `seen` has the fleet that it knows, with the time."""

    name: str
    address: str
    sinks: Sequence[HostedSink]
    seen: list[tuple[float, frozenset[str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.client = KazooClient(self.address, timeout=6.0, command_retry={"max_tries": 0, "ignore_expire": False})
        self.client.start(timeout=60)
        by_name: Any = {sink.name: sink for sink in self.sinks}
        settings: Any = ProcessSettings(self.name)
        self.presence = Presence(settings, self.client, by_name, {}, lambda: False)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        time.sleep(random.uniform(0, POLL_SECONDS))
        while not self._ended.wait(POLL_SECONDS):
            self.presence.poll()
            workers = frozenset(summary.worker for summary in self.presence.fleet.by_name.values())
            if not self.seen or self.seen[-1][1] != workers:
                self.seen.append((time.time(), workers))

    def leave(self) -> None:
        self._ended.set()
        self._thread.join(10)
        self.presence.forget()
        self.client.stop()
        self.client.close()


def _serve(address: str, names: Sequence[str], options: argparse.Namespace, pipe: Connection) -> None:
    """Runs workers in this process, and answers requests for figures until it is asked to end."""
    fleet, sinks = options.workers, options.sinks
    read_bytes = ReadBytes()
    presence_module.SinkControl = Switchovers  # type: ignore[misc,assignment]
    if not options.hand_over:
        presence_module.SETTLE_SECONDS = float("inf")
    workers = []
    for name in names:
        number = int(name[1:]) if name != GUEST else -1
        hosted = [HostedSink(f"orders-of-region-{n:04}", n % fleet == number) for n in range(sinks)]
        workers.append(Worker(name, address, hosted))
    pipe.send("started")
    while (request := pipe.recv()) != "leave":
        if request == "seen":
            pipe.send({worker.name: list(worker.seen) for worker in workers})
        else:
            pipe.send((time.process_time(), read_bytes.count, Switchovers.count))
    for worker in workers:
        worker.leave()
    pipe.send("left")


class Workers:
    """A process with some of the workers."""

    def __init__(self, address: str, names: Sequence[str], options: argparse.Namespace) -> None:
        self._pipe, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=_serve, args=(address, names, options, theirs), daemon=True)
        self.process.start()

    def ask(self, request: str, seconds: float = 120) -> Any:
        self._pipe.send(request)
        return self.answer(seconds)

    def answer(self, seconds: float = 120) -> Any:
        if not self._pipe.poll(seconds):
            raise TimeoutError("a process of workers does not answer")
        return self._pipe.recv()


class Rates:
    """Measures processes from one call of `reset` to the next `per_second`."""

    def __init__(self, fleet: Sequence[Workers]) -> None:
        self._fleet = fleet
        self.reset()

    def _totals(self) -> tuple[float, int, int]:
        answers = [workers.ask("figures") for workers in self._fleet]
        cpu, read, handed_over = (sum(column) for column in zip(*answers, strict=True))
        return cpu, read, handed_over

    def reset(self) -> None:
        self._began, self._before = time.monotonic(), self._totals()

    def per_second(self) -> tuple[float, float]:
        """Returns cores and megabytes a second."""
        seconds = time.monotonic() - self._began
        cpu, read, _ = (now - before for now, before in zip(self._totals(), self._before, strict=True))
        return cpu / seconds, read / seconds / 1e6

    def since_reset(self) -> tuple[float, float, int, float]:
        """Returns the CPU seconds, the megabytes, the coordinators handed over, and the seconds since `reset`."""
        cpu, read, handed_over = (now - before for now, before in zip(self._totals(), self._before, strict=True))
        return cpu, read / 1e6, int(handed_over), time.monotonic() - self._began


def _known_after(fleet: Sequence[Workers], at: float, is_there: bool, seconds: float = 20) -> float:
    """Returns the seconds from `at` until the last worker knew that the guest is there, or gone."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.5)
        seen = [changes for workers in fleet for changes in workers.ask("seen").values()]
        if all(changes and (GUEST in changes[-1][1]) is is_there for changes in seen):
            return max(changes[-1][0] for changes in seen) - at
    raise TimeoutError(f"the guest is {'unknown' if is_there else 'known'} to some after {seconds} s")


def _record_at(client: KazooClient, is_there: bool, seconds: float = 40) -> float:
    """Waits for the guest's record to appear or disappear. Returns the wall clock then."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        names = client.get_children(f"{ROOT}/{DIRECTORY}")
        if any(name.startswith(f"{GUEST}:") for name in names) is is_there:
            return time.time()
        time.sleep(0.01)
    raise TimeoutError("the guest's record does not change")


@contextmanager
def _fleet(address: str, options: argparse.Namespace) -> Iterator[list[Workers]]:
    names = [f"w{number}" for number in range(options.workers)]
    shares = [names[start :: options.processes] for start in range(options.processes)]
    fleet = [Workers(address, share, options) for share in shares]
    try:
        for workers in fleet:
            workers.answer(300)
        yield fleet
    finally:
        for workers in fleet:
            workers.process.kill()


def _guest(options: argparse.Namespace, address: str) -> Workers:
    guest = Workers(address, [GUEST], options)
    guest.answer()
    return guest


def _churn(options: argparse.Namespace, address: str, fleet: Sequence[Workers]) -> None:
    client = KazooClient(address)
    client.start()
    rates = Rates(fleet)

    def measured(what: str, act: Callable[[], object], is_there: bool) -> None:
        rates.reset()
        act()
        known = _known_after(fleet, _record_at(client, is_there), is_there)
        time.sleep(2)
        cpu, total, handed_over, seconds = rates.since_reset()
        print(
            f"{what}: known after {known:.2f} s; in {seconds:.0f} s {total:.2f} MB from ZooKeeper and"
            f" {1000 * cpu / options.workers:.0f} ms of CPU for each worker; {handed_over} coordinators handed over",
            flush=True,
        )

    guests: list[Workers] = []
    measured("a worker joins", lambda: guests.append(_guest(options, address)), is_there=True)
    measured("it leaves", lambda: guests[0].ask("leave"), is_there=False)
    measured("it joins again", lambda: guests.append(_guest(options, address)), is_there=True)
    measured("it is killed", guests[1].process.kill, is_there=False)
    client.stop()
    client.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.presence", description=__doc__)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--sinks", type=int, default=50)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0, help="of the idle measurement (default: %(default)s)")
    parser.add_argument("--hand-over", action="store_true", help="workers that carry too much hand coordinators over")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="sink-presence-") as directory,
        ZooKeeperServer(Path(directory) / "zookeeper") as zookeeper,
        _fleet(zookeeper.address, options) as fleet,
    ):
        time.sleep(8)  # until everybody knows everybody
        rates = Rates(fleet)
        time.sleep(options.seconds)
        cores, megabytes = rates.per_second()
        print(
            f"{options.workers} workers x {options.sinks} sinks, idle: {100 * cores / options.workers:.2f} % of a core"
            f" for each worker, {megabytes:.2f} MB/s from ZooKeeper; load of the machine {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        _churn(options, zookeeper.address, fleet)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
