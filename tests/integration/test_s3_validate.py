"""`sink validate` tries what a worker does in the store, says in a sentence what is wrong, and leaves nothing there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from sink.operations.validation import Finding, validate
from tests.integration.conftest import MakeFleet
from tests.integration.table_kit import settings
from tests.storage.s3_server import MotoServer, Store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store that knows one user, and turns others away: those of Amazon's library for Java, too."""
    with MotoServer(tmp_path_factory.mktemp("strict"), free_requests=3) as server:
        given = {"endpoint_url": server.url, "region_name": "us-east-1", "aws_access_key_id": "any"}
        iam = boto3.client("iam", aws_secret_access_key="any", **given)
        iam.create_user(UserName="sink")
        key = iam.create_access_key(UserName="sink")["AccessKey"]
        allow = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}'
        iam.put_user_policy(UserName="sink", PolicyName="all", PolicyDocument=allow)
        yield Store(server.url, key["AccessKeyId"], key["SecretAccessKey"])


@pytest.fixture
def bucket(strict: Store) -> str:
    return strict.make_bucket()


def found(store: Store, bucket: str, place: Path, zookeeper: str, **more: str) -> list[Finding]:
    given = settings(place / "s3", zookeeper, **{**store.settings, "target.base.path": f"s3a://{bucket}/t", **more})
    return [each for each in validate(given) if each.part in ("storage", "table")]


def test_a_store_that_works_is_asked_by_all_three_and_left_as_it_was(s3: Store, zookeeper, tmp_path: Path) -> None:
    bucket = s3.make_bucket()
    findings = found(s3, bucket, tmp_path, zookeeper.address)
    assert findings[0].sentence == f"s3a://{bucket}/t can be reached by pyarrow, hudi-rs, Java"
    assert not [each for each in findings if each.wrong]
    assert s3.keys(bucket) == []


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"storage.s3.access.key": "AKIANOBODY"}, "storage.s3.access.key: the store at {url} does not know the key"),
        ({"storage.s3.secret.key": "another"}, "storage.s3.secret.key: it does not belong to the access key"),
        ({"target.base.path": "s3a://no-such-bucket/t"}, "target.base.path: there is no bucket no-such-bucket at"),
        (
            {"storage.s3.endpoint": "http://127.0.0.1:9"},
            "storage.s3.endpoint: http://127.0.0.1:9 does not answer; start it",
        ),
        (
            {"spark.jars": "/nowhere/hadoop-aws-3.3.4.jar"},
            "target.base.path: Java has no file system for s3a://; leave spark.jars to Hudi's and your own jars",
        ),
    ],
    ids=["wrong key", "wrong secret", "no bucket", "no server", "no jar"],
)
def test_what_is_wrong_is_one_sentence_without_a_secret(
    strict: Store, bucket: str, zookeeper, tmp_path: Path, more: dict[str, str], sentence: str
) -> None:
    (wrong,) = [each for each in found(strict, bucket, tmp_path, zookeeper.address, **more) if each.wrong]
    assert sentence.format(url=strict.url) in wrong.sentence
    assert strict.secret_key not in wrong.sentence
    assert not [key for key in strict.keys(bucket) if not key.endswith("/")]


def test_a_worker_ends_with_status_2_where_nothing_gets_better_by_itself(fleet: MakeFleet, strict: Store) -> None:
    it = fleet(30, **{**strict.settings, "target.base.path": "s3a://no-such-bucket/t"})
    worker = it.start("w1")
    assert worker.wait(120) == 2
    assert "there is no bucket no-such-bucket at" in it.log("w1")
