"""The table's files in Python: pyarrow's file systems, for Hudi's base paths.

Guarantee: a path means the same file here and in Hudi, also with blanks and special characters. A bucket is reached
with the options of `sink.storage.access`. No secret is in a `repr` or an error. Raises ConfigError for a file system
that pyarrow does not support. Imports only what every executor has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import getproxies_environment, proxy_bypass

import pyarrow as pa
from pyarrow import fs

from coordination.errors import ConfigError, Unavailable
from sink.storage.access import HDFS_SCHEMES, NO_ACCESS, S3_SCHEMES, Access, arrow_arguments, is_own_server, scheme_of
from sink.storage.faults import Fault

PROBE_PREFIX = ".sink-validate-"
"""Begins the names of what `sink validate` writes below a base path, which is not content of it."""
_SCHEMES = {**dict.fromkeys(S3_SCHEMES, "s3"), **{name: name for name in ("gs", "abfs", "abfss", *HDFS_SCHEMES)}}
_FOREIGN = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
_CONNECT_SECONDS = 5.0
_REQUEST_SECONDS = 15.0
"""Seconds without a byte until a request fails and is sent again."""
_OPTIONAL_CHECKSUMS = {
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
}
"""Without these, Amazon's library adds a checksum to each upload, which other servers may refuse or store as data."""


@dataclass(frozen=True)
class Storage:
    """A file system and the table's directory in it. Paths are relative to that directory."""

    files: fs.FileSystem
    root: str

    @property
    def has_directories(self) -> bool:
        """Object stores have no directories; creating one would leave an empty object."""
        return isinstance(self.files, fs.LocalFileSystem)

    @property
    def is_object_store(self) -> bool:
        """On an object store a request takes long, and many at a time take no longer than one."""
        return bool(self.files.type_name == "s3")

    @property
    def nearest(self) -> Storage:
        """The directory, or the nearest one above it that exists. An object store has no directories."""
        root = self.root
        while isinstance(self.files, fs.PyFileSystem) and root and not self._is_there(root):
            root = root.rpartition("/")[0]
        return Storage(self.files, root)

    def _is_there(self, path: str) -> bool:
        return bool(self.files.get_file_info(path).type != fs.FileType.NotFound)

    def locate(self, path: str) -> str:
        return f"{self.root}/{path}"

    def exists(self, path: str) -> bool:
        return self._is_there(self.locate(path))

    def names(self, directory: str) -> list[str]:
        selector = fs.FileSelector(self.locate(directory), allow_not_found=True)
        return [info.base_name for info in self.files.get_file_info(selector)]

    def create(self, path: str) -> pa.NativeFile:
        """Opens an output stream; missing directories are created."""
        target = self.locate(path)
        if self.has_directories:
            self.files.create_dir(target.rpartition("/")[0], recursive=True)
        return self.files.open_output_stream(target)

    def size(self, path: str) -> int:
        return int(self.files.get_file_info(self.locate(path)).size)

    def delete(self, path: str) -> None:
        self.files.delete_file(self.locate(path))


def require_reachable(base_path: str) -> tuple[str, str]:
    """Returns pyarrow's scheme, `file` for a path, and the rest of the base path. Connects to no server."""
    local = re.sub(r"^file:(?://(?=/))?", "", base_path)
    if local.startswith("/"):
        return "file", local.rstrip("/") or "/"
    match = _FOREIGN.fullmatch(base_path)
    scheme = _SCHEMES.get(match["scheme"].lower()) if match else None
    if match is None or scheme is None:
        raise ConfigError(
            f"target.base.path: write.engine=arrow cannot reach {base_path!r}"
            " (only absolute paths, file, s3a, abfs, gs, hdfs). Use write.engine=hudi."
        )
    return scheme, match["rest"]


_cached: dict[str, tuple[Access, Storage]] = {}


def cached_storage(base_path: str, access: Access = NO_ACCESS) -> Storage:
    """Returns this process's storage, which keeps its connections; new keys open it again."""
    cached = _cached.get(base_path)
    if cached is None or cached[0] != access:
        cached = _cached[base_path] = access, open_storage(base_path, access)
    return cached[1]


