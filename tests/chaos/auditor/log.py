"""The events that Kafka acknowledged, as the load wrote them down."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Sent:
    round: int
    """With the next one, offsets may have begun anew."""
    partition: int
    offset: int
    mark: str
    """`good`, `bad` or `tombstone`."""
    text: str
    """The value; of a tombstone, the key."""

    @property
    def place(self) -> tuple[int, int]:
        return self.partition, self.offset


@dataclass(frozen=True, slots=True)
class Log:
    rule: str
    """`append`: each event is a row. `by-log`, `by-at`: each key is, by its last change in this order."""
    sent: list[Sent]
    """In the order of each partition's log."""


def read_log(file: Path) -> Log:
    with file.open() as lines:
        rule = next(lines).strip()
        sent = []
        for line in lines:
            number, partition, offset, mark, text = line.rstrip("\n").split(" ", 4)
            sent.append(Sent(int(number), int(partition), int(offset), mark, text))
    return Log(rule, sorted(sent, key=lambda each: (each.round, *each.place)))
