"""The server answers by status code, lets only the token change something, and survives any request."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordination.errors import ConfigError, Conflict, Unavailable
from sink.config import Settings
from sink.devtools.local.servers import free_ports
from sink.http.bounded_server import CLIENT_SECONDS, MOST_CONNECTIONS, Connections
from sink.http.server import WorkerHttp
from sink.operations.control import NoSuchWorker
from sink.runtime.process.http_settings import http_specification
from tests.http_fleet import StubFacts, StubLog, hosted_sink, settings_in
from tests.http_kit import Client

TOKEN = "correct-horse-battery"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class NoClient:
    """A session of ZooKeeper that has no connection."""

    connected = False

    def add_listener(self, _listener: Any) -> None: ...
    def remove_listener(self, _listener: Any) -> None: ...


@dataclass
class Served:
    http: WorkerHttp
    facts: StubFacts
    client: Client
    settings: Settings

    def hosts(self, *names: str) -> None:
        for name in names:
            hosted = self.settings.model_copy(update={"name": name})
            self.facts.sinks.append(hosted_sink(hosted, NoClient(), StubLog()))


def serve(directory: Path, **more: object) -> Served:
    [port] = free_ports(1)
    facts = StubFacts()
    given_settings = settings_in(directory, "127.0.0.1:1", http__listen=port, **more)
    http_server = WorkerHttp(http_specification(given_settings), facts)
    http_server.start()
    return Served(http_server, facts, Client("127.0.0.1", port), given_settings)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    server = serve(tmp_path, http__token=TOKEN)
    yield server
    server.http.close()


@pytest.fixture(scope="module")
def strong(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server for the requests of strangers."""
    server = serve(tmp_path_factory.mktemp("http"), http__token=TOKEN)
    yield server
    server.http.close()


def test_liveness_and_readiness_are_what_the_process_says_of_itself(served: Served) -> None:
    assert served.client.ask("/liveness").status == 200
    assert served.client.ask("/readiness").status == 200
    served.facts.not_alive = ("the JVM has not answered for 7 s",)
    served.facts.not_ready = ("it drains",)
    answer = served.client.ask("/liveness")
    assert (answer.status, answer.json["reasons"]) == (503, ["the JVM has not answered for 7 s"])
    assert served.client.ask("/readiness").json["reasons"] == ["it drains"]


def test_the_coordinator_is_asked_of_one_sink_or_of_any(served: Served) -> None:
    served.hosts("clicks", "orders")
    assert served.client.ask("/coordinator").status == 503
    served.facts.sinks[1] = replace(served.facts.sinks[1], leads=True)
    assert served.client.ask("/coordinator").status == 200
    assert served.client.ask("/coordinator?sink=orders").status == 200
    assert served.client.ask("/coordinator?sink=clicks").status == 503
    unknown = served.client.ask("/coordinator?sink=nowhere")
    assert (unknown.status, unknown.json["error"]) == (
        404,
        "this worker hosts no sink 'nowhere'. It hosts: clicks, orders.",
    )


def test_a_worker_without_zookeeper_is_alive_and_its_fleet_is_not_known_to_be_healthy(served: Served) -> None:
    served.hosts("orders")
    assert served.client.ask("/liveness").status == 200
    answer = served.client.ask("/health")
    assert answer.status == 503
    assert [reason["kind"] for reason in answer.json["reasons"]] == ["zookeeper"]


def test_a_sink_that_the_configuration_cannot_make_is_told_of_beside_the_others(served: Served) -> None:
    served.hosts("orders")
    served.facts.misconfigured = {"people": "people.yaml, line 3: flush.size ('many') is not a number"}
    health = served.client.ask("/health")
    people = health.json["sinks"]["people"]
    assert (health.status, people["healthy"], people["reasons"][0]["kind"]) == (503, False, "refused")
    assert "people.yaml, line 3" in people["reasons"][0]["text"]
    assert served.client.ask("/health?sink=people").status == 503
    lines = {line["sink"]: line for line in served.client.ask("/overview").json["sinks"]}
    assert (sorted(lines), lines["people"]["state"]) == (["orders", "people"], "refused")
    (status,) = served.client.ask("/status?sink=people").json["sinks"]
    assert (status["sink"], status["health"]["healthy"]) == ("people", False)
    assert served.client.ask("/history?sink=people").json["sinks"] == {"people": []}


