"""The table's files as seen from a Spark task: pyarrow's file systems under Hudi's names for places.

Guarantee: a path given to Hudi and the same path given here mean the same file, blanks and odd characters
included; an S3 bucket is reached with the credentials and the endpoint that Spark is given for it
(`spark.hadoop.fs.s3a.*`), else with those of the environment. No secret is in a `repr` or an error. Void for
credentials that only a class of Hadoop's knows (`aws.credentials.provider`). Raises ConfigError for a file system that
pyarrow does not reach. Imports nothing that an executor need not have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs

from coordination.errors import ConfigError

_SCHEMES = {"s3a": "s3", "s3n": "s3", "s3": "s3", "gs": "gs", "hdfs": "hdfs", "viewfs": "viewfs"}
_FOREIGN = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
_S3A = "spark.hadoop.fs.s3a."
_AWS_ENDPOINT = re.compile(r"s3[.-](?P<region>[a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com(?:\.cn)?")


@dataclass(frozen=True, slots=True)
class Access:
    """What Spark is told of S3, by the names behind `fs.s3a.`: travels to executors, and never shows itself."""

    s3a: Mapping[str, str] = field(default_factory=dict, repr=False)

    def of(self, bucket: str, name: str) -> str:
        """A setting of the bucket, else of all buckets; empty when there is neither."""
        return self.s3a.get(f"bucket.{bucket}.{name}", self.s3a.get(name, "")).strip()


NO_ACCESS = Access()


def access_of(spark: Mapping[str, str]) -> Access:
    """From `Settings.spark`."""
    return Access({name.removeprefix(_S3A): value for name, value in spark.items() if name.startswith(_S3A)})


@dataclass(frozen=True)
class Storage:
    """A file system and the table's directory in it. Paths are relative to the table."""

    files: fs.FileSystem
    root: str

    @property
    def has_directories(self) -> bool:
        """Object stores have none; making one leaves an empty object behind."""
        return isinstance(self.files, (fs.LocalFileSystem, fs.HadoopFileSystem))

    def locate(self, path: str) -> str:
        return f"{self.root}/{path}"

    def exists(self, path: str) -> bool:
        return bool(self.files.get_file_info(self.locate(path)).type != fs.FileType.NotFound)

    def names(self, directory: str) -> list[str]:
        selector = fs.FileSelector(self.locate(directory), allow_not_found=True)
        return [info.base_name for info in self.files.get_file_info(selector)]

    def create(self, path: str) -> pa.NativeFile:
        """An output stream; directories on the way are made."""
        target = self.locate(path)
        if self.has_directories:
            self.files.create_dir(target.rpartition("/")[0], recursive=True)
        return self.files.open_output_stream(target)

    def size(self, path: str) -> int:
        return int(self.files.get_file_info(self.locate(path)).size)

    def delete(self, path: str) -> None:
        self.files.delete_file(self.locate(path))


def require_reachable(base_path: str) -> tuple[str, str]:
    """The scheme as pyarrow calls it, `file` for a path, and what comes behind it; asks no server."""
    local = re.sub(r"^file:(?://(?=/))?", "", base_path)
    if local.startswith("/"):
        return "file", local.rstrip("/") or "/"
    match = _FOREIGN.fullmatch(base_path)
    scheme = _SCHEMES.get(match["scheme"].lower()) if match else None
    if match is None or scheme is None:
        raise ConfigError(
            f"target.base.path: write.engine=arrow cannot reach {base_path!r}"
            " (absolute paths, file, s3a, gs, hdfs can be reached);"
            " use write.engine=hudi"
        )
    return scheme, match["rest"]


_kept: dict[tuple[str, tuple[tuple[str, str], ...]], Storage] = {}


def kept_storage(base_path: str, access: Access = NO_ACCESS) -> Storage:
    """As `open_storage`, once in a process: a client of an object store keeps its connections."""
    key = (base_path, tuple(sorted(access.s3a.items())))
    if key not in _kept:
        _kept[key] = open_storage(base_path, access)
    return _kept[key]


def open_storage(base_path: str, access: Access = NO_ACCESS) -> Storage:
    """`/path`, `file:/path`, `file:///path`, or a URI whose scheme pyarrow knows by this or another name."""
    scheme, rest = require_reachable(base_path)
    if scheme == "file":
        return Storage(fs.LocalFileSystem(), rest)
    try:
        if scheme == "s3" and access.s3a:
            return _open_s3(rest, access)
        files, root = fs.FileSystem.from_uri(f"{scheme}://{quote(rest, safe='/:@?&=')}")
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"target.base.path: {base_path}: {error}; write.engine=hudi may reach it") from error
    return Storage(files, root.rstrip("/"))


def _open_s3(place: str, access: Access) -> Storage:
    bucket = place.partition("/")[0]
    arguments = s3_arguments(bucket, access)
    if not {"region", "endpoint_override"} & set(arguments):
        # As from_uri does it: a request that goes to another region is turned away.
        arguments["region"] = fs.resolve_s3_region(bucket)
    return Storage(fs.S3FileSystem(**arguments), place.rstrip("/"))


def s3_arguments(bucket: str, access: Access) -> dict[str, Any]:
    """What `fs.s3a.*` means to `pyarrow.fs.S3FileSystem`. Holds secrets: not for printing."""
    named = {"access_key": "access.key", "secret_key": "secret.key", "session_token": "session.token"}
    found = {argument: access.of(bucket, name) for argument, name in named.items()}
    arguments: dict[str, Any] = {argument: value for argument, value in found.items() if value}
    if ("access_key" in arguments) != ("secret_key" in arguments):
        missing = "secret.key" if "access_key" in arguments else "access.key"
        raise ConfigError(f"{_S3A}{missing} is missing, which its other half needs; set both or neither")
    if access.of(bucket, "aws.credentials.provider").endswith("AnonymousAWSCredentialsProvider"):
        arguments["anonymous"] = True
    scheme, _, endpoint = access.of(bucket, "endpoint").rpartition("://")
    plain = access.of(bucket, "connection.ssl.enabled").lower() == "false"
    if scheme or plain:
        arguments["scheme"] = scheme.lower() or "http"
    if endpoint:
        arguments["endpoint_override"] = endpoint.rstrip("/")
        # Arrow puts the bucket into the path as soon as there is an endpoint, Hadoop only when it is told to.
        arguments["force_virtual_addressing"] = access.of(bucket, "path.style.access").lower() != "true"
    if region := access.of(bucket, "endpoint.region") or _region(endpoint):
        arguments["region"] = region
    return arguments


def _region(endpoint: str) -> str:
    match = _AWS_ENDPOINT.fullmatch(endpoint.rstrip("/"))
    return match["region"] if match else ""
