"""ZooKeeper clients, and the worker's session, which retries for ever and replaces an unrecoverable session.

kazoo reports a session as lost only when a server says so. An ensemble that was emptied or restored never does: it
refuses every client that has seen a newer transaction than its own. So after twice the session time-out without a
connection, when the session has ended on any server, this module closes it and opens a new one.
"""

from __future__ import annotations

import logging
import math
import select
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Lock
from typing import Any

import structlog
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import KazooState
from kazoo.security import CREATOR_ALL_ACL

from coordination.errors import ConfigError, Unavailable
from sink.clients.zookeeper.ensemble import EnsembleAccess
from sink.telemetry.logs import ContextThread

LOG = structlog.get_logger("sink.worker")
WARN_SECONDS = 10.0
POLL_SECONDS = 0.1
CONNECT_SECONDS = 10.0
"""Seconds that a command waits for an answer."""


class Complaints(logging.Handler):
    """Collects kazoo's log lines about its connection. `last` is the reason of the last failure."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = "no answer"
        self.logger = logging.Logger("kazoo", logging.WARNING)
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if line.startswith(("Connection dropped: ", "Cannot resolve ", "AUTH_FAILED")):
            self.last = line.removeprefix("Connection dropped: ")
        if record.levelno >= logging.ERROR:
            logging.getLogger("kazoo").handle(record)


class PollingHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Waits for sockets with poll(2). kazoo makes and closes an epoll instance for each wait, and waits four times for
    each request: that is a third of the time of its thread.
    """

    def select(
        self,
        readable: Sequence[Any],
        writable: Sequence[Any],
        _exceptional: Sequence[Any],
        timeout: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Returns the sockets that can be read or written, or have failed; none after `timeout` seconds."""
        poll = select.poll()
        for sockets, event in ((readable, select.POLLIN), (writable, select.POLLOUT)):
            for socket in sockets:
                poll.register(socket, event)
        # poll(2) takes a negative time-out for none.
        milliseconds = None if timeout is None else max(0, math.ceil(timeout * 1000))
        ready = {descriptor for descriptor, _ in poll.poll(milliseconds)}
        return [s for s in readable if s.fileno() in ready], [s for s in writable if s.fileno() in ready], []


def new_client(ensemble: EnsembleAccess, complaints: Complaints, max_delay: float) -> KazooClient:
    """Returns a client, not started yet, which retries to connect after at most `max_delay` seconds. Raises ConfigError
    for invalid certificates."""
    security_options: dict[str, Any] = {}
    if ensemble.ca is not None:
        security_options |= {"use_ssl": True, "check_hostname": True, **_certificates(ensemble)}
    if ensemble.digest:
        security_options["auth_data"] = [("digest", ensemble.digest)]
    if ensemble.restricts:
        security_options["default_acl"] = CREATOR_ALL_ACL
    return KazooClient(
        hosts=ensemble.address,
        timeout=ensemble.session_seconds,
        handler=PollingHandler(),
        connection_retry={"max_tries": -1, "max_delay": max_delay},
        # kazoo must not repeat a request: see coordination/zookeeper/keeper.py.
        command_retry={"max_tries": 0, "ignore_expire": False},
        logger=complaints.logger,
        **security_options,
    )


def _certificates(ensemble: EnsembleAccess) -> dict[str, str | None]:
    """Returns kazoo's arguments. Loads the certificates first: kazoo would retry for ever with invalid ones."""
    ca, certificate, key = ensemble.ca, ensemble.certificate, ensemble.key
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(ca)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"zookeeper.ssl.ca.location: {ca} has no certificates in PEM ({error})") from error
    if certificate is None:
        return {"ca": str(ca)}
    try:
        context.load_cert_chain(certificate, key, ensemble.key_password)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            f"zookeeper.ssl.*: {certificate} and {key} are not a certificate and its key in PEM, or the password is"
            f" wrong ({error})"
        ) from error
    password = ensemble.key_password or None
    return {"ca": str(ca), "certfile": str(certificate), "keyfile": str(key), "keyfile_password": password}


