"""`kafka.*` settings under the names of librdkafka or of Java's clients reach librdkafka."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from sink.config.kafka import for_native, for_native_consumer, problems
from sink.telemetry.redaction import HIDDEN, Properties

PASSWORD = 'p"w\\ d;=1'
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="sink" password="p\\"w\\\\ d;=1";'


def native(**settings: str) -> dict[str, str]:
    options = for_native("b:9092", Properties({k.replace("_", "."): v for k, v in settings.items()}))
    AdminClient({**options, "bootstrap.servers": "127.0.0.1:1"})
    return dict(options)


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


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_password_survives_the_way_from_a_login_module(user: str, password: str):
    quoted = ['"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in (user, password)]
    login = (
        f"org.apache.kafka.common.security.plain.PlainLoginModule required username={quoted[0]} password={quoted[1]};"
    )
    options = for_native("b:9092", Properties({"sasl.mechanism": "PLAIN", "sasl.jaas.config": login}))
    assert (options["sasl.username"], options["sasl.password"]) == (user, password)


def test_oauth_credentials_of_a_login_module_are_translated():
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    options = native(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url="https://id/token",
        sasl_jaas_config=f'{module} required clientId="me" clientSecret="s3cret" scope="kafka";',
        sasl_login_callback_handler_class="OAuthBearerLoginCallbackHandler",
    )
    assert options == {
        "bootstrap.servers": "b:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "s3cret",
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.token.endpoint.url": "https://id/token",
    }


def test_kerberos_of_a_login_module_is_translated_and_without_a_keytab_nobody_runs_kinit():
    mechanism = {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}
    module = "com.sun.security.auth.module.Krb5LoginModule required"
    login = f'{module} useKeyTab=true keyTab="/k" principal="sink@R" serviceName="broker";'
    options = for_native("b:9092", Properties({**mechanism, "sasl.jaas.config": login}))
    assert {name: value for name, value in options.items() if name.startswith("sasl.kerberos.")} == {
        "sasl.kerberos.keytab": "/k",
        "sasl.kerberos.principal": "sink@R",
        "sasl.kerberos.service.name": "broker",
    }
    options = for_native("b:9092", Properties({**mechanism, "sasl.jaas.config": f"{module} useTicketCache=true;"}))
    assert options["sasl.kerberos.kinit.cmd"] == "true"


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


def test_librdkafka_gets_only_names_that_it_knows():
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


def test_what_means_nothing_to_librdkafka_is_accepted_and_goes_nowhere():
    assert native(isolation_level="read_committed", max_poll_records="9") == {"bootstrap.servers": "b:9092"}


def test_translated_secrets_stay_hidden():
    login = 'org.x required username="u" password="pl41n-s3cret";'
    options = for_native("b:9092", Properties({"sasl.mechanism": "PLAIN", "sasl.jaas.config": login}))
    assert options["sasl.password"] == "pl41n-s3cret"
    assert "pl41n-s3cret" not in repr(options)
    assert HIDDEN in repr(options)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"sasl.mechanism": "AWS_MSK_IAM", "security.protocol": "SASL_SSL"}, "Java's client only"),
        ({"sasl.mechanism": "PLAIN", "security.protocol": "SASL_SSL"}, "needs credentials for PLAIN"),
        ({"security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism is missing"),
        ({"ssl.keystore.location": "/k.jks"}, "of type JKS is read by Java's client only"),
        ({"ssl.certificate.pem": "x"}, "A client certificate needs both"),
        ({"ssl.keystore.certificate.chain": "x"}, "is set without kafka.ssl.keystore.key. A client certificate needs"),
        ({"ssl.keystore.key": "x"}, "is set without kafka.ssl.keystore.certificate.chain. A client certificate needs"),
        ({"sasl.kerberos.keytab": "/no/such"}, "kafka.sasl.kerberos.keytab names a file that does not exist"),
        ({"securiti.protocol": "SSL"}, "Did you mean kafka.security.protocol?"),
        ({"topic.regexp": "orders-.*"}, "Did you mean kafka.topic.regex?"),
        ({"group.offset": "orders"}, "Did you mean kafka.group.offsets?"),
    ],
)
def test_what_librdkafka_cannot_be_told_is_said(settings: dict[str, str], reason: str):
    assert any(reason in sentence for _, sentence in problems(settings))


def test_settings_of_a_consumer_reach_the_reader_of_records_and_no_other_client():
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


def test_the_login_of_the_other_clients_is_that_of_the_reader_of_records():
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": JAAS}
    kafka_settings = Properties(login)
    consumer = for_native_consumer("b:9092", kafka_settings)
    assert {**for_native("b:9092", kafka_settings)}.items() <= {**consumer}.items()
    assert PASSWORD not in repr(consumer)
