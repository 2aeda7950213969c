"""Elects the worker that runs the table services, and records the outcome of the last run.

Guarantee: at most one live session of a fleet holds the lock. The next holder learns when the last run ended, which
transaction it had reached, and since when a service has been due without success: no restart and no change of worker
makes that shorter. The lock is a convenience, not a fence: a holder that was stopped may go on when it wakes,
and then the table's own timeline keeps it from doing harm. The record means nothing to the protocol: an unreadable one
counts as missing. Raises OtherVersion and Unavailable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from kazoo.client import KazooClient

from coordination.state import tree
from coordination.state.model import NO_TRANSACTION
from coordination.state.require import require_int, require_seconds, require_str
from coordination.zookeeper.election import Candidacy
from coordination.zookeeper.records import Records

RUN = "table"
"""Names a run of the table services where none of them could begin, or has ended."""
_OF_METADATA = "metadata "
"""Begins the names of the services of Hudi's metadata table."""


@dataclass(frozen=True, slots=True)
class Service:
    """The outcome of one table service. `instant` is that of its commit, empty if there was nothing to do. `reason`
    says why it failed, and is empty if it did not. `since`: when it was due for the first time after its last success,
    in seconds since 1970; 0 if it has not failed.
    """

    name: str
    seconds: float
    instant: str = ""
    reason: str = ""
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class TableServiceRun:
    """The last run that has ended: `worker` and `ended` are empty and 0 while none has. `committed`: the sink's newest
    transaction when it began. `services` has the outcomes of that run, and the last ones of the metadata table's.
    `due`: since when another run has been due, or has been under way; 0 if none is.
    """

    worker: str = ""
    ended: float = 0.0
    committed: int = NO_TRANSACTION
    services: tuple[Service, ...] = ()
    due: float = 0.0

    @property
    def failed(self) -> tuple[Service, ...]:
        return tuple(service for service in self.services if service.reason)

    @property
    def due_since(self) -> Mapping[str, float]:
        """Since when each service has been due and has not succeeded, by name, in seconds since 1970."""
        due = {service.name: service.since for service in self.failed if service.since}
        return {**due, RUN: min(self.due, due.get(RUN, self.due))} if self.due else due

    def is_due(self, committed: int, interval: int) -> bool:
        """Whether a run is due at a newest transaction: `interval` transactions after the last one, or at once after
        one that was begun and has not ended.
        """
        return bool(self.due) or not 0 <= committed - self.committed < interval

    def marked_due(self, at: float) -> TableServiceRun:
        return replace(self, due=self.due or at)

    def after_run(self, worker: str, at: float, committed: int, outcomes: tuple[Service, ...]) -> TableServiceRun:
        kept = tuple(service for service in self.services if service.name.startswith(_OF_METADATA))
        return TableServiceRun(worker, at, committed, (*self._dated(outcomes, self.due or at), *kept))

    def interrupted(self, at: float, failed: Service) -> TableServiceRun:
        """`failed` says why no worker can begin a run."""
        kept = tuple(service for service in self.services if service.name != RUN)
        return replace(self, services=(*self._dated((failed,), self.due or at), *kept))

    def after_metadata_run(self, at: float, outcomes: tuple[Service, ...]) -> TableServiceRun:
        """`outcomes` is empty if no service of the metadata table is due: whatever had failed has been done since."""
        kept = tuple(service for service in self.services if not service.name.startswith(_OF_METADATA))
        return replace(self, services=(*kept, *self._dated(outcomes, at)))

    def _dated(self, outcomes: tuple[Service, ...], at: float) -> tuple[Service, ...]:
        """Dates failures: to the first one after the last success, and at the latest to `at`. A run in which none could
        begin is a failure of each.
        """

        def since(service: Service) -> float:
            earlier = (s.since for s in self.failed if s.name in (service.name, RUN) or service.name == RUN)
            return min(time for time in (service.since, at, *earlier) if time)

        return tuple(replace(service, since=since(service) if service.reason else 0.0) for service in outcomes)


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

    @property
    def is_connected(self) -> bool:
        return bool(self._client.connected)

    def last(self) -> TableServiceRun | None:
        return self._records.read(tree.SERVICES, build_run)

    def record(self, change: Callable[[TableServiceRun], TableServiceRun]) -> TableServiceRun:
        """Replaces the record by what `change` makes of it. Returns the new one."""
        runs = [TableServiceRun()]

        def changed(run: TableServiceRun | None) -> Mapping[str, Any]:
            runs.append(change(run or TableServiceRun()))
            return asdict(runs[-1])

        self._records.update(tree.SERVICES, build_run, changed)
        return runs[-1]

    def _new_candidacy(self) -> Candidacy:
        return Candidacy(self._client, self._root, self._incarnation, tree.SERVICES)


def build_run(d: Any) -> TableServiceRun:
    services = (
        Service(
            require_str(s["name"]),
            require_seconds(s["seconds"]),
            require_str(s["instant"]),
            require_str(s["reason"]),
            require_seconds(s["since"]),
        )
        for s in d["services"]
    )
    return TableServiceRun(
        require_str(d["worker"]),
        require_seconds(d["ended"]),
        require_int(d["committed"]),
        tuple(services),
        require_seconds(d["due"]),
    )