class ZooKeeperSession:
    """The worker's session. kazoo's thread calls `on_state` with every change of its state."""

    def __init__(self, ensemble: EnsembleAccess, on_state: Callable[[str], None]) -> None:
        self._address = ensemble.address
        self._timeout = ensemble.session_seconds
        self._disconnected_at = time.monotonic()
        self._warned_at = self._disconnected_at
        self._on_state = on_state
        self._complaints = Complaints()
        self._poll_lock = Lock()
        self._replacing: ContextThread | None = None
        self._is_closed = False
        self.client = new_client(ensemble, self._complaints, max_delay=5.0)
        self.client.add_listener(self._state_changed)

    def start(self) -> None:
        self.client.start_async()

    def wait(self, stop: Event, seconds: float = math.inf) -> bool:
        """Waits for a session. Returns False if `stop` is set before, or after `seconds`."""
        deadline = time.monotonic() + seconds
        while not self.client.connected:
            if stop.wait(POLL_SECONDS) or time.monotonic() > deadline:
                return False
            self.poll()
        return True

    def poll(self) -> None:
        """Warns if ZooKeeper is unreachable, and has the session replaced when the old one has ended.

        Call it regularly, from any thread. It returns at once."""
        if self.client.connected or not self._poll_lock.acquire(blocking=False):
            return
        try:
            self._poll()
        finally:
            self._poll_lock.release()

    def _poll(self) -> None:
        now = time.monotonic()
        if now - self._warned_at > WARN_SECONDS:
            self._warned_at = now
            reason = self._complaints.last
            LOG.warning("zookeeper.unreachable", address=self._address, reason=reason, action="keeps trying")
        is_replacing = self._replacing is not None and self._replacing.is_alive()
        if now - self._disconnected_at > 2 * self._timeout and not is_replacing:
            self._disconnected_at = now
            self._replacing = ContextThread(target=self._replace, name="zookeeper-session", daemon=True)
            self._replacing.start()

    def _replace(self) -> None:
        """Closes the session, and begins another one. kazoo waits for its own threads, which may hang in a connection:
        no other thread waits for them.
        """
        try:
            self.client.stop()
            if not self._is_closed:
                self.client.start_async()
        except KazooException as error:
            LOG.warning("zookeeper.session_not_replaced", reason=repr(error))

    def close(self) -> None:
        self._is_closed = True
        if self._replacing is not None:
            self._replacing.join(CONNECT_SECONDS)
        self.client.stop()
        self.client.close()

    def _state_changed(self, state: str) -> None:
        if state == KazooState.SUSPENDED:
            self._disconnected_at = time.monotonic()
        self._on_state(state)


def require_chroot(client: KazooClient) -> None:
    """Raises ConfigError if the chroot does not exist: ZooKeeper would refuse every znode below it. Raises Unavailable
    if ZooKeeper does not answer."""
    try:
        exists = client.exists_async("/").get(timeout=CONNECT_SECONDS) is not None
    except (KazooException, KazooTimeoutError) as error:
        raise Unavailable(f"ZooKeeper stopped answering ({error!r}). Try again.") from error
    if not exists:
        raise ConfigError("zookeeper.connect: the chroot does not exist. Create that znode first.")


@contextmanager
def connected(ensemble: EnsembleAccess, seconds: float = CONNECT_SECONDS) -> Iterator[KazooClient]:
    """Yields a started client, for commands. Raises Unavailable if ZooKeeper does not answer in time."""
    complaints = Complaints()
    client = new_client(ensemble, complaints, max_delay=1.0)
    try:
        client.start(timeout=seconds)
    except KazooTimeoutError as error:
        client.close()
        raise Unavailable(
            f"ZooKeeper at {ensemble.address} did not answer within {seconds:g} s ({complaints.last}). Start it or"
            " correct zookeeper.*."
        ) from error
    try:
        yield client
    finally:
        client.stop()
        client.close()
