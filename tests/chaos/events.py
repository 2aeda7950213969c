"""The endless records of a load, drawn from a seed. Each but a tombstone contains its number: no two are the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from random import Random

KEYS = 2000
LATE = 20_000
"""The most events by which a change is late: about a minute, several commits."""
COARSE = 1000
"""So many successive events have the same ordering value, so that changes of a key are often equal in it."""


@dataclass(frozen=True, slots=True)
class Event:
    partition: int
    value: bytes | None
    key: bytes | None = None
    bad: bool = False


@dataclass
class Evolution:
    """Columns that a table gets in the course of a run, or that become wider, and what an event has in them."""

    steps: tuple[str, ...]
    taken: int = 0
    """How many steps the events have taken. The table takes each one before them."""

    def columns(self, taken: int) -> Mapping[str, str]:
        """Returns the types of the columns after so many steps."""
        return dict(tuple(step.split(" ")) for step in self.steps[:taken])

    def values(self, number: int) -> Mapping[str, object]:
        values = {"STRING": f"event {number}", "INT": number, "BIGINT": 2**40 + number}
        return {name: values[kind] for name, kind in self.columns(self.taken).items()}


Values = Callable[[int], Mapping[str, object]]
"""Values of an event in columns that a run adds, by its number."""


def appended(chance: Random, partitions: int, bad: int, values: Values = lambda _: {}) -> Iterator[Event]:
    """Yields events of which one in `bad` cannot be decoded; with 0 none."""
    for number in count():
        partition = number % partitions
        if bad and chance.randrange(bad) == 0:
            bad_value = chance.choice(({"id": f"none {number}"}, {"id": number, "amount": f"much {number}"}, {}))
            yield Event(partition, _undecodable(number, bad_value), bad=True)
        else:
            yield Event(partition, _json({"id": number, "kind": "buy", "amount": number / 4, **values(number)}))


def changes(chance: Random, partitions: int, bad: int, ordered: bool, values: Values = lambda _: {}) -> Iterator[Event]:
    """Yields changes and deletes of few keys, each of which has its partition. Ordered by `at`, changes and deletes
    come late now and then. No change that follows a delete is older than it: the sink promises nothing about that.
    """
    deleted: dict[int, int] = {}
    for number in count():
        key = chance.randrange(KEYS)
        partition, name = key % partitions, str(key).encode()
        late = chance.randrange(LATE) if chance.random() < 0.2 else 0
        at = max((number - late) // COARSE, deleted.get(key, 0))
        row: dict[str, object] = {"id": key, "at": at, "number": number, "amount": number / 4, **values(number)}
        if bad and chance.randrange(bad) == 0:
            unordered = {**row, "at": None if ordered else "then"}
            bad_value = chance.choice(({**row, "id": f"none {number}"}, unordered, {}))
            yield Event(partition, _undecodable(number, bad_value), name, bad=True)
        elif chance.random() >= 0.15:
            yield Event(partition, _json(row), name)
        elif not ordered and chance.random() < 0.5:
            yield Event(partition, None, name)
        else:
            deleted[key] = at
            yield Event(partition, _json({**row, "_hoodie_is_deleted": True}), name)


def _undecodable(number: int, value: Mapping[str, object]) -> bytes:
    return _json(value) if value else f"no JSON {number}".encode()


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value).encode()
