"""Which `Host` headers a worker's HTTP servers take.

A web page of a stranger can have its own name resolved to this host's address, and the browser then sends the page's
requests here, with the stranger's name as `Host` (DNS rebinding). Guarantee: a guarded server answers only what
names loopback, the address at which the request arrived, this host's name, the name at which it listens, or one of
`http.hosts`. Raises `WrongHost`.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[(?P<bracketed>[0-9A-Fa-f:.]+)\]|(?P<plain>[^:\[\]]*))(?::\d*)?")
SHOWN_CHARACTERS = 100


class WrongHost(Exception):
    """A request names a host that is not this worker."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"Host {host[:SHOWN_CHARACTERS]!r} is not a name of this worker. If a proxy or a name of yours leads here,"
            " add that name to http.hosts."
        )


class KnownHosts:
    """The names of one server, which listens at `listen_host`. `named` are those of `http.hosts`."""

    def __init__(self, named: Sequence[str], listen_host: str, is_guarded: bool = True) -> None:
        own = socket.gethostname().lower()
        names = _LOOPBACK | {listen_host.lower(), own, own.partition(".")[0], *map(str.lower, named)}
        self._names = names if is_guarded else None

    def require(self, header: str, local_address: str) -> None:
        """Raises WrongHost. `local_address` is the address of this host at which the request arrived."""
        if self._names is None:
            return
        match = _HOST.fullmatch(header.strip())
        name = (match["bracketed"] or match["plain"]).lower().rstrip(".") if match else ""
        if not name or name not in self._names | {local_address}:
            raise WrongHost(header)
