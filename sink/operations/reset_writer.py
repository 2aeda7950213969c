"""Writes an operator's reset to ZooKeeper, or deletes a sink's records there: in the place of the coordinator.

Guarantee: the writer holds the coordinator's lock, so that no worker coordinates meanwhile. A reset is written in a new
epoch, so that ZooKeeper refuses later writes of the previous coordinator. An interrupted reset leaves the sink halted,
and can be run again. Raises Conflict (workers are alive, or the lock is not free), Unavailable, OutcomeUnknown, and
what the plan of a reset raises.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from coordination.errors import Conflict, Unavailable
from coordination.state import tree
from coordination.state.incarnations import worker_of
from coordination.state.tree import Check, Delete, KeeperView
from coordination.zookeeper.election import Candidacy
from coordination.zookeeper.keeper import Keeper
from sink.config import Settings
from sink.operations.reset import Reset, write_plans
from sink.operations.reset_checks import require_no_live_workers

LOCK_SECONDS = 20.0
"""The longest wait for the coordinator's lock."""


def write_reset(client: KazooClient, settings: Settings, epoch_floor: int, plan: Callable[[KeeperView], Reset]) -> int:
    """Writes the reset that `plan` makes of a reading of the tree. Returns the new epoch, which is above ZooKeeper's
    and above `epoch_floor`, the epoch of the table's checkpoint (0 without one).
    """
    root = settings.root_znode
    _keeper(client, root).bootstrap(settings.config_digest)
    with coordinator_lock(client, root) as lock_path:
        fence = Check(lock_path, 0)
        view = _keeper(client, root).read()
        # Nothing is written yet: a reset that `plan` refuses does not raise the epoch.
        write_plans(view, plan(view))
        epoch = max(view.epoch, epoch_floor) + 1
        _keeper(client, root).write((fence, tree.epoch_op(view, epoch, "reset")))
        # No coordinator can write from here on. One may have written between the first reading and the new epoch.
        keeper = _keeper(client, root)
        view = keeper.read()
        for multi in write_plans(view, plan(view)):
            if multi:
                keeper.write((fence, Check(tree.EPOCH, view.epoch_version), *multi))
    return epoch


def delete_records(client: KazooClient, root: str) -> None:
    """Deletes all znodes of the sink's records, also unreadable ones. It can be run again after an interruption."""
    with coordinator_lock(client, root) as lock_path:
        require_no_live_workers(live_workers(client, root))
        worker_znodes = _worker_paths(client, root)
        # A transaction's header first: if this is interrupted, what remains of the transaction is ignored.
        paths = sorted((*recorded_paths(client, root), *worker_znodes), key=lambda path: not path.endswith("/header"))
        keeper = _keeper(client, root)
        for multi in tree.batched([Delete(path) for path in paths], ()):
            if multi:
                keeper.write((Check(lock_path, 0), *multi))


def live_workers(client: KazooClient, root: str) -> list[str]:
    """Returns the ids of the live workers, from the names of their ephemeral znodes."""
    with _listing(root):
        stats = {path: client.exists(posixpath.join(root, path)) for path in _worker_paths(client, root)}
    incarnations = [posixpath.basename(path) for path, stat in stats.items() if stat and stat.ephemeralOwner]
    return sorted(worker_of(incarnation) for incarnation in incarnations)


def _worker_paths(client: KazooClient, root: str) -> list[str]:
    """Returns the paths of the workers' znodes, also of any that is not ephemeral."""
    return [path for path in _paths(client, root, tree.WORKERS) if path != tree.WORKERS]


def recorded_paths(client: KazooClient, root: str) -> list[str]:
    """Returns the paths of all record znodes, relative to `root`. Children come before their parent."""
    return [path for name in tree.RECORDS for path in _paths(client, root, name)]


def _paths(client: KazooClient, root: str, path: str) -> Iterator[str]:
    """Yields all paths below `path`, then `path` itself. Yields nothing if it does not exist."""
    with _listing(root):
        try:
            children = client.get_children(posixpath.join(root, path))
        except NoNodeError:
            return
    for child in children:
        yield from _paths(client, root, f"{path}/{child}")
    yield path


@contextmanager
def _listing(root: str) -> Iterator[None]:
    """Raises Unavailable for ZooKeeper's errors while the znodes of a sink are listed."""
    try:
        yield
    except (KazooException, KazooTimeoutError) as error:
        raise Unavailable(f"ZooKeeper: cannot list {root}: {error!r}. Nothing was changed. Try again.") from error


@contextmanager
def coordinator_lock(client: KazooClient, root: str) -> Iterator[str]:
    """Holds the lock by which workers elect their coordinator, so that no worker coordinates. Yields the path of its
    znode, relative to `root`: a write that checks this znode fails once the lock is lost.
    """
    candidacy = Candidacy(client, root, f"reset:{uuid.uuid4()}")
    timeout = Timer(LOCK_SECONDS, candidacy.withdraw)
    timeout.start()
    try:
        path = candidacy.campaign()
    finally:
        timeout.cancel()
    if path is None:
        raise Conflict(
            f"{root}: a worker or another command holds the coordinator's lock, or is before this one in its queue."
            " Stop all workers, wait until their sessions have ended, then run the command again."
        )
    try:
        yield path
    finally:
        candidacy.resign()


def _keeper(client: KazooClient, root: str) -> Keeper:
    """Returns a keeper without a cache of earlier readings."""
    return Keeper(client, root, lambda: None)
