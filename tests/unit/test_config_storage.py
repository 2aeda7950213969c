"""S3 is reached with the settings that Spark is given for it, and none of them is ever shown."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pyarrow import fs

from coordination.errors import ConfigError
from sink.config.values import base_path
from sink.storage.access import Access, access_of, arrow_arguments, hadoop_options, rust_options
from sink.storage.files import open_storage

SECRET = "hunter2-Tr0ub4dor"
KEYS = {"access.key": "AKIDEXAMPLE", "secret.key": SECRET}


def access(**settings: str) -> Access:
    values = KEYS | {name.replace("_", "."): value for name, value in settings.items()}
    return access_of({f"spark.hadoop.fs.s3a.{name}": value for name, value in values.items() if value})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        ({"session_token": "t"}, {"session_token": "t"}),
        ({"endpoint_region": "eu-west-1"}, {"region": "eu-west-1"}),
        (
            {"endpoint": "http://minio:9000/", "path_style_access": "true"},
            {"endpoint_override": "minio:9000", "scheme": "http", "force_virtual_addressing": False},
        ),
        (
            {"endpoint": "minio:9000", "connection_ssl_enabled": "false"},
            {"endpoint_override": "minio:9000", "scheme": "http", "force_virtual_addressing": True},
        ),
        (
            {"endpoint": "s3.eu-central-1.amazonaws.com"},
            {
                "endpoint_override": "s3.eu-central-1.amazonaws.com",
                "region": "eu-central-1",
                "force_virtual_addressing": True,
            },
        ),
        (
            {"endpoint": "https://store", "endpoint_region": "r1", "path_style_access": "TRUE"},
            {"endpoint_override": "store", "scheme": "https", "region": "r1", "force_virtual_addressing": False},
        ),
    ],
)
def test_what_hadoop_is_told_of_s3_is_told_to_arrow(settings: dict[str, str], expected: dict[str, object]):
    keys = {"access_key": "AKIDEXAMPLE", "secret_key": SECRET}
    assert arrow_arguments("lake", access(**settings)) == keys | expected


def test_a_bucket_may_have_settings_of_its_own():
    spark = {
        "spark.hadoop.fs.s3a.endpoint.region": "everywhere",
        "spark.hadoop.fs.s3a.bucket.lake.endpoint.region": "here",
        "spark.driver.memory": "1g",
    }
    assert arrow_arguments("lake", access_of(spark)) == {"region": "here"}
    assert arrow_arguments("other", access_of(spark)) == {"region": "everywhere"}


def test_keys_of_a_bucket_go_without_the_token_of_others():
    bucket = "spark.hadoop.fs.s3a.bucket.lake.dotted."
    variables = {"AWS_ACCESS_KEY_ID": "E", "AWS_SECRET_ACCESS_KEY": "ES", "AWS_SESSION_TOKEN": "ET"}
    own = access_of({f"{bucket}access.key": "K", f"{bucket}secret.key": "S"}, {}, variables)
    assert arrow_arguments("lake.dotted", own) == {"access_key": "K", "secret_key": "S"}
    assert arrow_arguments("other", own) == {"access_key": "E", "secret_key": "ES", "session_token": "ET"}
    assert "aws_session_token" not in rust_options("s3a://lake.dotted/t", own)
    providers = {name: value for name, value in hadoop_options(own).items() if name.endswith("credentials.provider")}
    assert providers == {
        f"{bucket}aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "spark.hadoop.fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    }


def test_no_credentials_is_a_choice_too():
    provider = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    anonymous = access_of({"spark.hadoop.fs.s3a.aws.credentials.provider": provider})
    assert arrow_arguments("lake", anonymous) == {"anonymous": True}


@pytest.mark.parametrize("half", ["access_key", "secret_key"])
def test_half_of_the_credentials_is_refused(half: str):
    with pytest.raises(ConfigError, match=r"is missing. Set access.key and secret.key, or neither.") as refusal:
        arrow_arguments("lake", access(**{half: ""}))
    assert SECRET not in str(refusal.value)


def test_secrets_are_not_shown_and_survive_the_way_to_an_executor():
    s3_access = access(endpoint="minio:9000")
    storage = open_storage("s3a://lake/orders", s3_access)
    assert pickle.loads(pickle.dumps(s3_access)) == s3_access
    assert SECRET not in repr(s3_access) + repr(storage) + str(storage)
    assert pickle.loads(pickle.dumps(storage.files)) == storage.files


@pytest.fixture
def store() -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Yields the address of a server without objects, and its requests: method, path, authorization."""
    requests: list[tuple[str, str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            requests.append((self.command, self.path, self.headers.get("Authorization", "")))
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD = _answer

        def log_message(self, *_ignored: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}", requests
    server.shutdown()
    server.server_close()


def test_a_request_goes_to_the_endpoint_with_sparks_credentials(store):
    address, requests = store
    s3_access = access(
        endpoint=address, path_style_access="true", connection_ssl_enabled="false", endpoint_region="eu-test-1"
    )
    storage = open_storage("s3a://lake/orders of today", s3_access)
    assert isinstance(storage.files, fs.S3FileSystem)
    assert not storage.exists(".hoodie/hoodie.properties")
    method, path, authorization = requests[0]
    assert (method, path) == ("HEAD", "/lake/orders%20of%20today/.hoodie/hoodie.properties")
    assert "Credential=AKIDEXAMPLE/" in authorization
    assert "/eu-test-1/s3/" in authorization


@pytest.mark.parametrize("around", ["", "store.invalid"])
def test_a_request_goes_through_the_proxy_of_the_environment_but_not_to_hosts_that_it_names(
    store, monkeypatch: pytest.MonkeyPatch, around: str
):
    address, requests = store
    monkeypatch.setenv("http_proxy", address)
    monkeypatch.setenv("no_proxy", around)
    s3_access = access(endpoint="http://store.invalid:9000", path_style_access="true")
    if around:
        with pytest.raises(OSError, match="resolve"):
            open_storage("s3a://lake/orders", s3_access).exists("file")
    else:
        assert not open_storage("s3a://lake/orders", s3_access).exists("file")
    assert [path for _, path, _ in requests[:1]] == ([] if around else ["http://store.invalid:9000/lake/orders/file"])


@pytest.mark.parametrize(
    "path", ["S3A://lake//tables/./orders", "s3a://lake/tables//orders/", "s3a://lake/tables/orders"]
)
def test_a_path_in_a_store_is_read_as_hadoop_reads_it(path: str):
    assert base_path(path) == "s3a://lake/tables/orders"


@pytest.mark.parametrize(
    "path", ["s3a://lake", "s3a://lake/", "s3://lake//", "hdfs://nameservice", "hdfs:///", "file:///", "/"]
)
def test_a_table_is_no_whole_bucket_and_no_whole_file_system(path: str):
    with pytest.raises(ValueError, match=r"names a scheme but no place|root of a file system or a bucket"):
        base_path(path)
