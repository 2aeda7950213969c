"""Elects a coordinator: one kazoo Lock per term, never used again.

`Lock.is_acquired` survives the loss of the session, and `Election` does not interrupt a leader that lost it:
so this project asks neither. A term is known by its contender znode, which every write of the term checks; the
session's end ends the term, and the next one begins with a new `Lock`.
"""

from __future__ import annotations

from kazoo.client import KazooClient
from kazoo.exceptions import CancelledError, KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.recipe.lock import Lock

from coordination.errors import Unavailable
from coordination.state import tree


class Candidacy:
    """One attempt to become coordinator, or to get another lock: campaign, hold, resign."""

    def __init__(self, client: KazooClient, root: str, incarnation: str, lock_name: str = tree.ELECTION) -> None:
        self._lock_name = lock_name
        self._lock = Lock(client, f"{root}/{lock_name}", identifier=incarnation)

    def campaign(self) -> str | None:
        """Waits to be elected. Returns the contender znode's path relative to the root; None when withdrawn."""
        try:
            if not self._lock.acquire():
                return None
        except CancelledError:
            return None
        except (KazooException, KazooTimeoutError) as error:
            raise Unavailable(f"ZooKeeper: the election was interrupted: {error!r}") from error
        return f"{self._lock_name}/{self._lock.node}"

    def withdraw(self) -> None:
        """Stops waiting; `campaign` returns None."""
        self._lock.cancel()

    def resign(self) -> None:
        """Deletes the contender znode, so that the next in the queue follows at once."""
        try:
            self._lock.release()
        except (KazooException, KazooTimeoutError) as error:
            raise Unavailable(f"ZooKeeper: could not resign: {error!r}") from error
