"""Ownership of an errors table: the sinks whose commits it has, and the table lock that they share.

A lock's identity is a random text in a znode beside the lock, which ZooKeeper's ensemble and chroot do not give by
themselves. Each commit of the errors table names it, with the sinks that wrote so far.

Guarantee: two sinks that share no lock never both write an errors table, but for a first commit of both at the same
moment, after which one of them is refused; nor do two sinks of one name. An ensemble that was emptied gets its identity
back from a sink that the table knows. Voided by a copied or edited znode. Raises TableError (the table belongs to
others).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from coordination.errors import TableError

OWNER_KEY = "sink.errors.owner"
"""The extra metadata of a commit to the errors table that holds its owner, as JSON."""
FIX = "Set errors.table.base.path to an empty directory of this sink's own."


@dataclass(frozen=True, slots=True)
class SinkPlace:
    """Where a sink of this name lives: its znode and its table."""

    znode: str
    base_path: str


@dataclass(frozen=True, slots=True)
class Owner:
    """The identity of the lock, and each sink that has written, by name."""

    lock: str
    sinks: Mapping[str, SinkPlace] = field(default_factory=dict)

    def encode(self) -> str:
        sinks = {name: [place.znode, place.base_path] for name, place in sorted(self.sinks.items())}
        return json.dumps({"lock": self.lock, "sinks": sinks})

    @classmethod
    def decode(cls, text: str) -> Owner:
        document = json.loads(text)
        return cls(document["lock"], {name: SinkPlace(*place) for name, place in document["sinks"].items()})


def owner_with(owner: Owner | None, lock: str | None, name: str, place: SinkPlace, table: str) -> Owner:
    """Returns the owner that the next commit names.

    `owner`: what the commits name, None before the first. `lock`: the identity of this ensemble's lock, None if it has
    none yet. Raises TableError if the sink of this name and place may not write the table.
    """
    if owner is None:
        return Owner(lock or uuid.uuid4().hex, {name: place})
    known = owner.sinks.get(name)
    if lock is None and known != place:
        names = ", ".join(sorted(owner.sinks))
        raise TableError(
            f"{table}: the errors table belongs to a fleet with the table lock {owner.lock}, and this ZooKeeper has"
            f" none. {FIX} If this ZooKeeper was emptied, start one of its sinks first: {names}."
        )
    if lock not in (None, owner.lock):
        raise TableError(
            f"{table}: the errors table belongs to a fleet with the table lock {owner.lock}. The lock of this fleet is"
            f" {lock}, so that the two would not wait for each other. {FIX}"
        )
    if known is not None and known.znode != place.znode:
        raise TableError(
            f"{table}: the errors table has bad records of another sink {name}, at the znode {known.znode}. This one is"
            f" at {place.znode}. {FIX}"
        )
    return Owner(owner.lock, {**owner.sinks, name: place})
