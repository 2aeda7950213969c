"""Access to a Schema Registry: final answers, repeated requests, what the client keeps, and no secret in any text."""

from __future__ import annotations

import base64
import logging
import pickle
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
import trustme

from coordination.errors import ConfigError
from sink.decode.fingerprints import fingerprint
from sink.decode.formats import ValueFormat
from sink.decode.registry.client import (
    RegisteredSchema,
    Registry,
    RegistryAccess,
    RegistryUnavailable,
    UnknownSchema,
    registry,
)
from sink.devtools.local.servers import LOOPBACK, free_ports
from sink.schema.table_schema import parse_ddl
from tests.registry_kit import Answer, RegistryRequest, RegistryResponse, StubRegistry

LOGGER = "sink.decode.registry.client"
PASSWORD = "hunter2-Tr0ub4dor"
LOGIN = f"sink:{PASSWORD}"
HEADER = base64.b64encode(LOGIN.encode()).decode()
TEXT = '"long"'
LONG = RegistryResponse(200, {"schema": TEXT})
NO_SCHEMA = RegistryResponse(404, {"error_code": 40403, "message": "Schema not found"})
IMPATIENT = 0.0
PATIENT = 60.0


def always(response: RegistryResponse) -> Answer:
    return lambda _: response


def in_turn(*responses: RegistryResponse) -> Answer:
    """Answers with each response once, and with the last one for ever."""
    remaining = list(responses)
    return lambda _: remaining.pop(0) if len(remaining) > 1 else remaining[0]


def by_path(**responses: RegistryResponse) -> Answer:
    """Answers by path: `schemas_ids_1` is the path /schemas/ids/1."""
    response_by_path = {"/" + name.replace("_", "/"): response for name, response in responses.items()}
    return lambda request: response_by_path[request.path.partition("?")[0]]


def access(*urls: str, patience: float = IMPATIENT, **properties: str) -> RegistryAccess:
    settings = tuple((name.replace("_", "."), value) for name, value in properties.items())
    return RegistryAccess(urls, settings, patience)


class FirstWarning(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.warned = threading.Event()

    def emit(self, _: logging.LogRecord) -> None:
        self.warned.set()


@pytest.fixture
def first_warning() -> Iterator[threading.Event]:
    handler = FirstWarning()
    logging.getLogger(LOGGER).addHandler(handler)
    yield handler.warned
    logging.getLogger(LOGGER).removeHandler(handler)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return str(path)


def server_side(authority: trustme.CA, name: str = LOOPBACK) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


def test_a_schema_that_does_not_fit_the_columns_is_reported_all_the_same() -> None:
    text = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}]}'
    used: dict[str, str] = {}
    with StubRegistry(always(RegistryResponse(200, {"schema": text}))) as stub:
        decoder = ValueFormat("avro-confluent", access=access(stub.url), used=used).decoder(
            parse_ddl("id BIGINT").value_struct
        )
        decoded = decoder.decode(pa.array([b"\0\0\0\0\7\2a"]))
    assert len(decoded.bad) == 1
    assert list(used.values()) == [fingerprint(RegisteredSchema(7, "AVRO", text))]


def test_a_schema_is_what_the_registry_says() -> None:
    with StubRegistry(always(LONG)) as stub:
        assert Registry(access(stub.url)).schema(7) == RegisteredSchema(7, "AVRO", TEXT)
    assert [request.path for request in stub.requests] == ["/schemas/ids/7"]


# Waiting for an answer


def test_a_registry_that_is_down_at_first_is_waited_for(first_warning: threading.Event) -> None:
    port = free_ports(1)[0]
    stub = StubRegistry(always(LONG), port)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(Registry(access(f"http://{LOOPBACK}:{port}", patience=PATIENT)).schema, 7)
        assert first_warning.wait(PATIENT)
        with stub:
            assert asking.result().text == TEXT


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_an_overloaded_server_is_asked_again(status: int) -> None:
    with StubRegistry(in_turn(RegistryResponse(status, {"error_code": 50001}), LONG)) as stub:
        assert Registry(access(stub.url, patience=PATIENT)).schema(7).text == TEXT
    assert len(stub.requests) == 2


