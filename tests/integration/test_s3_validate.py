"""`sink validate` tries a worker's operations in the store and reports a problem in one sentence.

A worker reports the same sentence, and ends if the problem does not go away by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import boto3
import pytest

from sink.operations.check_results import CheckResult
from sink.operations.validation import validate
from tests.integration.conftest import PARTITIONS, MakeFleet
from tests.integration.table_kit import table_settings
from tests.storage.s3_proxy import S3Proxy
from tests.storage.s3_server import MinioServer, MotoServer, Store, minio
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

REGION = "eu-west-1"
RECORDS = 30


def a_user(server: MotoServer, name: str, *actions: str) -> Store:
    """Creates a user who may perform these actions only. Returns the store with the user's keys."""
    connection = {"endpoint_url": server.url, "region_name": "us-east-1", "aws_access_key_id": "any"}
    iam = boto3.client("iam", aws_secret_access_key="any", **connection)
    iam.create_user(UserName=name)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_user_policy(UserName=name, PolicyName="all", PolicyDocument=policy)
    return Store(server.url, key["AccessKeyId"], key["SecretAccessKey"])


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Store]]:
    """Keys of two users, one who may write and one who may only read, at a store that checks signatures and policies.

    The store's first requests, which make the users, need no keys.
    """
    with MotoServer(tmp_path_factory.mktemp("strict"), free_requests=6) as server:
        yield a_user(server, "sink", "s3:*"), a_user(server, "reader", "s3:Get*", "s3:List*", "s3:Head*")


@pytest.fixture(scope="module")
def strict(users: tuple[Store, Store]) -> Store:
    return users[0]


@pytest.fixture(scope="module")
def reader(users: tuple[Store, Store]) -> Store:
    return users[1]


@pytest.fixture
def bucket(strict: Store) -> str:
    return strict.make_bucket()


class Servers(NamedTuple):
    """The other servers of `sink validate`, which waits ten seconds for a server that is away."""

    zookeeper: str
    kafka: str


@pytest.fixture
def servers(zookeeper, kafka) -> Servers:
    return Servers(zookeeper.address, kafka.address)


def storage_results(store: Store, bucket: str, directory: Path, servers: Servers, **more: str) -> list[CheckResult]:
    store_settings = {
        "kafka.bootstrap.servers": servers.kafka,
        "target.base.path": f"s3a://{bucket}/t",
        **store.settings,
    }
    sink_settings = table_settings(directory / "s3", servers.zookeeper, **{**store_settings, **more})
    return [result for result in validate(sink_settings) if result.part in ("storage", "table")]


def test_a_store_that_works_is_asked_by_all_three_and_left_as_it_was(
    s3: Store, servers: Servers, tmp_path: Path
) -> None:
    bucket = s3.make_bucket()
    results = storage_results(s3, bucket, tmp_path, servers)
    assert results[0].sentence == f"s3a://{bucket}/t can be reached by pyarrow, hudi-rs, Java"
    assert not [result for result in results if result.wrong]
    assert s3.keys(bucket) == []


def test_a_store_that_checks_signatures_is_reached_by_all_three(
    strict: Store, bucket: str, servers: Servers, tmp_path: Path
) -> None:
    results = storage_results(strict, bucket, tmp_path, servers)
    assert results[0].sentence == f"s3a://{bucket}/t can be reached by pyarrow, hudi-rs, Java"


@dataclass(frozen=True)
class Case:
    """A sentence with `{url}` and `{bucket}` of the store, and the settings that lead to it."""

    sentence: str
    more: Mapping[str, str] = field(default_factory=dict)
    lasts: bool = True


CASES: Mapping[str, Case] = {
    "wrong key": Case(
        "storage.s3.access.key: the store at {url} does not know the key. Correct it.",
        {"storage.s3.access.key": "AKIANOBODY"},
    ),
    "wrong secret": Case(
        "target.base.path: the store at {url} says that storage.s3.secret.key does not match the access key. Correct"
        " it.",
        {"storage.s3.secret.key": "another"},
    ),
    "no bucket": Case(
        "target.base.path: there is no bucket no-such-bucket at {url}. Create it, or correct the name.",
        {"target.base.path": "s3a://no-such-bucket/t"},
    ),
    "no server": Case(
        "storage.s3.endpoint: http://127.0.0.1:9 does not answer. Start it, or correct the address.",
        {"storage.s3.endpoint": "http://127.0.0.1:9"},
        lasts=False,
    ),
    "no jar": Case(
        "target.base.path: Java has no file system for s3a://. Remove the file system's jars from spark.jars",
        {"spark.jars": "/nowhere/hadoop-aws-3.3.4.jar"},
    ),
    "no directory": Case(
        "target.base.path: /etc/hostname is not a directory. Name another one.",
        {"target.base.path": "/etc/hostname/t"},
    ),
}
"""Cases with the keys of a user who may write."""


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_wrong_is_one_sentence_without_a_secret(
    strict: Store, bucket: str, servers: Servers, tmp_path: Path, case: Case
) -> None:
    assert_validate_reports(strict, bucket, servers, tmp_path, case)
    assert not [key for key in strict.keys(bucket) if not key.endswith("/")]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_worker_says_the_same_and_ends_with_status_2_where_nothing_gets_better_by_itself(
    make_fleet: MakeFleet, strict: Store, bucket: str, case: Case
) -> None:
    assert_worker_reports(make_fleet, strict, bucket, case)


