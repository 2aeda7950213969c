"""The port of metrics alone bears whoever asks there, as the worker's page does."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import struct
import threading
from collections.abc import Iterator

import psutil
import pytest

from coordination.errors import ConfigError
from sink.devtools.local.servers import free_ports
from sink.http.bounded_server import MOST_CONNECTIONS
from sink.http.metrics_port import MetricsPort
from tests.http_kit import Client

IDLE = 300


class Texts:
    """Makes a text for each question, and counts them."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> bytes:
        self.made += 1
        return b"sink_epoch 12.0\n"


@pytest.fixture
def texts() -> Texts:
    return Texts()


@pytest.fixture
def client(texts: Texts) -> Iterator[Client]:
    [port] = free_ports(1)
    metrics_port = MetricsPort(port, texts)
    metrics_port.start()
    yield Client("127.0.0.1", port)
    metrics_port.close()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_metrics_are_at_their_address_alone(client: Client) -> None:
    reply = client.ask("/metrics")
    assert (reply.status, reply.body) == (200, b"sink_epoch 12.0\n")
    assert reply.headers["content-type"].startswith("text/plain; version=")
    assert client.ask("/").status == 404
    assert client.ask("/status").status == 404
    assert client.ask("/metrics", "POST").status == 405


def test_idle_connections_take_no_thread_and_a_bounded_number_of_descriptors(client: Client) -> None:
    assert client.ask("/metrics").status == 200
    threads, open_before = threading.active_count(), descriptors()
    with contextlib.ExitStack() as connections:
        for _ in range(IDLE):
            connection = socket.create_connection((client.host, client.port), 10)
            connections.callback(connection.close)
        assert client.ask("/metrics").status == 200
        assert threading.active_count() <= threads + 1
        # This process has the clients' ends, too.
        assert descriptors() - open_before <= IDLE + MOST_CONNECTIONS + 5


def test_many_scrapes_at_once_are_of_one_text(client: Client, texts: Texts) -> None:
    connection = http.client.HTTPConnection(client.host, client.port, timeout=10)
    with contextlib.closing(connection):
        for _ in range(50):
            connection.request("GET", "/metrics")
            assert connection.getresponse().read() == b"sink_epoch 12.0\n"
    assert texts.made <= 3


def test_a_connection_that_is_reset_prints_nothing(client: Client, capfd: pytest.CaptureFixture[str]) -> None:
    for number in range(20):
        connection = socket.create_connection((client.host, client.port), 10)
        if number % 2:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    assert client.ask("/metrics").status == 200
    assert capfd.readouterr() == ("", "")


def test_it_listens_on_loopback_only_and_no_more_once_closed(texts: Texts) -> None:
    [port] = free_ports(1)
    metrics_port = MetricsPort(port, texts)
    metrics_port.start()
    listening = [
        connection.laddr.ip
        for connection in psutil.Process().net_connections("inet")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    ]
    assert listening == ["127.0.0.1"]
    metrics_port.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)


def test_port_0_serves_nothing(texts: Texts) -> None:
    metrics_port = MetricsPort(0, texts)
    threads = threading.active_count()
    metrics_port.start()
    assert threading.active_count() == threads
    metrics_port.close()


def test_a_port_in_use_is_a_config_error_that_names_the_setting(client: Client, texts: Texts) -> None:
    with pytest.raises(ConfigError, match=f"metrics.port: {client.port} cannot be used"):
        MetricsPort(client.port, texts).start()
