"""The records of a load, drawn from a seed, for ever. Each but a tombstone tells its number: no two are the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

KEYS = 2000
LATE = 20_000
"""By how many events a change is late at most, a minute or so: several commits."""
COARSE = 1000
"""So many events in a row have the same ordering value: changes of a key are often equal in it."""


@dataclass(frozen=True, slots=True)
class Event:
    partition: int
    value: bytes | None
    key: bytes | None = None
    bad: bool = False


def appended(chance: Random, partitions: int, bad: int) -> Iterator[Event]:
    """One of `bad` cannot be decoded."""
    for number in count():
        partition = number % partitions
        if bad and chance.randrange(bad) == 0:
            wrong = chance.choice(({"id": f"none {number}"}, {"id": number, "amount": f"much {number}"}, {}))
            yield Event(partition, _spoiled(number, **wrong), bad=True)
        else:
            yield Event(partition, _json({"id": number, "kind": "buy", "amount": number / 4}))


def changes(chance: Random, partitions: int, bad: int, ordered: bool) -> Iterator[Event]:
    """Changes and deletes of few keys, each of which has its partition. Ordered by `at` they come late now and then,
    deletes too; but nothing that comes after a delete is older than it, for of that nothing is promised.
    """
    deleted: dict[int, int] = {}
    for number in count():
        key = chance.randrange(KEYS)
        partition, name = key % partitions, str(key).encode()
        late = chance.randrange(LATE) if chance.random() < 0.2 else 0
        at = max((number - late) // COARSE, deleted.get(key, 0))
        row: dict[str, object] = {"id": key, "at": at, "number": number, "amount": number / 4}
        if bad and chance.randrange(bad) == 0:
            unordered = {**row, "at": None if ordered else "then"}
            wrong = chance.choice(({**row, "id": f"none {number}"}, unordered, {}))
            yield Event(partition, _spoiled(number, **wrong), name, bad=True)
        elif chance.random() >= 0.15:
            yield Event(partition, _json(row), name)
        elif not ordered and chance.random() < 0.5:
            yield Event(partition, None, name)
        else:
            deleted[key] = at
            yield Event(partition, _json({**row, "_hoodie_is_deleted": True}), name)


def _spoiled(place: int, **wrong: object) -> bytes:
    return _json(wrong) if wrong else f"no JSON {place}".encode()


def _json(value: dict[str, object]) -> bytes:
    return json.dumps(value).encode()