@pytest.mark.timeout(25)
def test_a_schema_is_found_by_its_guid_once() -> None:
    guid = "6f0e6a3c-6f0d-4d0b-9c55-0a3a1e0b7c11"
    with StubRegistry(
        lambda request: LONG if guid in request.path else RegistryResponse(404, {"error_code": 40403})
    ) as stub:
        client = Registry(access(stub.url, patience=PATIENT))
        assert [client.schema(guid) for _ in range(2)] == [RegisteredSchema(guid, "AVRO", TEXT)] * 2
        assert stub.count(f"/schemas/guids/{guid}") == 1
        with pytest.raises(UnknownSchema, match="has no schema GUID 00000000"):
            client.schema("00000000-0000-0000-0000-000000000000")


def test_a_server_that_hangs_is_given_up_and_named() -> None:
    released = threading.Event()

    def hang(request: RegistryRequest) -> RegistryResponse:
        released.wait()
        return LONG

    with StubRegistry(hang) as stub:
        with pytest.raises(RegistryUnavailable) as raised:
            Registry(access(stub.url, patience=0.5, timeout="0.2")).schema(7)
        released.set()
    error_text = str(raised.value)
    assert stub.url in error_text
    assert "schema id 7 within 0.5 s" in error_text
    assert "ReadTimeout" in error_text
    assert "The sink asks again with its next attempt" in error_text


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(RegistryResponse(404, "<html>no such page</html>"), id="a proxy's 404"),
        pytest.param(
            RegistryResponse(404, {"error_code": 404, "message": "HTTP 404"}), id="a path that is not a registry's"
        ),
        pytest.param(RegistryResponse(404, {"error_code": 0}), id="another path that is not a registry's"),
        pytest.param(RegistryResponse(200, "<html>welcome</html>"), id="a page"),
        pytest.param(RegistryResponse(200, {}), id="an empty answer"),
        pytest.param(RegistryResponse(200, ["schema"]), id="a list"),
        pytest.param(RegistryResponse(302), id="a redirection"),
        pytest.param(RegistryResponse(400, {"error_code": 400}), id="a bad request"),
    ],
)
def test_an_answer_that_is_not_a_registrys_decides_nothing(response: RegistryResponse) -> None:
    with StubRegistry(always(response)) as stub, pytest.raises(RegistryUnavailable, match="no answer for"):
        Registry(access(stub.url)).schema(7)
    with StubRegistry(in_turn(response, LONG)) as stub:
        assert Registry(access(stub.url, patience=PATIENT)).schema(7).text == TEXT


def test_another_url_is_asked_when_the_first_does_not_answer() -> None:
    nobody = f"http://{LOOPBACK}:{free_ports(1)[0]}"
    with StubRegistry(always(LONG)) as stub:
        assert Registry(access(nobody, stub.url)).schema(7).text == TEXT


def test_each_url_is_named_with_what_it_said() -> None:
    nobody = f"http://{LOOPBACK}:{free_ports(1)[0]}"
    with StubRegistry(always(RegistryResponse(503, "busy"))) as stub, pytest.raises(RegistryUnavailable) as raised:
        Registry(access(nobody, stub.url)).schema(7)
    assert f"{nobody}: ConnectError" in str(raised.value)
    assert f"{stub.url}: HTTP 503" in str(raised.value)


def test_waiting_is_logged_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    busy = RegistryResponse(503, "busy")
    with StubRegistry(in_turn(busy, busy, LONG)) as stub:
        Registry(access(stub.url, patience=PATIENT)).schema(7)
    warnings = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert len(warnings) == 1
    assert stub.url in warnings[0]
    assert "Asking again in" in warnings[0]


# Final answers


