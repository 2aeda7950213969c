"""Schema ids that a registry does not know: each is asked for once in a while, and only so many of them.

Anybody who may write to a topic can put made-up ids before values, each of which would cost a request.

Guarantee: within `SECONDS` at most `MOST_IDS` unknown ids are asked for. An id beyond that is refused without a
request, so that a new schema may be missed while such a flood lasts: its record is bad, and stays replayable. An id
whose schema the process keeps is never refused. Raises UnknownSchema.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sink.decode.registry.answers import UnknownSchema

MOST_IDS = 100
"""Unknown ids that are asked for within `SECONDS`."""
SECONDS = 60.0


class UnknownIds:
    """The ids that the registry did not know within the last `SECONDS`. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._asked: dict[int | str, tuple[float, str]] = {}
        """When an id was asked for, and the answer; the oldest first."""

    def add(self, schema_id: int | str, answer: str) -> None:
        """Notes that the registry does not know the id."""
        with self._lock:
            self._asked.pop(schema_id, None)
            self._asked[schema_id] = self._clock(), answer

    def check(self, schema_id: int | str) -> None:
        """Raises UnknownSchema if the id must not be asked for now."""
        with self._lock:
            oldest = self._clock() - SECONDS
            while self._asked and next(iter(self._asked.values()))[0] <= oldest:
                del self._asked[next(iter(self._asked))]
            _, answer = self._asked.get(schema_id, (0.0, ""))
            count = len(self._asked)
        if answer:
            raise UnknownSchema(answer)
        if count >= MOST_IDS:
            raise UnknownSchema(
                f"schema registry: id {schema_id} was not asked for, because {count} other ids of the last"
                f" {SECONDS:g} s are unknown to it. If it is registered, replay the record with `sink errors replay`."
            )
