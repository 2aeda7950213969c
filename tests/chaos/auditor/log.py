"""The events that Kafka acknowledged, as the load wrote them down."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SentEvent:
    round: int
    """Offsets may begin anew with each round."""
    partition: int
    offset: int
    mark: str
    """`good`, `bad` or `tombstone`."""
    text: str
    """The value, or a tombstone's key."""

    @property
    def position(self) -> tuple[int, int]:
        return self.partition, self.offset


@dataclass(frozen=True, slots=True)
class Log:
    rule: str
    """`append`: each event is a row. `by-log`, `by-at`: each key is a row, by its last change in this order."""
    events: list[SentEvent]
    """Acknowledged events, by round, partition and offset."""


def read_log(file: Path) -> Log:
    with file.open() as lines:
        rule = next(lines).strip()
        events = []
        for line in lines:
            number, partition, offset, mark, text = line.rstrip("\n").split(" ", 4)
            events.append(SentEvent(int(number), int(partition), int(offset), mark, text))
    return Log(rule, sorted(events, key=lambda event: (event.round, *event.position)))
