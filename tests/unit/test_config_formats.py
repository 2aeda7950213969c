"""Settings of the format of values: combinations that are accepted or refused, and their effect."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from coordination.errors import ConfigError
from sink.config import Settings
from sink.config.record_formats import registry_access, value_format
from sink.write.rows.row_spec import table_schema
from tests.one_sink import load

MINIMAL = {
    "zookeeper.connect": "zk",
    "kafka.bootstrap.servers": "broker:9092",
    "kafka.topic.names": "orders",
    "target.base.path": "/lake/orders",
    "target.table.name": "orders",
}
DDL = {"schema.ddl": "id BIGINT"}
AVRO = json.dumps({"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]})
REGISTRY = {"schema.registry.url": "https://one:8081/, https://two:8081"}

Load = Callable[[dict[str, str]], Settings]


@pytest.fixture
def settings_with(tmp_path: Path) -> Load:
    (tmp_path / "r.avsc").write_text(AVRO)
    (tmp_path / "ca.pem").write_text("a certificate")

    def make(extra: dict[str, str]) -> Settings:
        path = tmp_path / "sink.yaml"
        path.write_text(json.dumps(MINIMAL | extra))
        return load(path, {})

    return make


@pytest.mark.parametrize(
    ("extra", "columns"),
    [
        (DDL, "struct<id:bigint>"),
        ({"value.format": "string"}, "struct<value:string>"),
        ({"value.format": "bytes"}, "struct<value:binary>"),
        ({"value.format": "string", "schema.ddl": "line STRING NOT NULL"}, "struct<line:string>"),
        ({"value.format": "avro", "schema.file": "r.avsc"}, "struct<id:bigint>"),
        ({"value.format": "avro", "value.schema.file": "r.avsc", **DDL}, "struct<id:bigint>"),
        ({"value.format": "avro-confluent", **DDL, **REGISTRY}, "struct<id:bigint>"),
    ],
)
def test_each_format_has_columns_and_a_decoder(settings_with: Load, extra: dict[str, str], columns: str) -> None:
    settings = settings_with(extra)
    schema = table_schema(settings.table, settings.records)
    assert schema.value_struct.simpleString() == columns
    value_format(settings).decoder(schema.value_struct)


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"value.format": "xml", **DDL}, "Use json, json-confluent, avro,"),
        ({"value.format": "avro-confluent", **DDL}, "asks for schema.registry.url"),
        ({**REGISTRY, **DDL}, "value.format=json has no use for schema.registry.url"),
        ({"value.format": "avro", **DDL}, "needs the schema of the values: set value.schema.file"),
        ({"value.format": "protobuf", **DDL}, "needs the schema of the values"),
        (
            {"value.format": "protobuf", "value.schema.file": "r.avsc", **DDL},
            "the name of the message: set value.message",
        ),
        ({"value.message": "a.B", **DDL}, "value.format=json has no use for value.message"),
        ({"value.schema.file": "r.avsc", **DDL}, "value.format=json has no use for value.schema.file"),
        ({"value.format": "avro", "value.schema.file": "none.avsc", **DDL}, "which cannot be read"),
        ({}, "none is set. Set one"),
        ({"value.format": "string", "schema.ddl": "a INT", "schema.file": "r.avsc"}, "schema.file are set. Set one"),
        ({"value.format": "avro-confluent", "schema.registry.url": "ftp://x", **DDL}, "like http://registry-1:8081"),
        (
            {"value.format": "avro-confluent", "schema.registry.url": "http://me:secret@x", **DDL},
            "carries a login. Give it through schema.registry.basic.auth.user.info",
        ),
        (
            {
                "value.format": "avro-confluent",
                "schema.registry.ssl.certificate.location": "ca.pem",
                **REGISTRY,
                **DDL,
            },
            "go together. Set both",
        ),
        ({"value.converter": "io.confluent.connect.avro.AvroConverter", **DDL}, "Use value.format, like avro-"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_sentence(
    settings_with: Load, extra: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        settings_with(extra)
    assert reason in str(refusal.value)
    assert "secret" not in str(refusal.value)


def test_a_registry_is_reached_as_the_settings_say_and_its_login_is_a_secret(
    settings_with: Load, tmp_path: Path
) -> None:
    login = {"schema.registry.basic.auth.user.info": "sink:open-sesame", "schema.registry.ssl.ca.location": "ca.pem"}
    settings = settings_with({"value.format": "avro-confluent", **REGISTRY, **DDL, **login})
    access = registry_access(settings)
    assert access is not None
    assert access.urls == ("https://one:8081", "https://two:8081")
    assert dict(access.properties) == {
        "basic.auth.user.info": "sink:open-sesame",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
    }
    assert "open-sesame" in settings.secrets[-1]
    for shown in (repr(settings), repr(access), repr(value_format(settings))):
        assert "open-sesame" not in shown


def test_workers_have_to_agree_on_the_schema_that_values_are_written_with(settings_with: Load, tmp_path: Path) -> None:
    extra = {"value.format": "avro", "value.schema.file": "r.avsc", **DDL}
    before = settings_with(extra).config_digest
    (tmp_path / "r.avsc").write_text(AVRO.replace("long", "int"))
    settings = load(tmp_path / "sink.yaml", {})
    assert settings.config_digest != before


def test_keys_and_headers_are_columns_of_their_own(settings_with: Load) -> None:
    added = {"key.format": "bytes", "headers.column": "true", "provenance.columns": "false"}
    schema = table_schema(settings_with({**added, **DDL}).table, settings_with({**added, **DDL}).records)
    assert schema.spark.simpleString() == (
        "struct<id:bigint,_kafka_key:binary,_kafka_headers:array<struct<key:string,value:binary>>>"
    )