def test_metrics_are_those_of_the_process_and_are_made_once_a_second(served: Served) -> None:
    texts: list[bytes] = []

    def text() -> bytes:
        texts.append(b"# TYPE sink_lag gauge\nsink_lag 3\n")
        return texts[-1]

    served.facts.metrics_text = text
    answers = [served.client.ask("/metrics") for _ in range(5)]
    assert {answer.body for answer in answers} == {b"# TYPE sink_lag gauge\nsink_lag 3\n"}
    assert answers[0].headers["content-type"].startswith("text/plain")
    assert len(texts) <= 2


def test_only_the_token_changes_something(served: Served) -> None:
    paused: list[tuple[str, str]] = []
    served.facts.verbs = {"pause": lambda sink, _client, worker: paused.append((sink.name, worker))}
    served.hosts("clicks", "orders")
    ask = served.client.ask
    assert ask("/pause", "POST").status == 401
    assert ask("/pause", "POST").headers["www-authenticate"] == "Bearer"
    for wrong in ("Bearer x", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer \xe9"):
        assert ask("/pause", "POST", {"Authorization": wrong}).status == 403
    assert ask("/pause", "POST", {"Authorization": f"Basic {TOKEN}"}).status == 401
    assert ask("/pause", "GET", BEARER).status == 405
    assert paused == []
    assert ask("/pause?sink=orders", "POST", BEARER).status == 200
    assert paused == [("orders", "")]
    assert ask("/pause", "POST", BEARER).json["done"] == {"clicks": None, "orders": None}
    assert ask("/resume", "POST", BEARER).status == 404
    assert ask("/pause?sink=nowhere", "POST", BEARER).status == 404


def test_without_a_token_in_the_settings_nobody_changes_anything(tmp_path: Path) -> None:
    server = serve(tmp_path)
    server.facts.verbs = {"pause": lambda *_: None}
    server.hosts("orders")
    try:
        for headers in ({}, BEARER, {"Authorization": "Bearer "}, {"Authorization": "Bearer None"}):
            answer = server.client.ask("/pause", "POST", headers)
            assert answer.status == 403
            assert "http.token" in answer.json["error"]
    finally:
        server.http.close()


def test_a_verb_that_fails_says_why_by_status_and_sentence(served: Served) -> None:
    served.hosts("orders")

    def refuse(error: Exception) -> Any:
        def verb(*_: Any) -> None:
            raise error

        return verb

    for error, status in ((Unavailable("away"), 503), (ConfigError("wrong"), 400), (Conflict("late"), 409)):
        served.facts.verbs = {"flush": refuse(error)}
        answer = served.client.ask("/flush", "POST", BEARER)
        assert (answer.status, answer.json["failed"]) == (status, {"orders": str(error)})
    assert served.client.ask("/drain", "POST", BEARER).status == 404
    served.facts.verbs = {"drain": lambda _settings, _client, worker: worker}
    assert served.client.ask("/drain", "POST", BEARER).status == 400
    assert served.client.ask("/drain?worker=w2", "POST", BEARER).json["done"] == {"orders": "w2"}


def test_a_worker_that_drains_need_not_take_part_in_every_sink_but_in_one(served: Served) -> None:
    served.hosts("clicks", "orders", "payments")

    def drain(settings: Settings, _client: Any, worker: str) -> str:
        if (settings.name, worker) != ("orders", "w2"):
            raise NoSuchWorker(f"sink {settings.name} has no live worker {worker!r}")
        return "asked for"

    served.facts.verbs = {"drain": drain}
    answer = served.client.ask("/drain?worker=w2", "POST", BEARER)
    assert (answer.status, answer.json["done"]) == (200, {"orders": "asked for"})
    assert sorted(answer.json["failed"]) == ["clicks", "payments"]
    assert served.client.ask("/drain?worker=w3", "POST", BEARER).status == 400
    assert served.client.ask("/drain?worker=w2&sink=clicks", "POST", BEARER).status == 400


def test_an_address_that_is_taken_is_refused_if_it_was_asked_for_and_left_out_if_not(tmp_path: Path) -> None:
    server = serve(tmp_path / "first")
    with pytest.raises(ConfigError, match=rf"http.listen 127.0.0.1:{server.client.port} cannot be used"):
        WorkerHttp(http_specification(server.settings), StubFacts()).start()
    usual = settings_in(tmp_path / "second", "127.0.0.1:1").model_copy(
        update={"http_listen": server.settings.http_listen}
    )
    # The address is not set, as with the default.
    object.__setattr__(usual, "__pydantic_fields_set__", usual.model_fields_set - {"http_listen"})
    second = WorkerHttp(http_specification(usual), StubFacts())
    second.start()
    second.close()
    assert server.client.ask("/liveness").status == 200
    server.http.close()


def test_nothing_listens_where_nothing_is_to_be_served(tmp_path: Path) -> None:
    quiet = settings_in(tmp_path, "127.0.0.1:1", http__listen="none")
    http_server = WorkerHttp(http_specification(quiet), StubFacts())
    before = threading.active_count()
    http_server.start()
    assert threading.active_count() == before
    http_server.close()


def test_with_a_certificate_only_tls_is_served(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    (tmp_path / "key.pem").write_bytes(certificate.private_key_pem.bytes())
    (tmp_path / "cert.pem").write_bytes(b"".join(part.bytes() for part in certificate.cert_chain_pems))
    server = serve(tmp_path, http__tls__cert__file=tmp_path / "cert.pem", http__tls__key__file=tmp_path / "key.pem")
    try:
        trusting = ssl.create_default_context()
        authority.configure_trust(trusting)
        assert Client("127.0.0.1", server.client.port, trusting).ask("/liveness").status == 200
        with pytest.raises((OSError, http.client.HTTPException)):
            server.client.ask("/liveness")
    finally:
        server.http.close()


def test_a_certificate_without_its_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("no certificate")
    (tmp_path / "key.pem").write_text("no key")
    with pytest.raises(ConfigError, match=r"http\.tls"):
        serve(tmp_path, http__tls__cert__file=tmp_path / "cert.pem", http__tls__key__file=tmp_path / "key.pem")
    with pytest.raises(ConfigError, match=r"http\.tls\.cert\.file and http\.tls\.key\.file go together"):
        settings_in(tmp_path, "127.0.0.1:1", http__tls__cert__file=tmp_path / "cert.pem")


def test_the_page_comes_with_a_policy_that_lets_nothing_else_in(served: Served) -> None:
    answer = served.client.ask("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "server" not in answer.headers


def test_what_is_not_there_is_404_and_another_method_405(served: Served) -> None:
    assert served.client.ask("/nothing").status == 404
    assert served.client.ask("/../etc/passwd").status == 404
    assert served.client.ask("/liveness", "POST").status == 405
    assert served.client.ask("/liveness", "DELETE").status == 405
    assert served.client.ask("/liveness", "HEAD").status == 200


# Requests of strangers


def send(client: Client, data: bytes) -> bytes:
    """Returns the answer, or empty bytes if there was none."""
    with contextlib.suppress(OSError), socket.create_connection((client.host, client.port), 10) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return connection.recv(4096)
    return b""


def assert_well(served: Served) -> None:
    """Asserts an answer long before a client's time is over, on a machine that has other work, too."""
    began = time.monotonic()
    assert served.client.ask("/liveness").status == 200
    assert time.monotonic() - began < CLIENT_SECONDS / 2


METHODS = st.sampled_from([b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS", b"CONNECT", b"get", b""])
PATHS = st.one_of(
    st.sampled_from([b"/", b"/status", b"/health?sink=", b"/pause", b"/drain?worker=", b"/table?sink=x", b"*", b"//"]),
    st.binary(max_size=60),
)
HEADERS = st.lists(
    st.one_of(
        st.binary(max_size=80),
        st.sampled_from(
            [
                b"Content-Length: -1", b"Content-Length: 99999999999999999999", b"Content-Length: 5",
                b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"Host: \x00", b"Host: a:b:c",
                b"Connection: keep-alive", b"Expect: 100-continue", b"Authorization: Bearer \xff", b" folded: line",
                b"Accept-Encoding: gzip", b"Range: bytes=0-", b"Cookie: \xff=\xfe", b"Upgrade: websocket",
            ]
        ),
    ),
    max_size=6,
)  # fmt: skip


@settings(
    max_examples=3 * settings.default.max_examples,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(method=METHODS, path=PATHS, headers=HEADERS, body=st.binary(max_size=200), cut=st.integers(0, 400))
def test_no_request_however_broken_stops_the_server(
    strong: Served, method: bytes, path: bytes, headers: list[bytes], body: bytes, cut: int
) -> None:
    request = b" ".join((method, path, b"HTTP/1.1")) + b"\r\n" + b"".join(line + b"\r\n" for line in headers)
    answer = send(strong.client, (request + b"\r\n" + body)[: cut or None])
    assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
    assert not answer.startswith(b"HTTP/1.1 500")


@settings(
    max_examples=2 * settings.default.max_examples,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.binary(max_size=2000))
def test_no_bytes_stop_the_server(strong: Served, data: bytes) -> None:
    send(strong.client, data)
    assert strong.client.ask("/liveness").status == 200


def test_headers_and_bodies_that_are_too_large_are_refused(strong: Served) -> None:
    send(strong.client, b"GET / HTTP/1.1\r\n" + b"a: " + b"x" * 1_000_000)
    head = b"POST /pause HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n"
    answer = send(strong.client, head + b"x" * 100_000)
    assert not answer.startswith(b"HTTP/1.1 2")
    assert_well(strong)


def test_clients_that_say_nothing_or_little_make_room_for_those_who_ask(strong: Served) -> None:
    with contextlib.ExitStack() as connections:
        for number in range(3 * MOST_CONNECTIONS):
            connection = socket.create_connection((strong.client.host, strong.client.port), 10)
            connections.callback(connection.close)
            if number % 2:
                connection.sendall(b"GET /status HTTP/1.1\r\nHost: x\r\nA")
        assert_well(strong)


def test_clients_that_take_no_answer_make_room_for_those_who_do(strong: Served) -> None:
    with contextlib.ExitStack() as connections:
        for _ in range(2 * MOST_CONNECTIONS):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            connection.connect((strong.client.host, strong.client.port))
            connections.callback(connection.close)
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        assert_well(strong)


def test_in_a_flood_others_are_answered_within_half_a_clients_time(strong: Served) -> None:
    ended = threading.Event()
    address = strong.client.host, strong.client.port

    def flood() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError), socket.create_connection(address, 5) as connection:
                connection.sendall(b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
                connection.settimeout(0.2)
                while connection.recv(65536) and not ended.is_set():
                    pass

    threads = [threading.Thread(target=flood, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            assert_well(strong)
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_the_server_sleeps_when_it_has_taken_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, used, slept = [0.0], [0.0], list[float]()
    monkeypatch.setattr("sink.http.bounded_server.time.monotonic", lambda: wall[0])
    monkeypatch.setattr("sink.http.bounded_server.time.thread_time", lambda: used[0])
    monkeypatch.setattr("sink.http.bounded_server.time.sleep", slept.append)
    limits = Connections()
    used[0], wall[0] = 0.4, 0.4
    limits.throttle()
    assert slept == []
    used[0], wall[0] = 1.4, 1.4
    limits.throttle()
    assert slept == [0.1]