def open_storage(base_path: str, access: Access = NO_ACCESS) -> Storage:
    """Opens `/path`, `file:/path`, `file:///path`, or a URI with a scheme in `_SCHEMES`."""
    scheme, rest = require_reachable(base_path)
    if scheme == "file":
        return Storage(fs.LocalFileSystem(), rest)
    if scheme in HDFS_SCHEMES:
        from sink.storage.hdfs_files import open_hdfs

        return Storage(*open_hdfs(base_path, access.hdfs))
    try:
        if scheme == "s3" and (access.s3a or access.process_keys):
            return _open_s3(rest, access)
        files, root = fs.FileSystem.from_uri(f"{scheme}://{quote(rest, safe='/:@?&=')}")
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"target.base.path: {base_path}: {error}. Try write.engine=hudi.") from error
    return Storage(files, root.rstrip("/"))


def is_reachable(base_path: str, access: Access) -> bool:
    """Returns whether Python can reach such a base path; else Spark alone does."""
    try:
        open_storage(base_path, access)
    except ConfigError:
        return False
    return True


def unwritable(directory: Path) -> Fault | None:
    """Returns why this process cannot write to the directory, or create it; None if it can."""
    existing = directory
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        return Fault(f"{existing} is not a directory. Name another one.", lasts=True)
    if not os.access(existing, os.W_OK | os.X_OK):
        if os.statvfs(existing).f_flag & os.ST_RDONLY:
            return Fault(f"{existing} is on a read-only disk. Mount it for writing, or name another one.", lasts=False)
        return Fault(f"{existing} cannot be written by this user. Change its owner, or name another one.", lasts=True)
    return None


def require_answer(base_path: str, access: Access = NO_ACCESS) -> None:
    """Raises Unavailable with the store's error if listing the table fails. On a local disk it raises ConfigError if
    the directory cannot be created, and Unavailable if the disk is read-only.

    It lists, because a store answers that with an error text, and other requests with a number only.
    """
    if scheme_of(base_path) in ("", "file"):
        if fault := unwritable(Path(open_storage(base_path).root)):
            raise (ConfigError if fault.lasts else Unavailable)(f"target.base.path: {fault.sentence}")
        return
    if scheme_of(base_path) not in S3_SCHEMES | HDFS_SCHEMES:
        return
    try:
        storage = open_storage(base_path, access)
        storage.names(".hoodie/.sink-asks")
    except (pa.ArrowException, OSError) as error:
        raise Unavailable(f"{base_path}: {error}") from error
    if scheme_of(base_path) in HDFS_SCHEMES:
        return
    with suppress(pa.ArrowException, OSError):
        # The key may have the right to list below the table, but not to look up the bucket.
        if storage.files.get_file_info(storage.root.partition("/")[0]).type is fs.FileType.NotFound:
            raise Unavailable(f"{base_path}: NoSuchBucket")


def ask_store(base_path: str, access: Access = NO_ACCESS) -> None:
    """Sends one small request, over a kept connection. Raises Unavailable, or what opening the store raises."""
    try:
        cached_storage(base_path, access).names(".hoodie/.sink-asks")
    except (pa.ArrowException, OSError) as error:
        raise Unavailable(f"{base_path}: {error}") from error


def _open_s3(bucket_path: str, access: Access) -> Storage:
    bucket = bucket_path.partition("/")[0]
    arguments = arrow_arguments(bucket, access)
    if not {"region", "endpoint_override"} & set(arguments):
        # As `from_uri` does: S3 refuses a request to another region.
        arguments["region"] = fs.resolve_s3_region(bucket)
    if is_own_server(bucket, access):
        for name, value in _OPTIONAL_CHECKSUMS.items():
            os.environ.setdefault(name, value)
    files = fs.S3FileSystem(
        **arguments,
        proxy_options=_proxy(bucket, arguments),
        # Opening a file for writing sends no request before there is data.
        allow_delayed_open=True,
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_REQUEST_SECONDS,
    )
    return Storage(files, bucket_path.rstrip("/"))


def _proxy(bucket: str, arguments: Mapping[str, Any]) -> str | None:
    """Returns the proxy that the environment names for the bucket's server. Java and hudi-rs read these variables, too;
    pyarrow does not.
    """
    proxy = getproxies_environment().get(arguments.get("scheme", "https"), "")
    if not proxy or proxy_bypass(arguments.get("endpoint_override", f"{bucket}.s3.amazonaws.com")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
