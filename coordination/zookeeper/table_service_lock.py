"""Elects the worker that runs the table services, and records the outcome of the last run.

Guarantee: at most one live session of a fleet holds the lock. The next holder learns when the last run ended, and which
transaction it had reached. The lock is a convenience, not a fence: a holder that was stopped may go on when it wakes,
and then the table's own timeline keeps it from doing harm. The record means nothing to the protocol: an unreadable one
counts as missing. Raises OtherVersion and Unavailable.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kazoo.client import KazooClient

from coordination.state import tree
from coordination.state.model import NO_TRANSACTION
from coordination.state.require import require_int, require_seconds, require_str
from coordination.zookeeper.election import Candidacy
from coordination.zookeeper.records import Records


@dataclass(frozen=True, slots=True)
class Service:
    """The outcome of one table service. `instant` is that of its commit, empty if there was nothing to do. `reason`
    says why it failed, and is empty if it did not.
    """

    name: str
    seconds: float
    instant: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TableServiceRun:
    """`committed`: the sink's newest transaction when the run began."""

    worker: str
    ended: float
    committed: int
    services: tuple[Service, ...] = ()

    @property
    def failed(self) -> tuple[Service, ...]:
        return tuple(service for service in self.services if service.reason)


class TableServiceLock:
    """One incarnation's lock: `campaign` waits for it, `withdraw` ends the wait, `resign` gives it back."""

    def __init__(self, client: KazooClient, root: str, incarnation: str) -> None:
        self._client = client
        self._root = root
        self._incarnation = incarnation
        self._records = Records(client, root)
        self._candidacy = self._new_candidacy()

    def campaign(self) -> bool:
        candidacy = self._candidacy = self._new_candidacy()
        return candidacy.campaign() is not None

    def withdraw(self) -> None:
        self._candidacy.withdraw()

    def resign(self) -> None:
        self._candidacy.resign()

    def is_alone(self) -> bool:
        """Whether the fleet has no other worker."""
        return self._records.children(tree.WORKERS) <= {self._incarnation}

    def committed(self) -> int:
        """Returns the sink's newest settled transaction. The coordinator reports a ledger that cannot be read."""
        number = self._records.read(tree.TRANSACTIONS, lambda d: require_int(d["committed"]))
        return NO_TRANSACTION if number is None else number

    def last(self) -> TableServiceRun | None:
        return self._records.read(tree.SERVICES, _build)

    def record(self, run: TableServiceRun) -> None:
        self._records.write(tree.SERVICES, asdict(run))

    def _new_candidacy(self) -> Candidacy:
        return Candidacy(self._client, self._root, self._incarnation, tree.SERVICES)


def _build(d: Any) -> TableServiceRun:
    services = (
        Service(
            require_str(s["name"]), require_seconds(s["seconds"]), require_str(s["instant"]), require_str(s["reason"])
        )
        for s in d["services"]
    )
    return TableServiceRun(
        require_str(d["worker"]), require_seconds(d["ended"]), require_int(d["committed"]), tuple(services)
    )
