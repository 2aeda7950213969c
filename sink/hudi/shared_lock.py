"""The identity of a table's lock: a random text in a znode beside the lock, which the table's properties note.

A path names a lock on each ensemble and below each chroot. Guarantee: two sinks that share no lock do not both write a
table, but for the first commits of both at the same moment. A sink that the table knows gives its identity to an
ensemble that was emptied; one that the table does not know is refused there. Voided by a copied or edited znode. Raises
Unavailable.
"""

from __future__ import annotations

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from coordination.errors import Unavailable


class LockIdentity:
    """The znode that holds the identity of the lock at `path`."""

    def __init__(self, client: KazooClient, path: str) -> None:
        self._client = client
        self._path = f"{path}-identity"

    def read(self) -> str | None:
        """Returns the identity; None before the first sink."""
        try:
            return bytes(self._client.get(self._path)[0]).decode()
        except NoNodeError:
            return None
        except (KazooException, KazooTimeoutError) as error:
            raise self._unavailable(error) from error

    def keep(self, identity: str) -> None:
        """Writes the identity, if there is none. The caller holds the lock."""
        try:
            self._client.create(self._path, identity.encode(), makepath=True)
        except NodeExistsError:
            pass
        except (KazooException, KazooTimeoutError) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> Unavailable:
        return Unavailable(f"znode {self._path}: {type(error).__name__}. The sink tries again.")


def lock_conflict(noted: str | None, found: str | None, is_known: bool) -> str | None:
    """Tells why the lock is not the table's; None if it is, or may become it.

    `noted`: the identity that the table notes, None before the first sink. `found`: that of the ensemble. `is_known`:
    whether a commit of the table is of this sink, or none is of any.
    """
    if noted is None or found == noted or (found is None and is_known):
        return None
    if found is None:
        return (
            f"the table's lock: {noted}, on another ZooKeeper ensemble or chroot: the sinks of the table would not wait"
            " for one another (zookeeper.connect). If this ensemble was emptied, start a sink first that has committed"
            " to the table"
        )
    return (
        f"the table's lock: {noted}. This ensemble's is {found}: the sinks of the table would not wait for one another"
        " (zookeeper.connect)."
    )
