"""Notes when each commit of a table appeared: those that land records, and those of table services apart."""

from __future__ import annotations

import re
import threading
from types import TracebackType

from tests.chaos.stores import Place

_COMPLETED = re.compile(r"(\d{17})_\d{17}\.(commit|deltacommit|replacecommit)")


LOOK_SECONDS = 0.5


class Timeline:
    """`with` looks again and again, before archiving can take an instant away."""

    def __init__(self, place: Place, progress: str) -> None:
        self.seen: dict[str, float] = {}
        self.rewritten: set[str] = set()
        """Instants of clusterings and compactions."""
        self._place = place
        self._progress = progress
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Timeline:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        for name, at in self._place.timeline().items():
            match = _COMPLETED.fullmatch(name)
            if match is None or match[1] in self.seen:
                continue
            if match[2] == self._progress:
                self.seen[match[1]] = at
            else:
                self.rewritten.add(match[1])
