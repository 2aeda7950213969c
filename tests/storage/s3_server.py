"""A real S3 server for tests: moto's, as a process of its own, with its data in memory; or somebody's.

`SINK_TEST_S3=http://host:port` with `SINK_TEST_S3_KEYS=access:secret` takes a running one, MinIO for instance.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from sink.local.s3 import S3Server

ACCESS_KEY = "AKIASINKTEST"
SECRET_KEY = "a-secret-that-nobody-may-see"


class MotoServer(S3Server):
    """It takes any keys and any signature, or only so many requests of strangers."""

    def __init__(self, directory: Path, free_requests: int | None = None) -> None:
        super().__init__(directory)
        self._free_requests = free_requests

    def _command(self) -> list[str]:
        strict = [] if self._free_requests is None else ["env", f"INITIAL_NO_AUTH_ACTION_COUNT={self._free_requests}"]
        return [*strict, *super()._command()]


@dataclass(frozen=True)
class Store:
    """A server's address with keys that it takes."""

    url: str
    access_key: str = ACCESS_KEY
    secret_key: str = SECRET_KEY

    @property
    def client(self) -> Any:
        """A client that has nothing in common with the product's."""
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 2}),
        )

    def make_bucket(self) -> str:
        name = f"lake-{uuid.uuid4().hex[:12]}"
        self.client.create_bucket(Bucket=name)
        return name

    @property
    def settings(self) -> Mapping[str, str]:
        """What a user writes."""
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
    if given := os.environ.get("SINK_TEST_S3"):
        access, _, secret = os.environ.get("SINK_TEST_S3_KEYS", "minioadmin:minioadmin").partition(":")
        yield Store(given, access, secret)
        return
    with MotoServer(directory) as server:
        yield Store(server.url)