@pytest.mark.parametrize("code", [40401, 40402, 40403])
def test_what_a_registry_does_not_have_is_unknown_at_once(code: int) -> None:
    with StubRegistry(always(RegistryResponse(404, {"error_code": code, "message": "not found"}))) as stub:
        client = Registry(access(stub.url, patience=PATIENT))
        with pytest.raises(UnknownSchema, match=f"{stub.url} has no schema id 7"):
            client.schema(7)
        with pytest.raises(UnknownSchema, match="no subject orders-value version latest"):
            client.latest("orders-value")
        with pytest.raises(UnknownSchema, match="no subject orders-value version 3"):
            client.version("orders-value", 3)
    assert len(stub.requests) == 3


@pytest.mark.parametrize("number", [-1, 1 << 31])
def test_what_no_registry_gives_as_an_id_is_not_asked_for(number: int) -> None:
    with StubRegistry(always(LONG)) as stub, pytest.raises(UnknownSchema, match="not an id of a registry"):
        Registry(access(stub.url)).schema(number)
    assert not stub.requests


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_login_is_told_at_once_with_the_setting(status: int) -> None:
    with (
        StubRegistry(always(RegistryResponse(status, {"error_code": status, "message": LOGIN}))) as stub,
        pytest.raises(ConfigError, match=r"schema\.registry\.basic\.auth\.user\.info"),
    ):
        Registry(access(stub.url, patience=PATIENT, basic_auth_user_info=LOGIN)).schema(7)
    assert len(stub.requests) == 1


def test_a_kind_that_nobody_can_decode_is_refused() -> None:
    with (
        StubRegistry(always(RegistryResponse(200, {"schema": "<xs/>", "schemaType": "XSD"}))) as stub,
        pytest.raises(ConfigError, match=r"schema id 7 is of kind XSD\. Only AVRO, JSON, PROTOBUF"),
    ):
        Registry(access(stub.url, patience=PATIENT)).schema(7)


# TLS


def test_a_certificate_of_an_unknown_authority_is_told_at_once(authority: trustme.CA) -> None:
    with (
        StubRegistry(always(LONG), tls=server_side(authority)) as stub,
        pytest.raises(ConfigError, match=r"not trusted \(.*\)\. Check that schema\.registry\.ssl\.ca\.location"),
    ):
        Registry(access(stub.url, patience=PATIENT)).schema(7)


def test_a_certificate_of_the_authority_in_the_settings_is_trusted(authority: trustme.CA, trusted: str) -> None:
    with StubRegistry(always(LONG), tls=server_side(authority)) as stub:
        assert Registry(access(stub.url, ssl_ca_location=trusted)).schema(7).text == TEXT


def test_a_certificate_for_another_host_is_told_at_once(authority: trustme.CA, trusted: str) -> None:
    with (
        StubRegistry(always(LONG), tls=server_side(authority, "elsewhere.example")) as stub,
        pytest.raises(ConfigError, match=f"{LOOPBACK}.*the certificate names this host"),
    ):
        Registry(access(stub.url, patience=PATIENT, ssl_ca_location=trusted)).schema(7)


def test_a_client_certificate_is_shown_to_a_server_that_asks(
    authority: trustme.CA, trusted: str, tmp_path: Path
) -> None:
    context = server_side(authority)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    certificate = authority.issue_cert("sink")
    chain, key = tmp_path / "own.pem", tmp_path / "own.key"
    certificate.cert_chain_pems[0].write_to_path(chain)
    certificate.private_key_pem.write_to_path(key)
    with StubRegistry(always(LONG), tls=context) as stub:
        files = {"ssl_certificate_location": str(chain), "ssl_key_location": str(key)}
        assert Registry(access(stub.url, ssl_ca_location=trusted, **files)).schema(7).text == TEXT
        with pytest.raises(ConfigError, match=r"schema\.registry\.ssl\.certificate\.location"):
            Registry(access(stub.url, patience=PATIENT, ssl_ca_location=trusted)).schema(7)


# Secrets


def with_login_in_settings(url: str, patience: float = IMPATIENT) -> RegistryAccess:
    return access(url, patience=patience, basic_auth_user_info=LOGIN)


def with_login_in_address(url: str, patience: float = IMPATIENT) -> RegistryAccess:
    return access(url.replace("://", f"://{LOGIN}@"), patience=patience)


