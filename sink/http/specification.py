"""Where and how a worker serves HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class HttpSpecification:
    """`address` is host and port, None if nothing is served. `is_chosen`: the user has written it. `hosts` are the
    names that the server takes beside its own, `is_on_loopback` says whether only this host reaches it. With
    `certificate` and `key`, in PEM, it serves TLS. Without a `token` nothing can be changed by HTTP.
    """

    address: tuple[str, int] | None
    is_chosen: bool = True
    is_on_loopback: bool = False
    hosts: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    token: str = field(default="", repr=False)

    @property
    def listen(self) -> str:
        """`host:port`, as the user writes it; `none` if nothing is served."""
        if self.address is None:
            return "none"
        host, port = self.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
