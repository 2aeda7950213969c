"""A connection within the host is taken for the user who made it."""

from __future__ import annotations

import resource
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.accumulators import AccumulatorServer

from sink.clients.java import loopback_peers
from sink.clients.java.loopback_peers import OwnPeersSocket, is_own_peer, refuse_strangers_updates
from tests.strangers import attacking

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the kernel lists no owners of sockets")

HOSTS = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]


@contextmanager
def listener(family: socket.AddressFamily, host: str) -> Iterator[OwnPeersSocket]:
    with OwnPeersSocket(family, socket.SOCK_STREAM) as server:
        try:
            server.bind((host, 0))
        except OSError:
            pytest.skip("this host has no IPv6")
        server.listen()
        yield server


@pytest.mark.parametrize(("family", "host"), HOSTS)
def test_a_connection_of_this_user_is_accepted(family: socket.AddressFamily, host: str) -> None:
    with listener(family, host) as server, socket.create_connection(server.getsockname()[:2]):
        server.accept()[0].close()


def test_a_connection_through_an_ipv6_socket_to_an_ipv4_address_is_accepted() -> None:
    """Java's sockets are of this kind."""
    with listener(*HOSTS[0]) as server, socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as client:
        try:
            client.connect((f"::ffff:{server.getsockname()[0]}", server.getsockname()[1]))
        except OSError:
            pytest.skip("this host has no IPv6")
        server.accept()[0].close()


def test_a_strangers_connection_is_closed() -> None:
    with listener(*HOSTS[0]) as server, attacking("connect", port=server.getsockname()[1], times=1) as stranger:
        server.settimeout(60)
        with pytest.raises(InterruptedError):
            server.accept()
        assert stranger.communicate(timeout=60)[0].strip() == '[""]'


def test_a_connection_that_is_gone_is_nobodys() -> None:
    with socket.socket() as unconnected:
        assert not is_own_peer(unconnected)


def test_where_the_kernel_lists_no_owner_every_connection_is_accepted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(loopback_peers, "_TABLES", (tmp_path / "tcp",))
    with listener(*HOSTS[0]) as server, socket.create_connection(server.getsockname()):
        server.accept()[0].close()


def test_where_the_kernel_lists_other_owners_every_connection_is_accepted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A kernel that is not Linux may have tables of its own."""
    (tmp_path / "tcp").write_text("  sl  local_address rem_address   st\n")
    monkeypatch.setattr(loopback_peers, "_TABLES", (tmp_path / "tcp",))
    with listener(*HOSTS[0]) as server, socket.create_connection(server.getsockname()):
        server.accept()[0].close()


def test_pysparks_server_of_accumulators_handles_no_stranger() -> None:
    """It handles one connection at a time: a stranger's first one would block all others."""
    handled: list[bytes] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            handled.append(self.rfile.read(4))
            self.wfile.write(b".")

    refuse_strangers_updates()
    server = AccumulatorServer(("127.0.0.1", 0), Handler, "token")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        with attacking("connect", port=server.server_address[1], times=1) as stranger:
            assert stranger.communicate(timeout=60)[0].strip() == '[""]'
        with socket.create_connection(server.server_address) as own:
            own.sendall(b"mine")
            assert own.recv(1) == b"."
    finally:
        server.shutdown()
        thread.join()
    assert handled == [b"mine"]


def test_a_reading_that_passes_the_socket_over_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    readings: list[Path] = []
    read = Path.read_text

    def incomplete(path: Path) -> str:
        readings.append(path)
        return "" if len(readings) <= 4 else read(path)

    monkeypatch.setattr(Path, "read_text", incomplete)
    with listener(*HOSTS[0]) as server, socket.create_connection(server.getsockname()):
        server.accept()[0].close()
    assert len(readings) == 6


def test_what_cannot_be_asked_of_the_kernel_now_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """This host has used up its descriptors for a moment; its kernel lists no owners."""
    loopback_peers._lists_owners.cache_clear()
    monkeypatch.setattr(loopback_peers, "_TABLES", ())
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        connection = server.accept()[0]
        with connection:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
            try:
                assert not is_own_peer(connection)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert is_own_peer(connection)
