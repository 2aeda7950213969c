"""`storage.s3.*` means the same to every library that opens the table, and its secrets are never shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coordination.errors import ConfigError
from sink.clients.spark.storage import class_path, session_options
from sink.config import Settings
from sink.storage.access import access_of, arrow_arguments, hadoop_options, rust_options
from sink.storage.identity import Keys
from tests.unit.settings_kit import minimal_settings

SECRET = "hunter2-Tr0ub4dor"
KEYS = {"storage.s3.access.key": "AKIDEXAMPLE", "storage.s3.secret.key": SECRET}
MINIO = {"storage.s3.endpoint": "http://minio:9000/", **KEYS}


def settings(directory: Path, **options: str) -> Settings:
    return minimal_settings(directory, **{"target.base.path": "s3a://lake/orders", **options})


def test_an_endpoint_and_two_keys_are_enough(tmp_path: Path) -> None:
    access = settings(tmp_path, **MINIO).storage
    assert arrow_arguments("lake", access) == {
        "access_key": "AKIDEXAMPLE",
        "secret_key": SECRET,
        "scheme": "http",
        "endpoint_override": "minio:9000",
        "force_virtual_addressing": False,
    }
    assert rust_options("s3a://lake/orders", access) == {
        "aws_access_key_id": "AKIDEXAMPLE",
        "aws_secret_access_key": SECRET,
        "aws_endpoint": "http://minio:9000",
        "aws_allow_http": "true",
        "aws_virtual_hosted_style_request": "false",
        "aws_region": "us-east-1",
    }
    hadoop = hadoop_options(access)
    assert {
        "spark.hadoop.fs.s3a.endpoint": "http://minio:9000",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.access.key": "AKIDEXAMPLE",
        "spark.hadoop.fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    }.items() <= hadoop.items()


def test_amazon_itself_is_told_the_region_and_the_keys_alone(tmp_path: Path) -> None:
    access = settings(tmp_path, **KEYS, **{"storage.s3.region": "eu-west-1"}).storage
    assert arrow_arguments("lake", access) == {"access_key": "AKIDEXAMPLE", "secret_key": SECRET, "region": "eu-west-1"}
    assert "aws_endpoint" not in rust_options("s3a://lake/orders", access)
    assert "spark.hadoop.fs.s3a.path.style.access" not in hadoop_options(access)


def test_the_environment_fills_in_what_the_settings_leave_open() -> None:
    environment = {
        "AWS_ENDPOINT_URL": "https://store",
        "AWS_REGION": "r1",
        "AWS_ACCESS_KEY_ID": "AKIDENV",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": "token",
    }
    assert arrow_arguments("lake", access_of({}, {}, environment)) == {
        "access_key": "AKIDENV",
        "secret_key": SECRET,
        "session_token": "token",
        "scheme": "https",
        "endpoint_override": "store",
        "region": "r1",
        "force_virtual_addressing": False,
    }
    s3_settings = {"access.key": "AKIDOWN", "secret.key": "own", "endpoint": "http://minio:9000"}
    arguments = arrow_arguments("lake", access_of({}, s3_settings, environment))
    assert (arguments["access_key"], arguments["endpoint_override"]) == ("AKIDOWN", "minio:9000")
    assert "session_token" not in arguments


def test_without_keys_hadoop_asks_the_chain_that_knows_profiles_and_web_identities() -> None:
    provider = hadoop_options(access_of({}))["spark.hadoop.fs.s3a.aws.credentials.provider"]
    assert provider == "com.amazonaws.auth.DefaultAWSCredentialsProviderChain"


def test_secrets_are_known_to_the_logs_and_in_no_text(tmp_path: Path) -> None:
    sink_settings = settings(tmp_path, **MINIO, **{"storage.s3.session.token": "a-token"})
    assert {SECRET, "a-token", "AKIDEXAMPLE"} <= set(sink_settings.secrets)
    shown = repr(sink_settings) + str(sink_settings.model_dump()) + repr(sink_settings.storage)
    assert not [secret for secret in (SECRET, "a-token", "AKIDEXAMPLE") if secret in shown]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"storage.s3.access.key": "AKIDEXAMPLE"}, "storage.s3.access.key is of no use without storage.s3.secret.key"),
        ({"storage.s3.endpoint": "http://minio:9000/lake"}, "is not a server's address"),
        ({"storage.s3.endpoint": "ftp://minio"}, "is not a server's address"),
        ({"storage.s3.endpoint": "https://me:it@minio"}, "carries a login"),
        (
            {"storage.s3.region": "r1", "spark.hadoop.fs.s3a.endpoint.region": "r2"},
            "storage.s3.region is the same setting as spark.hadoop.fs.s3a.endpoint.region. Keep one",
        ),
        (
            {"spark.hadoop.fs.s3a.encryption.algorithm": "SSE-KMS"},
            "encryption.algorithm=SSE-KMS is for Java alone, .* set it as the bucket's default encryption",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, options: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        settings(tmp_path, **options)


def test_a_table_on_a_disk_asks_for_no_jars_and_no_options(tmp_path: Path) -> None:
    sink_settings = settings(tmp_path, **MINIO, **{"target.base.path": "/data/orders"})
    assert session_options(sink_settings.session) == {}
    assert not [jar for jar in class_path(sink_settings.session) if jar.name.startswith("hadoop-aws")]


def test_the_connector_of_google_is_asked_for_where_nobody_has_brought_it(tmp_path: Path) -> None:
    options = {"target.base.path": "gs://lake/orders"}
    with pytest.raises(ConfigError, match=r"gcs-connector .* Name its file in spark\.jars"):
        class_path(settings(tmp_path, **options).session)
    jars = class_path(settings(tmp_path, **options, **{"spark.jars": "/opt/gcs-connector-hadoop3.jar"}).session)
    assert not [jar for jar in jars if "gcs" in jar.name]


def test_keys_that_are_found_are_for_python_alone_and_only_where_the_settings_have_none(tmp_path: Path) -> None:
    found_keys = Keys("AKIAFOUND", "found", "token")
    access = replace(access_of({}, {"endpoint": "http://minio:9000"}), process_keys=found_keys)
    assert arrow_arguments("lake", access)["session_token"] == "token"
    assert rust_options("s3a://lake/t", access)["aws_access_key_id"] == "AKIAFOUND"
    java_options = hadoop_options(access)
    assert "AKIAFOUND" not in java_options.values()
    assert java_options["spark.hadoop.fs.s3a.aws.credentials.provider"].endswith(".DefaultAWSCredentialsProviderChain")
    assert "AKIAFOUND" not in repr(access)
    access_with_keys = replace(access_of({}, {"access.key": "own", "secret.key": "own"}), process_keys=found_keys)
    assert arrow_arguments("lake", access_with_keys)["access_key"] == "own"
    assert settings(tmp_path, **{**MINIO, "target.base.path": "s3a://lake/t"}).storage.process_keys is None