READ_ONLY = Case(
    "target.base.path: the key has no right to do this below s3a://{bucket}/t. Grant it to list the bucket, and to get,"
    " put and delete objects there."
)


def test_a_key_that_may_only_read_is_told(
    make_fleet: MakeFleet, reader: Store, bucket: str, servers: Servers, tmp_path: Path
) -> None:
    assert_validate_reports(reader, bucket, servers, tmp_path, READ_ONLY)
    assert_worker_reports(make_fleet, reader, bucket, READ_ONLY)


UNTRUSTED = Case(
    "storage.s3.endpoint: the certificate of {url} is not trusted here. Add its issuer to the host's (and Java's)"
    " certificates."
)


def test_a_certificate_that_nobody_trusts_is_told(make_fleet: MakeFleet, servers: Servers, tmp_path: Path) -> None:
    with MotoServer(tmp_path / "tls", tls=True) as server:
        store = Store(server.url)
        assert_validate_reports(store, "lake", servers, tmp_path, UNTRUSTED)
        assert_worker_reports(make_fleet, store, "lake", UNTRUSTED)


ELSEWHERE = Case("storage.s3.region: the bucket {bucket} is in another region, " + REGION + ". Correct it.")


@pytest.mark.skipif(minio() is None, reason="no MinIO here: TEST_MINIO=/path/to/minio make test")
def test_a_region_that_is_not_the_buckets_is_told(make_fleet: MakeFleet, servers: Servers, tmp_path: Path) -> None:
    with MinioServer(tmp_path / "minio", minio() or "", REGION) as server:
        store = Store(server.url, region=REGION)
        bucket = store.make_bucket()
        right_region = {"storage.s3.region": REGION}
        results = storage_results(store, bucket, tmp_path, servers, **right_region)
        assert results[0].sentence == f"s3a://{bucket}/t can be reached by pyarrow, hudi-rs, Java"
        wrong_region = Case(ELSEWHERE.sentence, {"storage.s3.region": "ap-south-1"})
        assert_validate_reports(store, bucket, servers, tmp_path, wrong_region)
        assert_worker_reports(make_fleet, store, bucket, wrong_region)


NO_TRAILERS = Case(
    "target.base.path: {url} does not support checksums after an object's data. Unset AWS_REQUEST_CHECKSUM_CALCULATION."
)


def test_a_store_without_trailing_checksums_is_written_to_and_told_where_they_are_asked_for(
    make_fleet: MakeFleet, s3: Store, servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with S3Proxy(tmp_path / "proxy", s3.url) as proxy:
        proxy.miss("trailers")
        store, bucket = Store(proxy.url, s3.access_key, s3.secret_key), s3.make_bucket()
        fleet = make_fleet(RECORDS, **store.settings, **{"target.base.path": f"s3a://{bucket}/t"})
        fleet.start("w1")
        fleet.wait_landed(dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS))
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_supported")
        empty_bucket = s3.make_bucket()
        assert_validate_reports(store, empty_bucket, servers, tmp_path, NO_TRAILERS)


def assert_validate_reports(store: Store, bucket: str, servers: Servers, directory: Path, case: Case) -> None:
    (problem,) = [result for result in storage_results(store, bucket, directory, servers, **case.more) if result.wrong]
    assert case.sentence.format(url=store.url, bucket=bucket) in problem.sentence
    assert store.secret_key not in problem.sentence


def assert_worker_reports(make_fleet: MakeFleet, store: Store, bucket: str, case: Case) -> None:
    fleet = make_fleet(RECORDS, **{**store.settings, "target.base.path": f"s3a://{bucket}/t", **case.more})
    worker, sentence = fleet.start("w1"), case.sentence.format(url=store.url, bucket=bucket)
    eventually("the worker reports the problem", lambda: sentence in fleet.log("w1"), 120, lambda: fleet.log("w1"))
    if case.lasts:
        assert worker.wait(120) == 2
    else:
        assert count_lines(fleet.log("w1"), sentence) == 1
        assert worker.running
        worker.terminate()
        assert worker.wait(120) == 0
    assert count_lines(fleet.log("w1"), sentence) == 1
    assert store.secret_key not in fleet.log("w1")


def count_lines(log: str, sentence: str) -> int:
    """Returns the number of log lines with the sentence."""
    return sum(sentence in line for line in log.splitlines())
