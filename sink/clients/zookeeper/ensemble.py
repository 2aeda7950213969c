"""How a process reaches a ZooKeeper ensemble, and as whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EnsembleAccess:
    """`address` is `host:port,...`, perhaps with a chroot. With `ca`, connections are made by TLS only. `digest` is
    `name:password`, or empty. With `restricts`, only clients that are authenticated like the maker of a
    znode may read and change it."""

    address: str
    session_seconds: float
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    key_password: str = field(default="", repr=False)
    digest: str = field(default="", repr=False)
    restricts: bool = False
