"""A page of a stranger that has its own name resolved to this host gets no answer (DNS rebinding)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sink.devtools.local.servers import free_ports
from sink.http.metrics_port import MetricsPort
from sink.http.server import WorkerHttp, known_hosts
from sink.runtime.process.http_settings import http_specification
from sink.telemetry.known_hosts import WrongHost
from sink.telemetry.metrics import ProcessMetrics
from tests.http_fleet import StubFacts, settings_in
from tests.http_kit import Client, Reply

OWN_ADDRESS = "192.0.2.7"


@contextmanager
def serving(directory: Path, host: str = "127.0.0.1", **more: object) -> Iterator[Client]:
    [port] = free_ports(1)
    http = WorkerHttp(
        http_specification(settings_in(directory, "127.0.0.1:1", http__listen=f"{host}:{port}", **more)), StubFacts()
    )
    http.start()
    try:
        yield Client("127.0.0.1", port)
    finally:
        http.close()


def ask(client: Client, host: str, path: str = "/liveness", method: str = "GET") -> Reply:
    return client.ask(path, method, {"Host": host})


def test_a_strangers_name_is_refused_on_loopback_at_every_address(tmp_path: Path) -> None:
    with serving(tmp_path, http__token="correct-horse-battery") as client:
        for path in ("/", "/liveness", "/status", "/metrics", "/nowhere"):
            reply = ask(client, f"evil.example:{client.port}", path)
            assert (reply.status, "http.hosts" in reply.body.decode()) == (421, True)
        assert ask(client, "evil.example", "/pause", "POST").status == 421
        assert ask(client, "evil.example", "/liveness", "HEAD").status == 421


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST.", "127.0.0.1:8490", "[::1]:8490", socket.gethostname()],
)
def test_names_of_loopback_and_of_the_worker_are_answered(tmp_path: Path, host: str) -> None:
    with serving(tmp_path) as client:
        assert ask(client, host).status == 200


def test_a_name_in_http_hosts_is_answered(tmp_path: Path) -> None:
    with serving(tmp_path, http__hosts="sinks.example, 203.0.113.9") as client:
        assert ask(client, "Sinks.Example:443").status == 200
        assert ask(client, "203.0.113.9").status == 200
        assert ask(client, "sinks.example.evil.example").status == 421


def test_beyond_loopback_names_are_compared_once_http_hosts_is_set(tmp_path: Path) -> None:
    with serving(tmp_path, "0.0.0.0") as client:
        assert ask(client, "evil.example").status == 200
    with serving(tmp_path, "0.0.0.0", http__hosts="sinks.example") as client:
        assert ask(client, "evil.example").status == 421
        assert ask(client, "sinks.example").status == 200
        # A probe names the address at which it asks.
        assert ask(client, "127.0.0.1").status == 200


@pytest.mark.parametrize("host", ["", "evil.example", "127.0.0.1.evil.example", "[::1", "a:b:c", "\x1b[2J", "127.1"])
def test_a_host_that_is_none_of_them_is_refused_with_the_setting(tmp_path: Path, host: str) -> None:
    hosts = known_hosts(http_specification(settings_in(tmp_path, "127.0.0.1:1", http__listen="127.0.0.1:8490")))
    with pytest.raises(WrongHost, match=r"http\.hosts") as refusal:
        hosts.require(host, OWN_ADDRESS)
    assert "\x1b" not in str(refusal.value)
    hosts.require(OWN_ADDRESS, OWN_ADDRESS)


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("8490", True),
        ("0.0.0.0:1", False),
        ("host:1", False),
        ("none", False),
    ],
)
def test_loopback_is_known_by_its_addresses_and_its_name(tmp_path: Path, listen: str, expected: bool) -> None:
    assert settings_in(tmp_path, "127.0.0.1:1", http__listen=listen).http_is_on_loopback == expected


def test_the_metrics_port_refuses_a_strangers_name() -> None:
    [port] = free_ports(1)
    metrics = MetricsPort(port, ProcessMetrics("w1").text, ["metrics.example"])
    metrics.start()
    try:
        client = Client("127.0.0.1", port)
        for host, status in (("evil.example", 421), ("metrics.example:9", 200), (f"127.0.0.1:{port}", 200)):
            reply = ask(client, host, "/metrics")
            assert (reply.status, b"sink_" in reply.body, b"http.hosts" in reply.body) == (
                status,
                status == 200,
                status == 421,
            )
    finally:
        metrics.close()
