"""A configuration that leaves something open to others says so, one line each, and names the setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from sink.config import load_configuration
from sink.operations.exposure import exposure_notes

CLOSED = {
    "zookeeper.acl": "creator",
    "zookeeper.digest.username": "sink",
    "zookeeper.digest.password": "${env:ZOOKEEPER_PASSWORD}",
    "kafka.security.protocol": "SSL",
}
ENVIRONMENT = {"ZOOKEEPER_PASSWORD": "correct-horse-battery"}
CERTIFICATE = {"http.tls.cert.file": "cert.pem", "http.tls.key.file": "key.pem"}
TOKEN = {"http.token": "${env:ZOOKEEPER_PASSWORD}"}


def notes(directory: Path, mode: int = 0o600, **more: str) -> list[str]:
    """Returns the settings that the notes begin with."""
    for name in ("cert.pem", "key.pem"):
        (directory / name).write_text("PEM")
        (directory / name).chmod(0o600)
    settings = {
        "zookeeper.connect": "zk:2181",
        "kafka.bootstrap.servers": "k:9092",
        "kafka.topic.names": "t",
        "target.base.path": str(directory / "table"),
        "target.table.name": "t",
        "schema.ddl": "id BIGINT",
        **CLOSED,
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    config = directory / "sink.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    config.chmod(mode)
    found = exposure_notes(load_configuration(config, ENVIRONMENT))
    assert all(note.count("\n") == 0 and note.endswith((".", ")")) for note in found)
    return [note.partition(":")[0] for note in found]


def test_a_closed_configuration_has_no_note(tmp_path: Path) -> None:
    assert notes(tmp_path) == []
    assert notes(tmp_path, http__listen="0.0.0.0:8490", **CERTIFICATE, **TOKEN) == []
    assert notes(tmp_path, http__listen="none", http__token="${env:ZOOKEEPER_PASSWORD}") == []


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"http.listen": "0.0.0.0:8490"}, ["http.listen", "http.listen"]),
        ({"http.listen": "0.0.0.0:8490", **TOKEN}, ["http.listen"]),
        ({"http.listen": "0.0.0.0:8490", **CERTIFICATE}, ["http.listen"]),
        ({"http.listen": "[::1]:8490"}, []),
        ({"http.token": "fifteen-letters"}, ["http.token"]),
        ({"http.token": "sixteen-letters!"}, []),
        ({"zookeeper.acl": "open"}, ["zookeeper.acl"]),
        ({"kafka.security.protocol": "PLAINTEXT"}, ["kafka.security.protocol"]),
        (
            {
                "kafka.security.protocol": "SASL_PLAINTEXT",
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.username": "sink",
                "kafka.sasl.password": "x",
            },
            ["kafka.security.protocol"],
        ),
        (
            {"value.format": "avro-confluent", "schema.registry.url": "http://r:8081,https://r:8082"},
            ["schema.registry.url"],
        ),
        ({"value.format": "avro-confluent", "schema.registry.url": "https://r:8082"}, []),
        ({"spark.master": "spark://h:7077"}, ["spark.authenticate"]),
        ({"spark.master": "yarn"}, ["spark.authenticate"]),
        ({"spark.master": "yarn", "spark.authenticate": "true"}, []),
        ({"spark.master": "local[4]"}, []),
        ({"spark.ui.enabled": "true"}, ["spark.ui.enabled"]),
    ],
)
def test_what_is_open_is_noted_with_its_setting(tmp_path: Path, more: dict[str, str], expected: list[str]) -> None:
    assert notes(tmp_path, **more) == expected


def test_a_file_with_a_secret_that_everybody_reads_is_noted(tmp_path: Path) -> None:
    assert notes(tmp_path, 0o644, http__token="sixteen-letters!") == ["http.token"]
    assert notes(tmp_path, 0o640, http__token="sixteen-letters!") == []
    # Without a secret of its own the file may be read.
    assert notes(tmp_path, 0o644) == []
    secret = tmp_path / "token"
    secret.write_text("sixteen-letters!")
    secret.chmod(0o644)
    assert notes(tmp_path, http__token=f"${{file:{secret}}}") == ["http.token"]
    secret.chmod(0o600)
    assert notes(tmp_path, http__token=f"${{file:{secret}}}") == []


def test_a_private_key_that_everybody_reads_is_noted(tmp_path: Path) -> None:
    notes(tmp_path)
    key = tmp_path / "other.pem"
    key.write_text("PEM")
    key.chmod(0o604)
    more = {**CERTIFICATE, "http.tls.key.file": "other.pem"}
    assert notes(tmp_path, **more) == ["http.tls.key.file"]


SASL_SSL = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "GSSAPI"}
KERBEROS = {**SASL_SSL, "kafka.sasl.kerberos.service.name": "kafka", "kafka.sasl.kerberos.principal": "sink@LAKE"}


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("kafka.ssl.key.location", {"kafka.ssl.certificate.location": "{place}/cert.pem"}),
        ("kafka.ssl.keystore.location", {"kafka.ssl.keystore.type": "PKCS12"}),
        ("kafka.sasl.kerberos.keytab", KERBEROS),
        ("spark.kerberos.keytab", {"spark.kerberos.principal": "sink@LAKE"}),
        ("spark.ssl.keyStore", {}),
    ],
)
def test_a_passed_through_key_file_that_everybody_reads_is_noted(
    tmp_path: Path, name: str, more: dict[str, str]
) -> None:
    key = tmp_path / "secret.key"
    key.write_text("PEM")
    values = {setting: value.replace("{place}", str(tmp_path)) for setting, value in more.items()}
    for mode, expected in ((0o644, [name]), (0o640, [])):
        key.chmod(mode)
        assert notes(tmp_path, **values, **{name: str(key)}) == expected


def test_public_certificates_that_everybody_reads_are_not_noted(tmp_path: Path) -> None:
    notes(tmp_path)
    (tmp_path / "cert.pem").chmod(0o644)
    assert notes(tmp_path, kafka__ssl__ca__location=str(tmp_path / "cert.pem")) == []


def test_a_file_that_has_only_the_paths_of_secrets_may_be_read(tmp_path: Path) -> None:
    notes(tmp_path)
    key = str(tmp_path / "key.pem")
    kafka = {"kafka.ssl.key.location": key, "kafka.ssl.certificate.location": str(tmp_path / "cert.pem")}
    assert notes(tmp_path, 0o644, http__listen="0.0.0.0:8490", **CERTIFICATE, **TOKEN, **kafka) == []


def test_a_directory_of_sinks_notes_the_file_that_has_the_secret(tmp_path: Path) -> None:
    directory = tmp_path / "sinks"
    directory.mkdir()
    shared = {"zookeeper.connect": "zk:2181", "kafka.bootstrap.servers": "k:9092", **CLOSED}
    (directory / "fleet.properties").write_text("".join(f"{name}={value}\n" for name, value in shared.items()))
    for name in ("a", "b"):
        (directory / f"{name}.properties").write_text(
            f"kafka.topic.names={name}\ntarget.base.path=/t/{name}\ntarget.table.name={name}\nschema.ddl=id BIGINT\n"
            + (
                "schema.registry.basic.auth.user.info=x:y\nschema.registry.url=https://r\nvalue.format=avro-confluent\n"
                if name == "b"
                else ""
            )
        )
        (directory / f"{name}.properties").chmod(0o644)
    (note,) = exposure_notes(load_configuration(directory, ENVIRONMENT))
    assert str(directory / "b.properties") in note
