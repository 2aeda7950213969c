"""One set of `kafka.*` settings serves the Java consumer and librdkafka."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from coordination.errors import ConfigError
from sink.config.kafka import for_java, for_native, for_native_consumer, problems
from sink.telemetry.redaction import HIDDEN, Properties

PASSWORD = 'p"w\\ d;=1'
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="sink" password="p\\"w\\\\ d;=1";'


def java(**settings: str) -> dict[str, str]:
    return dict(for_java("b:9092", Properties({k.replace("_", "."): v for k, v in settings.items()})))


def native(**settings: str) -> dict[str, str]:
    options = for_native("b:9092", Properties({k.replace("_", "."): v for k, v in settings.items()}))
    AdminClient({**options, "bootstrap.servers": "127.0.0.1:1"})
    return dict(options)


def test_a_password_given_for_librdkafka_reaches_java_as_a_login_module():
    kafka_settings = {
        "security_protocol": "sasl_plaintext",
        "sasl_mechanisms": "SCRAM-SHA-512",
        "sasl_username": "sink",
        "sasl_password": PASSWORD,
    }
    assert java(**kafka_settings) == {
        "bootstrap.servers": "b:9092",
        "isolation.level": "read_committed",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": JAAS,
    }


def test_a_login_module_given_for_java_reaches_librdkafka_as_a_password():
    kafka_settings = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_jaas_config": JAAS,
    }
    assert native(**kafka_settings) == {
        "bootstrap.servers": "b:9092",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "sink",
        "sasl.password": PASSWORD,
    }
    assert java(**kafka_settings)["sasl.jaas.config"] == JAAS


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_password_survives_the_way_to_java_and_back(user: str, password: str):
    settings = Properties({"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": password})
    login = for_java("b:9092", settings)["sasl.jaas.config"]
    back = for_native("b:9092", Properties({"sasl.mechanism": "PLAIN", "sasl.jaas.config": login}))
    assert (back["sasl.username"], back["sasl.password"]) == (user, password)


def test_oauth_credentials_are_translated_both_ways():
    kafka_settings = Properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "s3cret",
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.token.endpoint.url": "https://id/token",
        }
    )
    options = for_java("b:9092", kafka_settings)
    assert options["sasl.jaas.config"].endswith('clientId="me" clientSecret="s3cret" scope="kafka";')
    assert options["sasl.login.callback.handler.class"].endswith("OAuthBearerLoginCallbackHandler")
    assert options["sasl.oauthbearer.token.endpoint.url"] == "https://id/token"
    back = for_native("b:9092", Properties({k: v for k, v in options.items() if k != "bootstrap.servers"}))
    assert {k: back[k] for k in kafka_settings if k != "sasl.mechanism"} == {
        k: v for k, v in kafka_settings.items() if k != "sasl.mechanism"
    }


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pem")
    subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=sink -days 2 -keyout {folder}/key.pem"
        f" -out {folder}/ca.pem".split(),
        check=True,
        capture_output=True,
    )
    (folder / "both.pem").write_text((folder / "key.pem").read_text() + (folder / "ca.pem").read_text())
    return folder


def test_pem_files_given_for_librdkafka_become_javas_stores(pem: Path):
    kafka_settings = {
        "security_protocol": "SSL",
        "ssl_ca_location": str(pem / "ca.pem"),
        "ssl_certificate_location": str(pem / "ca.pem"),
        "ssl_key_location": str(pem / "key.pem"),
    }
    options = java(**kafka_settings)
    assert options["ssl.truststore.type"] == options["ssl.keystore.type"] == "PEM"
    assert options["ssl.truststore.location"] == str(pem / "ca.pem")
    assert options["ssl.keystore.key"] == (pem / "key.pem").read_text()
    assert options["ssl.keystore.certificate.chain"] == (pem / "ca.pem").read_text()
    assert not {"ssl.ca.location", "ssl.certificate.location", "ssl.key.location"} & set(options)
    assert native(**kafka_settings)["ssl.key.location"] == str(pem / "key.pem")


def test_javas_pem_stores_become_librdkafkas_files(pem: Path):
    options = native(
        security_protocol="SSL",
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(pem / "ca.pem"),
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(pem / "both.pem"),
    )
    assert options["ssl.ca.location"] == str(pem / "ca.pem")
    assert options["ssl.certificate.location"] == options["ssl.key.location"] == str(pem / "both.pem")
    inline = native(
        security_protocol="SSL",
        ssl_truststore_certificates=(pem / "ca.pem").read_text(),
        ssl_keystore_certificate_chain=(pem / "ca.pem").read_text(),
        ssl_keystore_key=(pem / "key.pem").read_text(),
    )
    assert {"ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"} <= set(inline)


def test_a_key_file_that_vanished_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"kafka\.ssl\.key\.location: .*gone\.pem cannot be read"):
        for_java("b:9092", Properties({"ssl.certificate.pem": "x", "ssl.key.location": f"{tmp_path}/gone.pem"}))


def test_each_client_gets_only_names_that_it_knows():
    settings = {
        "max_poll_records": "10000",
        "max_partition_fetch_bytes": "16777216",
        "group_id": "sink",
        "request_timeout_ms": "30000",
        "debug": "broker",
        "receive_buffer_bytes": "65536",
        "client_id": "sink",
        "ssl_endpoint_identification_algorithm": "",
        "queued_min_messages": "5",
    }
    assert native(**settings) == {
        "bootstrap.servers": "b:9092",
        "debug": "broker",
        "socket.timeout.ms": "30000",
        "socket.receive.buffer.bytes": "65536",
        "client.id": "sink",
        "ssl.endpoint.identification.algorithm": "none",
    }
    options = java(**settings)
    assert "debug" not in options
    assert "queued.min.messages" not in options
    assert options["max.poll.records"] == "10000"
    assert options["group.id"] == "sink"
    assert java(ssl_endpoint_identification_algorithm="none")["ssl.endpoint.identification.algorithm"] == ""


def test_only_committed_records_are_read_whatever_is_written():
    assert java(isolation_level="read_uncommitted")["isolation.level"] == "read_committed"
    assert "isolation.level" not in native(isolation_level="read_uncommitted")


def test_translated_secrets_stay_hidden():
    settings = Properties({"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "pl41n-s3cret"})
    for options in (for_java("b:9092", settings), for_native("b:9092", settings)):
        assert "pl41n-s3cret" not in repr(options)
        assert HIDDEN in repr(options)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"sasl.mechanism": "AWS_MSK_IAM", "security.protocol": "SASL_SSL"}, "Java client only"),
        ({"sasl.mechanism": "PLAIN", "security.protocol": "SASL_SSL"}, "needs credentials for PLAIN"),
        ({"security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism is missing"),
        ({"ssl.keystore.location": "/k.jks"}, "of type JKS is read by the Java client only"),
        ({"ssl.certificate.pem": "x"}, "a client certificate needs both"),
        (
            {"ssl.key.pem": "-----BEGIN RSA PRIVATE KEY-----\n", "ssl.certificate.pem": "x"},
            "openssl pkcs8 -topk8",
        ),
        ({"securiti.protocol": "SSL"}, "did you mean kafka.security.protocol?"),
    ],
)
def test_what_one_client_cannot_be_told_is_said(settings: dict[str, str], reason: str):
    assert any(reason in sentence for _, sentence in problems(settings))


def test_settings_of_either_consumer_reach_the_reader_of_records_and_no_other_client():
    kafka_settings = {
        "max.partition.fetch.bytes": "100000",
        "fetch.max.wait.ms": "50",
        "fetch.max.bytes": "200000",
        "group.id": "ours",
        "fetch.error.backoff.ms": "70",
        "queued.max.messages.kbytes": "4096",
        "client.id": "sink",
        "max.poll.records": "9",
    }
    consumer = dict(for_native_consumer("b:9092", Properties(kafka_settings)))
    assert consumer == {
        "bootstrap.servers": "b:9092",
        "client.id": "sink",
        "fetch.message.max.bytes": "100000",
        "fetch.wait.max.ms": "50",
        "fetch.max.bytes": "200000",
        "group.id": "ours",
        "fetch.error.backoff.ms": "70",
        "queued.max.messages.kbytes": "4096",
    }
    assert dict(for_native("b:9092", Properties(kafka_settings))) == {
        "bootstrap.servers": "b:9092",
        "client.id": "sink",
    }
    assert not {"fetch.error.backoff.ms", "queued.max.messages.kbytes"} & set(
        for_java("b:9092", Properties(kafka_settings))
    )


def test_the_login_of_the_other_clients_is_that_of_the_reader_of_records():
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": JAAS}
    kafka_settings = Properties(login)
    consumer = for_native_consumer("b:9092", kafka_settings)
    assert {**for_native("b:9092", kafka_settings)}.items() <= {**consumer}.items()
    assert PASSWORD not in repr(consumer)
