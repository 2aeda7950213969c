"""A worker uses keys of a profile that are renewed in mid-run, and the token of a role, on a store that checks keys."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import boto3
import pytest

from sink.operations.validation import validate
from tests.fleet import produce
from tests.integration.conftest import METADATA, PARTITIONS, MakeFleet
from tests.integration.table_kit import table_settings
from tests.storage.s3_proxy import S3Proxy
from tests.storage.s3_server import MotoServer, Store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ROUND = 900
LIFETIME = timedelta(seconds=40)
EVERYTHING = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}],
    }
)
_PROCESS = """\
import json, sys
from datetime import datetime, timedelta, timezone
keys = json.load(open(sys.argv[1]))
until = datetime.now(timezone.utc) + timedelta(seconds={seconds})
print(json.dumps({{"Version": 1, "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ"), **keys}}))
"""


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[MotoServer]:
    """A server whose first three requests, which make a user, need no keys."""
    with MotoServer(tmp_path / "strict", free_requests=3) as server:
        yield server


def client(server: MotoServer, service: str, **keys: str):
    keys = keys or {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
    return boto3.client(service, endpoint_url=server.url, region_name="us-east-1", **keys)


def an_administrator(server: MotoServer) -> dict[str, str]:
    iam = client(server, "iam")
    iam.create_user(UserName="admin")
    key = iam.create_access_key(UserName="admin")["AccessKey"]
    iam.put_user_policy(UserName="admin", PolicyName="all", PolicyDocument=EVERYTHING)
    return {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}


def a_role(server: MotoServer, admin: dict[str, str]) -> str:
    iam = client(server, "iam", **admin)
    role = iam.create_role(RoleName="lake", AssumeRolePolicyDocument=TRUST)["Role"]["Arn"]
    iam.put_role_policy(RoleName="lake", PolicyName="all", PolicyDocument=EVERYTHING)
    return str(role)


def session_keys(server: MotoServer, admin: dict[str, str], role: str, name: str) -> dict[str, str]:
    credentials = client(server, "sts", **admin).assume_role(RoleArn=role, RoleSessionName=name)["Credentials"]
    return {field: credentials[field] for field in ("AccessKeyId", "SecretAccessKey", "SessionToken")}


def test_keys_of_a_profile_that_expire_are_renewed_in_mid_run(
    make_fleet: MakeFleet, strict: MotoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = an_administrator(strict)
    role = a_role(strict, admin)
    bucket = Store(strict.url, *admin.values()).make_bucket()
    first, second = (session_keys(strict, admin, role, name) for name in ("first", "second"))
    keys_file, program, credentials_file = tmp_path / "keys.json", tmp_path / "process.py", tmp_path / "credentials"
    program.write_text(_PROCESS.format(seconds=int(LIFETIME.total_seconds())))
    credentials_file.write_text(f"[lake]\ncredential_process = {sys.executable} {program} {keys_file}\n")
    keys_file.write_text(json.dumps(first))
    monkeypatch.setenv("AWS_PROFILE", "lake")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials_file))
    with S3Proxy(tmp_path / "proxy", strict.url) as proxy:
        location = {"storage.s3.endpoint": proxy.url, "target.base.path": f"s3a://{bucket}/orders"}
        fleet = make_fleet(ROUND, **METADATA, **location)
        fleet.start("w1")
        fleet.wait_landed(dict.fromkeys(range(PARTITIONS), ROUND // PARTITIONS))
        keys_file.write_text(json.dumps(second))
        proxy.expire(first["AccessKeyId"])
        proxy.forget()
        produce(fleet.kafka, fleet.topic, ROUND, PARTITIONS, first=ROUND)
        fleet.wait_landed(dict.fromkeys(range(PARTITIONS), 2 * ROUND // PARTITIONS))
        clients = {request.client for request in proxy.requests() if request.status == 200}
        assert {"Java", "C++"} <= clients
        assert fleet.workers["w1"].running
        fleet.assert_exactly_once(2 * ROUND)
        assert "Rust" in {request.client for request in proxy.requests() if request.status == 200}


def test_the_token_of_a_role_lets_all_three_in_and_another_one_is_told(
    strict: MotoServer, zookeeper, tmp_path: Path
) -> None:
    admin = an_administrator(strict)
    keys = session_keys(strict, admin, a_role(strict, admin), "sink")
    bucket = Store(strict.url, *admin.values()).make_bucket()
    storage_settings = {
        "storage.s3.endpoint": strict.url,
        "storage.s3.access.key": keys["AccessKeyId"],
        "storage.s3.secret.key": keys["SecretAccessKey"],
        "target.base.path": f"s3a://{bucket}/t",
    }

    def storage_sentence(token: str) -> str:
        results = validate(
            table_settings(tmp_path / "t", zookeeper.address, **storage_settings, **{"storage.s3.session.token": token})
        )
        return next(result.sentence for result in results if result.part == "storage")

    assert storage_sentence(keys["SessionToken"]) == f"s3a://{bucket}/t can be reached by pyarrow, hudi-rs, Java"
    assert storage_sentence("another").startswith(
        "target.base.path: storage.s3.session.token has expired or is not valid. Set a new one."
    )
