"""A thread that polls something while a test or a benchmark runs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

from typing_extensions import Self


class Poller(ABC):
    """`with` calls `_poll` every `seconds`, and once more at its end."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="poller", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._poll()

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            self._poll()

    @abstractmethod
    def _poll(self) -> None: ...
