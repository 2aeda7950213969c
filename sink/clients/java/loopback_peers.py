"""Tells this user's processes from other users' on connections within the host.

PySpark's servers in Python read from a connection, or fork, before they know whose it is: another local user could
fork processes or keep the only handler busy. Guarantee: on Linux a connection is accepted only if its other end is a
socket of this process's user; the kernel's tables of TCP say so. Where they do not list a connection of this process's
own, every connection is accepted, and only PySpark's secret protects. Raises nothing.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pyspark import accumulators

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_MAPPED = "0000000000000000FFFF0000"
"""The prefix of an IPv4 address in the table for IPv6, where Java's sockets are listed."""
_ESTABLISHED = "01"
READINGS = 5
"""A table is not read in one moment: while others come and go, a reading may pass a socket over."""


def is_own_peer(connection: socket.socket) -> bool:
    """Returns whether the other end of a connection from this host belongs to this process's user."""
    try:
        peer, own = _endpoint(connection.getpeername()), _endpoint(connection.getsockname())
    except (OSError, ValueError):
        # The peer is gone, or the address is not one of TCP.
        return False
    if _is_listed(peer, own, _TABLES):
        return True
    try:
        return not _lists_owners(_TABLES)
    except OSError:
        return False  # not known now


def refuse_strangers_updates() -> None:
    """Makes PySpark's server of accumulators refuse other users' connections. It handles one at a time: a stranger's
    would block Spark's scheduler for ever."""

    def verify_request(_server: Any, request: Any, _address: Any) -> bool:
        return is_own_peer(request)

    accumulators.AccumulatorServer.verify_request = verify_request  # type: ignore


class OwnPeersSocket(socket.socket):
    """A listening socket that closes connections of other users. `accept` raises InterruptedError for these."""

    def accept(self) -> tuple[socket.socket, Any]:
        """Accepts one connection of this user."""
        connection, address = super().accept()
        if is_own_peer(connection):
            return connection, address
        connection.close()
        raise InterruptedError(errno.EINTR, "a connection of another user was closed")


@cache
def _lists_owners(tables: tuple[Path, ...]) -> bool:
    """Returns whether this kernel lists the owner of a connection of this process's own. Raises OSError."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()) as client:
            return _is_listed(_endpoint(client.getsockname()), _endpoint(client.getpeername()), tables)


def _is_listed(peer: tuple[str, str], own: tuple[str, str], tables: tuple[Path, ...]) -> bool:
    """Returns whether the socket from `peer` to `own` is listed as this user's."""
    for _ in range(READINGS):
        if users := list(_users(peer, own, tables)):
            return str(os.getuid()) in users
    return False


def _users(peer: tuple[str, str], own: tuple[str, str], tables: tuple[Path, ...]) -> Iterator[str]:
    """Yields the users of the established sockets from `peer` to `own`: one, or none."""
    for table in tables:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            columns = line.split()
            if columns[3] == _ESTABLISHED and _listed(columns[1]) == peer and _listed(columns[2]) == own:
                yield columns[7]


def _listed(place: str) -> tuple[str, str]:
    address, _, port = place.partition(":")
    return address.removeprefix(_MAPPED), port


def _endpoint(place: tuple[Any, ...]) -> tuple[str, str]:
    """Returns address and port as the kernel's tables show them: words of the host's byte order, in hexadecimal."""
    host, port = place[0], place[1]
    packed = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words).removeprefix(_MAPPED), f"{port:04X}"
