"""Shows on standard error how far a long command is: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

LINE_SECONDS = 30.0
_COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(),
    TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
    TimeRemainingColumn(),
)


@contextmanager
def shown_progress(name: str, alone: bool = True) -> Iterator[Callable[[str, int, int], None]]:
    """Yields what takes step, done and total. A terminal has room for one bar: only for a command that is `alone`."""
    console = Console(stderr=True)
    if not (alone and console.is_terminal):
        yield _Lines(console, name).show
        return
    with Progress(*_COLUMNS, console=console, transient=True) as bar:
        task = bar.add_task(name, total=0)
        yield lambda step, done, total: bar.update(task, description=step, completed=done, total=total)


class _Lines:
    def __init__(self, console: Console, name: str) -> None:
        self._console, self._name = console, name
        self._next = time.monotonic() + LINE_SECONDS

    def show(self, step: str, done: int, total: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_SECONDS
            self._console.print(f"sink: {self._name}: {done:,} of {total:,} {step}", markup=False, highlight=False)
