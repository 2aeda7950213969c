"""Which `Host` headers a worker's HTTP server takes.

A web page of a stranger can have its own name resolved to this host's address, and the browser then sends the page's
requests here, with the stranger's name as `Host` (DNS rebinding). Guarantee: where the server listens on loopback, or
where `http.hosts` is set, a request is answered only if it names loopback, the address at which it arrived, this host's
name, the name in `http.listen`, or one of `http.hosts`. Raises `WrongHost`.
"""

from __future__ import annotations

import re
import socket

from sink.config import ProcessSettings

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
    """The names of one server; None where every name is taken."""

    def __init__(self, settings: ProcessSettings) -> None:
        listen_host = settings.http_address[0] if settings.http_address else ""
        self._names: frozenset[str] | None = None
        if settings.http_hosts or settings.http_is_on_loopback:
            own = socket.gethostname().lower()
            named = map(str.lower, settings.http_hosts)
            self._names = _LOOPBACK | {listen_host.lower(), own, own.partition(".")[0], *named}

    def require(self, header: str, local_address: str) -> None:
        """Raises WrongHost. `local_address` is the address of this host at which the request arrived."""
        if self._names is None:
            return
        match = _HOST.fullmatch(header.strip())
        name = (match["bracketed"] or match["plain"]).lower().rstrip(".") if match else ""
        if not name or name not in self._names | {local_address}:
            raise WrongHost(header)