@pytest.mark.parametrize("access_with_login", [with_login_in_settings, with_login_in_address])
def test_a_login_reaches_the_server_and_nobody_else(
    access_with_login: Callable[..., RegistryAccess], caplog: pytest.LogCaptureFixture
) -> None:
    echo = RegistryResponse(500, {"error_code": 500, "message": f"Basic {HEADER} is {LOGIN}, that is {PASSWORD}"})
    caplog.set_level(logging.DEBUG)
    with StubRegistry(in_turn(echo, LONG)) as stub:
        Registry(access_with_login(stub.url, patience=PATIENT)).schema(7)
    assert {request.headers.get("Authorization") for request in stub.requests} == {f"Basic {HEADER}"}
    assert any(record.name == LOGGER for record in caplog.records)
    with StubRegistry(always(echo)) as stub:
        login_access = access_with_login(stub.url)
        with pytest.raises(RegistryUnavailable) as raised:
            Registry(login_access).schema(7)
    for text in (repr(login_access), str(login_access), str(raised.value), repr(raised.value.__cause__), caplog.text):
        assert PASSWORD not in text
        assert HEADER not in text


def test_what_is_no_secret_is_shown() -> None:
    assert "http://a:1" in repr(access("http://a:1", timeout="3"))
    assert "timeout" in repr(access("http://a:1", timeout="3"))


# The client's memory


def test_access_travels_to_executors() -> None:
    with StubRegistry(always(LONG)) as stub:
        sent_access = with_login_in_settings(stub.url)
        received_access = pickle.loads(pickle.dumps(sent_access))
        assert received_access == sent_access
        assert hash(received_access) == hash(sent_access)
        assert registry(received_access) is registry(sent_access)
        assert registry(received_access) is not registry(access(stub.url))
        schema = registry(received_access).schema(7)
    assert pickle.loads(pickle.dumps(schema)) == schema


def test_an_id_is_asked_for_once_however_many_want_it() -> None:
    threads = 8
    ready = threading.Barrier(threads)

    def request_schema(client: Registry) -> RegisteredSchema:
        ready.wait()
        return client.schema(7)

    with StubRegistry(always(LONG)) as stub, ThreadPoolExecutor(threads) as pool:
        schemas = list(pool.map(request_schema, [Registry(access(stub.url))] * threads))
    assert {schema.text for schema in schemas} == {TEXT}
    assert len(stub.requests) == 1


def test_an_id_that_is_known_needs_no_registry() -> None:
    with StubRegistry(always(LONG)) as stub:
        client = Registry(access(stub.url))
        first = client.schema(7)
    assert client.schema(7) is first


def test_all_who_wait_for_an_id_are_told_of_the_same_failure() -> None:
    arrived, released = threading.Event(), threading.Event()

    def slow(request: RegistryRequest) -> RegistryResponse:
        arrived.set()
        released.wait()
        return NO_SCHEMA

    with StubRegistry(slow) as stub, ThreadPoolExecutor(2) as pool:
        client = Registry(access(stub.url))
        first = pool.submit(client.schema, 7)
        arrived.wait()
        second = pool.submit(client.schema, 7)
        released.set()
        for asking in (first, second):
            with pytest.raises(UnknownSchema):
                asking.result()


def test_that_an_id_is_unknown_is_kept_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    with StubRegistry(in_turn(NO_SCHEMA, LONG)) as stub:
        client = Registry(access(stub.url))
        for _ in range(2):
            with pytest.raises(UnknownSchema, match="has no schema id 7"):
                client.schema(7)
        assert len(stub.requests) == 1
        monkeypatch.setattr("sink.decode.registry.unknown_ids.SECONDS", 0.0)
        assert client.schema(7).text == TEXT


def test_the_latest_version_is_asked_for_each_time() -> None:
    ids = in_turn(*(RegistryResponse(200, {"id": number, "version": number, "schema": TEXT}) for number in (1, 2)))
    with StubRegistry(lambda request: ids(request) if "subjects" in request.path else LONG) as stub:
        client = Registry(access(stub.url))
        assert [client.latest("orders").id, client.latest("orders").id] == [1, 2]


