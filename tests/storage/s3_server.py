"""Runs a real S3 server for tests: moto in a process of its own, with its data in memory.

`TEST_S3=http://host:port` with `TEST_S3_KEYS=access:secret` uses a running server instead, such as MinIO.
"""

from __future__ import annotations

import os
import shutil
import ssl
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from sink.devtools.local.s3 import S3Server
from sink.devtools.local.servers import LOOPBACK, Server, free_ports

ACCESS_KEY = "AKIASINKTEST"
SECRET_KEY = "a-secret-that-nobody-may-see"


class MotoServer(S3Server):
    """Accepts any keys and any signature. With `free_requests`, checks them after so many requests."""

    def __init__(self, directory: Path, free_requests: int | None = None, tls: bool = False) -> None:
        """With `tls` the server shows a self-signed certificate."""
        super().__init__(directory)
        self._free_requests = free_requests
        self._tls = tls

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.address}"

    def _command(self) -> list[str]:
        strict = [] if self._free_requests is None else ["env", f"INITIAL_NO_AUTH_ACTION_COUNT={self._free_requests}"]
        server = "moto.server" if self._free_requests is None else "tests.storage.strict_moto"
        tls = ["--ssl"] if self._tls else []
        return [*strict, sys.executable, "-m", server, "-H", LOOPBACK, "-p", str(self.port), *tls]

    def _answers(self) -> bool:
        context = ssl._create_unverified_context() if self._tls else None
        try:
            with urllib.request.urlopen(f"{self.url}/moto-api/", timeout=2.0, context=context) as response:
                return bool(response.status == 200)
        except (OSError, urllib.error.URLError):
            return False


def minio() -> str | None:
    """Returns the MinIO program, from `TEST_MINIO` or the path, or None. MinIO is stricter than moto."""
    return os.environ.get("TEST_MINIO") or shutil.which("minio")


class MinioServer(Server):
    """MinIO, with its data below the directory. With `region` it accepts requests for that region only."""

    def __init__(self, directory: Path, program: str, region: str = "") -> None:
        super().__init__(directory, 0, "S3 (MinIO)")
        self._program = program
        self._region = region

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def _command(self) -> list[str]:
        (console,) = free_ports(1)
        variables = [f"MINIO_ROOT_USER={ACCESS_KEY}", f"MINIO_ROOT_PASSWORD={SECRET_KEY}"]
        variables += [f"MINIO_SITE_REGION={self._region}"] if self._region else []
        listen = ["--address", self.address, "--console-address", f"{LOOPBACK}:{console}"]
        return ["env", *variables, "CI=1", self._program, "server", *listen, str(self.directory / "data")]

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/minio/health/ready", timeout=2.0) as response:
                return bool(response.status == 200)
        except (OSError, urllib.error.URLError):
            return False


@dataclass(frozen=True)
class Store:
    """A server's address, with keys that the server accepts."""

    url: str
    access_key: str = ACCESS_KEY
    secret_key: str = SECRET_KEY
    region: str = "us-east-1"

    @property
    def client(self) -> Any:
        """A boto3 client: it shares no code with the product's clients."""
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 2}),
        )

    def make_bucket(self) -> str:
        name = f"lake-{uuid.uuid4().hex[:12]}"
        location = {} if self.region == "us-east-1" else {"LocationConstraint": self.region}
        self.client.create_bucket(Bucket=name, **({"CreateBucketConfiguration": location} if location else {}))
        return name

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings as a user writes them."""
        return {
            "storage.s3.endpoint": self.url,
            "storage.s3.access.key": self.access_key,
            "storage.s3.secret.key": self.secret_key,
        }

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", ())]


@contextmanager
def a_store(directory: Path) -> Iterator[Store]:
    if url := os.environ.get("TEST_S3"):
        access, _, secret = os.environ.get("TEST_S3_KEYS", "minioadmin:minioadmin").partition(":")
        yield Store(url, access, secret)
        return
    with MotoServer(directory) as server:
        yield Store(server.url)
