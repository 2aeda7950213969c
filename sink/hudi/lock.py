"""Hudi's own ZooKeeper table lock, held from Python over the worker's open session.

Guarantee: while it is held, no Hudi writer that uses ZookeeperBasedLockProvider with the same base path and key holds
it, and the other way round: both queue at the same znode. It is held only as long as the session lives, which ends
without a word to a process that stands still: so each step that completes or takes back what the next holder may have
completed asks last (`TableLock.require_held`), as transactions do with their fence. Voided by writers with another lock
provider, path or key. Raises Unavailable (not acquired within the wait, with the name of its holder; lost since; or why
ZooKeeper refuses it).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

import structlog
from kazoo.client import KazooClient
from kazoo.exceptions import (
    CancelledError,
    InvalidACLError,
    KazooException,
    LockTimeout,
    NoAuthError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.recipe.lock import Lock

from coordination.errors import TableError, Unavailable
from sink.clients.java.errors import JAVA_ERRORS
from sink.hudi.specification import LockSpecification

LOG = structlog.get_logger("sink.hudi")
WAIT_SECONDS = 30.0
_RELEASE_PAUSE_SECONDS = 0.5
Locks = Callable[[str], AbstractContextManager[Callable[[], None]]]
"""Gives the table lock, held for the purpose that is named, as what raises Unavailable once it is lost."""
T = TypeVar("T")


class TableLock(Lock):  # type: ignore[misc]  # kazoo has no types
    """Names its znodes so that Curator's InterProcessMutex, which Hudi uses, sorts them into one queue with
    its own.
    """

    _NODE_NAME = "-lock-"

    def __init__(self, client: KazooClient, path: str, holder: str) -> None:
        super().__init__(client, path, holder, extra_lock_patterns=("-lock-",))

    def require_held(self) -> None:
        """Raises Unavailable unless ZooKeeper has this lock's znode now. A transaction that only checks: a server that
        lags behind may still answer a read with a znode that is gone.
        """
        question = self.client.transaction()
        question.check(f"{self.path}/{self.node}", 0)
        try:
            [answer] = question.commit_async().get(timeout=WAIT_SECONDS)
        except (KazooException, KazooTimeoutError) as error:
            answer = error
        if isinstance(answer, Exception):
            raise Unavailable(
                f"table lock {self.path}: {type(answer).__name__}: this process no longer holds it, or cannot find out:"
                " its ZooKeeper session ended, or the connection. It changes nothing more. The next run goes on."
            ) from answer


class TableLocks:
    """Gives the lock of one table as a context manager; a new one each time, because kazoo's own do not survive a
    session. `note_held` is told, after each, for what it was held, and for how many seconds.
    """

    def __init__(
        self,
        client: KazooClient,
        specification: LockSpecification,
        wait: float = WAIT_SECONDS,
        note_held: Callable[[str, float], None] = lambda _purpose, _seconds: None,
    ) -> None:
        self._client = client
        self._note_held = note_held
        self._wait = wait
        self._holder, self.path = specification.holder, specification.path
        self._held: dict[TableLock, float] = {}

    @property
    def held_since(self) -> float:
        """Since when a thread has held the lock through this object, in monotonic seconds; now, if none does."""
        return min(tuple(self._held.values()), default=time.monotonic())

    @contextmanager
    def __call__(self, purpose: str) -> Iterator[Callable[[], None]]:
        lock = TableLock(self._client, self.path, self._holder)
        self._acquire(lock)
        self._held[lock] = time.monotonic()
        try:
            yield lock.require_held
        finally:
            began = self._held.pop(lock)
            self._release(lock)
            self._note_held(purpose, time.monotonic() - began)

    def _acquire(self, lock: TableLock) -> None:
        if not self._client.connected:
            raise Unavailable(f"table lock {self.path}: no connection to ZooKeeper")
        try:
            if lock.acquire(timeout=self._wait):
                return
        except LockTimeout:
            raise Unavailable(
                f"table lock {self.path}: not free within {self._wait:g} s, held by {self._held_by(lock)}."
                " Another writer of the table may be stuck."
            ) from None
        except (NoAuthError, InvalidACLError) as error:
            self._release(lock)
            raise Unavailable(
                f"table lock {self.path}: {type(error).__name__}: ZooKeeper refuses it to the sink's user. Give that"
                " user all rights on the znode and on those below it."
            ) from error
        except (KazooException, KazooTimeoutError, CancelledError) as error:
            self._release(lock)
            raise Unavailable(f"table lock {self.path}: {type(error).__name__} while waiting for it") from error
        raise Unavailable(f"table lock {self.path}: the wait for it was cancelled")

    def _held_by(self, lock: TableLock) -> str:
        try:
            contenders = lock.contenders()
        except (KazooException, KazooTimeoutError):
            return "somebody unknown (ZooKeeper did not answer)"
        return contenders[0] or "a writer without a name" if contenders else "nobody any more"

    def _release(self, lock: TableLock) -> None:
        """Never raises: the work under the lock has its own outcome. A znode that cannot be removed now is removed
        later: it would lock the table as long as the session lives.
        """
        if not self._released(lock):
            LOG.warning("lock.release_delayed", path=self.path)
            threading.Thread(target=self._release_later, args=(lock,), name="lock-release", daemon=True).start()

    def _release_later(self, lock: TableLock) -> None:
        while not self._released(lock):
            time.sleep(_RELEASE_PAUSE_SECONDS)

    def _released(self, lock: TableLock) -> bool:
        """Whether the znode is gone, or will go with its session."""
        try:
            lock.release()
        except SessionExpiredError:
            return True
        except (KazooException, KazooTimeoutError):
            return bool(self._client.client_state in ("CLOSED", "EXPIRED_SESSION"))
        return True


def read_settled(locks: Locks, read: Callable[[], T]) -> T:
    """Returns what `read` makes of a table's `hoodie.properties`. Hudi writes that file in place, under the table lock:
    what fails or does not fit may be half of it, and is read once more under the lock.
    """
    try:
        return read()
    except (TableError, *JAVA_ERRORS):
        with locks("read properties"):
            return read()