# References

MONEY = RegistryResponse(200, {"schema": '"string"', "schemaType": "JSON"})


def referring(*references: tuple[str, str, int]) -> RegistryResponse:
    listed = [{"name": name, "subject": subject, "version": version} for name, subject, version in references]
    return RegistryResponse(200, {"schema": TEXT, "schemaType": "JSON", "references": listed})


def test_references_come_resolved_by_the_name_that_the_referrer_uses() -> None:
    answers = by_path(
        schemas_ids_3=referring(("prices.json", "price", 1), ("money.json", "money", 4)),
        subjects_price_versions_1=RegistryResponse(200, {"id": 2, "schema": TEXT}),
        schemas_ids_2=referring(("m.json", "money", 4)),
        subjects_money_versions_4=RegistryResponse(200, {"id": 1, "schema": '"string"'}),
        schemas_ids_1=MONEY,
    )
    with StubRegistry(answers) as stub:
        schema = Registry(access(stub.url)).schema(3)
    money = RegisteredSchema(1, "JSON", '"string"')
    price = RegisteredSchema(2, "JSON", TEXT, (("m.json", money),))
    assert schema == RegisteredSchema(3, "JSON", TEXT, (("prices.json", price), ("money.json", money)))
    assert stub.count("/schemas/ids/1") == 1
    assert all("deleted=true" in request.path for request in stub.requests if "subjects" in request.path)


def test_a_schema_that_refers_to_itself_is_an_error_not_a_wait() -> None:
    answers = by_path(
        schemas_ids_3=referring(("a", "a", 1)), subjects_a_versions_1=RegistryResponse(200, {"id": 3, "schema": TEXT})
    )
    with StubRegistry(answers) as stub, pytest.raises(ConfigError, match="refers to itself"):
        Registry(access(stub.url)).schema(3)


def test_protobuf_comes_as_a_descriptor_from_a_registry_that_can() -> None:
    def answer(request: RegistryRequest) -> RegistryResponse:
        text = "CgNhLnA=" if "format=serialized" in request.path else 'syntax = "proto3";'
        return RegistryResponse(200, {"schema": text, "schemaType": "PROTOBUF"})

    with StubRegistry(answer) as stub:
        assert Registry(access(stub.url)).schema(3) == RegisteredSchema(3, "PROTOBUF", "CgNhLnA=")


# Settings


@pytest.mark.parametrize(
    ("unusable", "reason"),
    [
        (access(), "Name at least one"),
        (access("registry:8081"), "not an http"),
        (access("http://"), "not an http"),
        (access("http://a:1", basic_auth_user_inf="a:b"), "basic.auth.user.inf"),
        (access("http://a:1", basic_auth_user_info="nocolon"), "username"),
        (access("http://a:b@a:1", basic_auth_user_info="a:b"), "Keep one of them"),
        (access("http://a:1", ssl_ca_location="/nowhere/ca.pem"), "/nowhere/ca.pem does not exist"),
        (access("https://a:1", ssl_ca_location=__file__), "Correct its settings"),
        (access("http://a:1", timeout="soon"), "schema.registry.timeout"),
        (access("http://a:1", max_retries="9"), "schema.registry.max.retries: the sink sets"),
        (access("http://a:1", basic_auth_credentials_source="SASL_INHERIT"), "basic.auth.credentials.source"),
    ],
)
def test_settings_that_cannot_be_used_are_named(unusable: RegistryAccess, reason: str) -> None:
    with pytest.raises(ConfigError) as raised:
        registry(unusable)
    assert reason in str(raised.value)


def test_where_the_login_is_may_be_said_as_java_clients_want_it() -> None:
    with StubRegistry(always(LONG)) as stub:
        login_access = access(stub.url, basic_auth_credentials_source="USER_INFO", basic_auth_user_info=LOGIN)
        assert Registry(login_access).schema(7).text == TEXT
    assert stub.requests[0].headers["Authorization"] == f"Basic {HEADER}"
