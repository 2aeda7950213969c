"""Writes a reset to ZooKeeper as a coordinator would, under the election's lock and a new epoch. Or deletes all
records, under the lock.

Guarantee: no worker coordinates while a reset is written, and ZooKeeper refuses later writes of the previous
coordinator. An interrupted reset leaves the halt in place and can be run again. Errors: Conflict (workers are
alive, or the lock cannot be acquired), Unavailable, OutcomeUnknown.
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


def write(client: KazooClient, settings: Settings, epoch_floor: int, plan: Callable[[KeeperView], Reset]) -> int:
    """Writes the reset that `plan` makes from the tree, under the lock. Returns its epoch."""
    root = settings.root_znode
    _keeper(client, root).bootstrap(settings.config_digest)
    with lock(client, root) as lock_path:
        fence = Check(lock_path, 0)
        view = _keeper(client, root).read()
        write_plans(view, plan(view))
        epoch = max(view.epoch, epoch_floor) + 1
        _keeper(client, root).write((fence, tree.epoch_op(view, epoch, "reset")))
        # Read again: no coordinator can write from here on, and the reading before the new epoch may be stale.
        keeper = _keeper(client, root)
        view = keeper.read()
        for multi in write_plans(view, plan(view)):
            if multi:
                keeper.write((fence, Check(tree.EPOCH, view.epoch_version), *multi))
    return epoch


def forget(client: KazooClient, root: str) -> None:
    """Removes all records of the sink, also unreadable ones. It can be run again after an interruption."""
    with lock(client, root) as lock_path:
        require_no_live_workers(workers(client, root))
        worker_znodes = [*_paths(client, root, tree.WORKERS)][:-1]
        # Headers first: a transaction without one means nothing.
        paths = sorted((*recorded_paths(client, root), *worker_znodes), key=lambda path: not path.endswith("/header"))
        keeper = _keeper(client, root)
        for multi in tree.batched([Delete(path) for path in paths], ()):
            if multi:
                keeper.write((Check(lock_path, 0), *multi))


def workers(client: KazooClient, root: str) -> list[str]:
    """Returns the ids of the live workers, from the names of their ephemeral znodes."""
    member_paths = [*_paths(client, root, tree.WORKERS)][:-1]
    with _listing(root):
        stats = {path: client.exists(posixpath.join(root, path)) for path in member_paths}
    live_names = [posixpath.basename(path) for path, stat in stats.items() if stat and stat.ephemeralOwner]
    return sorted(worker_of(name) for name in live_names)


def recorded_paths(client: KazooClient, root: str) -> list[str]:
    """Returns the paths of all records, relative to `root`, deepest first."""
    return [path for name in tree.RECORDS for path in _paths(client, root, name)]


def _paths(client: KazooClient, root: str, path: str) -> Iterator[str]:
    """Yields all paths below a path, then the path itself; nothing if it does not exist."""
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
    try:
        yield
    except (KazooException, KazooTimeoutError) as error:
        raise Unavailable(f"ZooKeeper: cannot list {root}: {error!r}. Nothing was changed, try again.") from error


@contextmanager
def lock(client: KazooClient, root: str) -> Iterator[str]:
    """Holds the election's lock: no worker coordinates meanwhile. Yields the path of its znode, which fences writes."""
    candidacy = Candidacy(client, root, f"reset:{uuid.uuid4()}")
    time_out = Timer(LOCK_SECONDS, candidacy.withdraw)
    time_out.start()
    try:
        path = candidacy.campaign()
    finally:
        time_out.cancel()
    if path is None:
        raise Conflict(
            f"{root}: somebody else holds or waits for the coordinator's lock. Stop all workers, wait until"
            " their sessions have ended, then reset again."
        )
    try:
        yield path
    finally:
        candidacy.resign()


def _keeper(client: KazooClient, root: str) -> Keeper:
    """Returns a new keeper, which has cached nothing."""
    return Keeper(client, root, lambda: None)
