"""Elects the worker that runs the table services, and records the outcome of the last run.

A run is one pass over compaction, clustering, cleaning and archiving. It is due after every so many transactions, and
the record says since when it has been due. The services of Hudi's metadata table run between these runs.

Guarantee: at most one live session of a fleet holds the lock. The record survives restarts and changes of worker: the
next holder reads when the last run ended, the newest transaction at its begin, and since when each service has been due
without success. The lock is not a fence: a holder that was paused may go on after another worker got the lock. The
table lock and the table's timeline keep it from doing harm. The transaction protocol does not read the record: an
unreadable one counts as missing. Raises OtherVersion and Unavailable.
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

WHOLE_RUN = "table"
"""The name under which a run counts that is due or under way, or in which no service could begin."""
_METADATA_PREFIX = "metadata "
"""Begins the name of each service of Hudi's metadata table."""


@dataclass(frozen=True, slots=True)
class ServiceOutcome:
    """The outcome of one table service in its last run."""

    name: str
    seconds: float
    """How many seconds it took."""
    instant: str = ""
    """The instant that it completed; empty if it had nothing to do."""
    reason: str = ""
    """Why it failed; empty if it did not."""
    since: float = 0.0
    """When it first became due after its last success, in seconds since 1970; 0 if it did not fail."""


@dataclass(frozen=True, slots=True)
class TableServiceRun:
    """The last run that ended, and whether another one is due. All times are in seconds since 1970."""

    worker: str = ""
    """The worker that ran it; empty if no run has ended yet."""
    ended: float = 0.0
    """When it ended; 0 if no run has ended yet."""
    committed: int = NO_TRANSACTION
    """The sink's newest transaction when it began."""
    services: tuple[ServiceOutcome, ...] = ()
    """The outcomes of that run, and the last outcomes of the metadata table's services."""
    due: float = 0.0
    """Since when the next run has been due or under way; 0 if it is neither."""

    @property
    def failed(self) -> tuple[ServiceOutcome, ...]:
        return tuple(service for service in self.services if service.reason)

    @property
    def due_since(self) -> Mapping[str, float]:
        """Maps the names of failed services, and WHOLE_RUN if a run is due, to the time since when each is due."""
        due = {service.name: service.since for service in self.failed if service.since}
        return {**due, WHOLE_RUN: min(self.due, due.get(WHOLE_RUN, self.due))} if self.due else due

    def is_due(self, committed: int, interval: int) -> bool:
        """Whether a run is due when `committed` is the newest transaction. A run is due `interval` transactions after
        the last one, at once after a run that began and never ended, and at once if the numbers of transactions have
        begun again.
        """
        return bool(self.due) or not 0 <= committed - self.committed < interval

    def marked_due(self, at: float) -> TableServiceRun:
        """Returns the record of a run that is due at `at`, or begins then. An earlier date stays."""
        return replace(self, due=self.due or at)

    def after_run(
        self, worker: str, at: float, committed: int, outcomes: tuple[ServiceOutcome, ...]
    ) -> TableServiceRun:
        """Returns the record of a run that ended at `at`; it began when `committed` was the newest transaction."""
        kept = tuple(service for service in self.services if _is_of_metadata(service))
        return TableServiceRun(worker, at, committed, (*self._dated(outcomes, self.due or at), *kept))

    def after_failed_start(self, at: float, failed: ServiceOutcome) -> TableServiceRun:
        """Returns the record after a worker could not begin the run that is due; `failed` has the reason."""
        kept = tuple(service for service in self.services if service.name != WHOLE_RUN)
        return replace(self, services=(*self._dated((failed,), self.due or at), *kept))

    def after_metadata_run(self, at: float, outcomes: tuple[ServiceOutcome, ...]) -> TableServiceRun:
        """Returns the record after the metadata table's services have run. `outcomes` is empty if none was due: Hudi or
        another worker has done what had failed.
        """
        kept = tuple(service for service in self.services if not _is_of_metadata(service))
        return replace(self, services=(*kept, *self._dated(outcomes, at)))

    def _dated(self, outcomes: tuple[ServiceOutcome, ...], at: float) -> tuple[ServiceOutcome, ...]:
        """Dates each failure to when the service first became due after its last success, and at the latest to `at`. A
        failure of the whole run is a failure of each of its services.
        """

        def since(failed: ServiceOutcome) -> float:
            earlier = (
                before.since
                for before in self.failed
                if before.name == failed.name
                or (WHOLE_RUN in (before.name, failed.name) and not _is_of_metadata(before, failed))
            )
            return min(time for time in (failed.since, at, *earlier) if time)

        return tuple(replace(outcome, since=since(outcome) if outcome.reason else 0.0) for outcome in outcomes)


def _is_of_metadata(*services: ServiceOutcome) -> bool:
    """Whether one of these is a service of the metadata table: no run includes those."""
    return any(service.name.startswith(_METADATA_PREFIX) for service in services)


class TableServiceLock:
    """The lock as one incarnation of a worker uses it, and the record of the runs."""

    def __init__(self, client: KazooClient, root: str, incarnation: str) -> None:
        self._client = client
        self._root = root
        self._incarnation = incarnation
        self._records = Records(client, root)
        self._candidacy = self._new_candidacy()

    def campaign(self) -> bool:
        """Waits until this worker holds the lock. Returns False if it withdrew first."""
        candidacy = self._candidacy = self._new_candidacy()
        return candidacy.campaign() is not None

    def withdraw(self) -> None:
        """Ends the wait of `campaign`, from another thread."""
        self._candidacy.withdraw()

    def resign(self) -> None:
        """Gives the lock back."""
        self._candidacy.resign()

    def is_alone(self) -> bool:
        """Whether the fleet has no other worker."""
        return self._records.children(tree.WORKERS) <= {self._incarnation}

    def committed(self) -> int:
        """Returns the number of the sink's newest settled transaction, or NO_TRANSACTION if ZooKeeper has none that can
        be read. The coordinator reports an unreadable one.
        """
        number = self._records.read(tree.TRANSACTIONS, lambda d: require_int(d["committed"]))
        return NO_TRANSACTION if number is None else number

    @property
    def is_connected(self) -> bool:
        return bool(self._client.connected)

    def last(self) -> TableServiceRun | None:
        """Reads the record; None if it is missing or unreadable."""
        return self._records.read(tree.SERVICES, build_run)

    def record(self, change: Callable[[TableServiceRun], TableServiceRun]) -> TableServiceRun:
        """Replaces the record by the result of `change`, and returns that. Calls `change` again if another process
        writes the record meanwhile.
        """
        new = TableServiceRun()

        def changed(run: TableServiceRun | None) -> Mapping[str, Any]:
            nonlocal new
            new = change(run or TableServiceRun())
            return asdict(new)

        self._records.update(tree.SERVICES, build_run, changed)
        return new

    def _new_candidacy(self) -> Candidacy:
        return Candidacy(self._client, self._root, self._incarnation, tree.SERVICES)


def build_run(d: Any) -> TableServiceRun:
    """Builds the record from its JSON. Raises KeyError, TypeError or ValueError for JSON of another shape."""
    services = (
        ServiceOutcome(
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
