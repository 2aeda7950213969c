"""Elects the worker that runs the table services, and keeps what became of the last run.

Guarantee: at most one live session of a fleet holds the office; whoever follows learns when the last run ended, and
up to which transaction it had looked. It is a convenience, not a fence: a holder that was stopped may go on when it
wakes, and what it then does to the table is stopped by the table's own timeline. The record means nothing to the
protocol: one that cannot be read is none. Raises Unavailable.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from coordination.errors import Corrupt, Unavailable
from coordination.state import codec, tree
from coordination.state.model import NO_TRANSACTION
from coordination.state.require import require_int, require_seconds, require_str
from coordination.zookeeper.election import Candidacy

REQUEST_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Service:
    """The outcome of one table service. `instant` is that of its commit, empty where there was nothing to do.
    `reason` says why it failed, and is empty where it did not.
    """

    name: str
    seconds: float
    instant: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TableServiceRun:
    """`committed`: the sink's newest transaction when it began."""

    worker: str
    ended: float
    committed: int
    services: tuple[Service, ...] = ()

    @property
    def failed(self) -> tuple[Service, ...]:
        return tuple(service for service in self.services if service.reason)


class TableServiceLock:
    """One incarnation's way to it: `campaign` waits for it, `withdraw` ends the wait, `resign` gives it back."""

    def __init__(self, client: KazooClient, root: str, incarnation: str) -> None:
        self._client = client
        self._root = root
        self._incarnation = incarnation
        self._candidacy = self._new()

    def campaign(self) -> bool:
        candidacy = self._candidacy = self._new()
        return candidacy.campaign() is not None

    def withdraw(self) -> None:
        self._candidacy.withdraw()

    def resign(self) -> None:
        self._candidacy.resign()

    def is_alone(self) -> bool:
        """Whether the fleet has no other worker."""
        names = self._ask(self._client.get_children_async(f"{self._root}/{tree.WORKERS}"))
        return set(names) <= {self._incarnation}

    def committed(self) -> int:
        """The sink's newest transaction that was settled."""
        data = self._read(tree.TRANSACTIONS)
        try:
            return codec.from_bytes(data, tree.TRANSACTIONS, lambda d: require_int(d["committed"])) if data else 0
        except Corrupt:
            # Whose business it is says so.
            return NO_TRANSACTION

    def last(self) -> TableServiceRun | None:
        return decode(self._read(tree.SERVICES))

    def record(self, run: TableServiceRun) -> None:
        self._ask(self._client.set_async(f"{self._root}/{tree.SERVICES}", codec.to_bytes(asdict(run))))

    def _read(self, name: str) -> bytes:
        try:
            data: bytes = self._client.get_async(f"{self._root}/{name}").get(timeout=REQUEST_SECONDS)[0]
        except NoNodeError:
            return b""
        except (KazooException, KazooTimeoutError) as error:
            raise Unavailable(f"ZooKeeper: cannot read {self._root}/{name}: {error!r}") from error
        return data

    def _ask(self, answer: object) -> list[str]:
        try:
            answered: list[str] = answer.get(timeout=REQUEST_SECONDS)  # type: ignore[attr-defined]  # kazoo has no types
        except (KazooException, KazooTimeoutError) as error:
            raise Unavailable(f"ZooKeeper: {self._root}: {error!r}") from error
        return answered

    def _new(self) -> Candidacy:
        return Candidacy(self._client, self._root, self._incarnation, tree.SERVICES)


def decode(data: bytes) -> TableServiceRun | None:
    """None for nothing, and for what is not understood."""
    if not data:
        return None
    try:
        return codec.from_bytes(
            data,
            tree.SERVICES,
            lambda d: TableServiceRun(
                require_str(d["worker"]),
                require_seconds(d["ended"]),
                require_int(d["committed"]),
                tuple(
                    Service(
                        require_str(s["name"]),
                        require_seconds(s["seconds"]),
                        require_str(s["instant"]),
                        require_str(s["reason"]),
                    )
                    for s in d["services"]
                ),
            ),
        )
    except Corrupt:
        return None
