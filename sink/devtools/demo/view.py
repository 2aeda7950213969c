"""The demo's display: a live picture on a terminal, plain lines elsewhere.

`picture` derives everything from one `KeeperView` and two counters.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from coordination.state.incarnations import worker_of
from coordination.state.model import RangeStatus
from coordination.state.tree import KeeperView
from sink.devtools.local.workers import LocalWorker
from sink.telemetry.terminal import console

PLAIN_SECONDS = 2.0
UNCHANGED_SECONDS = 10.0
"""Seconds between two equal lines."""
SHOWN_EVENTS = 8


@dataclass(frozen=True, slots=True)
class WorkerLine:
    name: str
    pid: int
    role: str


@dataclass(frozen=True, slots=True)
class Picture:
    workers: tuple[WorkerLine, ...]
    epoch: int
    committed: int
    """Transactions that ended with a commit."""
    open: tuple[str, ...]
    produced: int
    landed: int
    total: int


def picture(view: KeeperView, workers: Mapping[str, LocalWorker], produced: int, total: int) -> Picture:
    members = {member.worker for member in view.members}
    coordinator = worker_of(view.coordinator) if view.coordinator else ""
    lines = []
    for name, worker in workers.items():
        role = "starting"
        if not worker.running:
            role = "killed" if worker.exit_status and worker.exit_status < 0 else "stopped"
        elif name in members:
            role = "coordinator, participant" if name == coordinator else "participant"
        lines.append(WorkerLine(name, worker.pid, role))
    return Picture(
        workers=tuple(lines),
        epoch=view.epoch,
        committed=view.ledger.committed,
        open=tuple(
            f"{transaction.header.number} {transaction.header.phase.value} (epoch {transaction.header.epoch}, "
            f"{len(transaction.statuses)} of {len(transaction.plan.slices)} participants reported)"
            for transaction in view.transactions
        ),
        produced=produced,
        landed=sum(state.end for state in view.states.values()),
        total=total,
    )


def in_doubt(view: KeeperView) -> int:
    """Returns the number of partitions whose range is BEFORE."""
    return sum(state.status is RangeStatus.BEFORE for state in view.states.values())


class Screen:
    """The display, a context manager: `say` prints an event, `show` the picture."""

    def __init__(self) -> None:
        self.console = console()
        self._started = time.monotonic()
        self._events: list[str] = []
        self._picture: Picture | None = None
        self._last_printed: Picture | None = None
        self._printed_at = 0.0
        self._live: Live | None = None

    def __enter__(self) -> Screen:
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, event: str) -> None:
        line = f"{time.monotonic() - self._started:6.1f} s  {event}"
        self._events.append(line)
        if self._live is None:
            print(line, flush=True)
        else:
            self._live.update(self._render(), refresh=True)

    def show(self, current: Picture) -> None:
        self._picture = current
        if self._live is not None:
            self._live.update(self._render(), refresh=True)
        elif time.monotonic() - self._printed_at >= (
            UNCHANGED_SECONDS if current == self._last_printed else PLAIN_SECONDS
        ):
            self._printed_at, self._last_printed = time.monotonic(), current
            roles = ", ".join(f"{worker.name} {worker.role}" for worker in current.workers)
            open_transactions = "; ".join(current.open) or "none"
            self.say(
                f"{current.landed:,} landed, {current.total - current.landed:,} to come"
                f" ({current.produced:,} produced); "
                f"epoch {current.epoch}; transaction {current.committed} committed, open: {open_transactions}; {roles}"
            )
            sys.stdout.flush()

    def _render(self) -> RenderableType:
        parts: list[RenderableType] = [Text(line) for line in self._events[-SHOWN_EVENTS:]]
        if self._picture is not None:
            parts += [Text(), _workers(self._picture), Text(), _progress(self._picture)]
        return Group(*parts)


def _workers(current: Picture) -> RenderableType:
    table = Table(box=None, pad_edge=False)
    for column in ("worker", "pid", "role"):
        table.add_column(column)
    for worker in current.workers:
        style = "red" if worker.role == "killed" else "bold green" if "coordinator" in worker.role else ""
        table.add_row(worker.name, str(worker.pid), worker.role, style=style)
    return table


def _progress(current: Picture) -> RenderableType:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("produced", ProgressBar(current.total, current.produced, width=40), f"{current.produced:,}")
    landed = f"{current.landed:,}, {current.total - current.landed:,} to come"
    table.add_row("landed", ProgressBar(current.total, current.landed, width=40), landed)
    table.add_row("epoch", str(current.epoch))
    table.add_row("committed", f"transaction {current.committed}")
    table.add_row("open", "; ".join(current.open) or "none")
    return table
