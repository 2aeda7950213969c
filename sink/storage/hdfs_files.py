"""HDFS as a pyarrow file system, through `hdfs-native`: the protocol of Hadoop's client, without a JVM.

Guarantee: with a name service the active namenode answers; during a failover the client retries as long as
`client_settings` say. A file has its final name from the first byte on, as with Hadoop's client. Raises OSError, also
FileNotFoundError and PermissionError, for errors of the cluster; ConfigError if `hdfs-native` is not installed.
"""

from __future__ import annotations

import functools
import getpass
import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyarrow import fs

from coordination.errors import ConfigError
from sink.storage.access import HdfsAccess, client_settings, locate

if TYPE_CHECKING:
    from hdfs_native import Client, FileStatus

_REMOTE = re.compile(r'RPCError\("(?P<kind>[\w.$]+)", "(?P<text>(?:[^"\\]|\\.)*)"\)')
_NO_ACTIVE_NAMENODE = ("StandbyException", "RetriableException", "SafeModeException")
_KERBEROS = re.compile(r'GSSAPIError\(.*?, \d+, "(?P<text>(?:[^"\\]|\\.)*)"\)')
_NO_HOST = re.compile(r"lookup address|Name or service not known|nodename nor servname|No NameNode hosts")
Answer = TypeVar("Answer")


def open_hdfs(base_path: str, access: HdfsAccess) -> tuple[fs.FileSystem, str]:
    """Returns the file system and the path in it. Connects to no server."""
    address, root = locate(base_path, access)
    if not access.secured and access.user and access.user != getpass.getuser():
        # An executor may run as another user, but the files must belong to the worker's user.
        os.environ.setdefault("HADOOP_USER_NAME", access.user)
    try:
        client = _client(address, tuple(sorted(client_settings(address, access).items())), *_login(access), os.getpid())
    except ImportError as error:
        raise ConfigError(
            f"target.base.path: {base_path} needs hdfs-native. Run `pip install hdfs-native` here and on executors, or"
            " set write.engine=hudi, which writes through Spark's client."
        ) from error
    except (RuntimeError, ValueError, OSError) as error:
        raise ConfigError(f"target.base.path: {base_path}: {_as_os_error(error, address)}") from error
    return fs.PyFileSystem(HdfsHandler(client, address)), root


def _login(access: HdfsAccess) -> tuple[str, str]:
    """Returns principal and keytab for Kerberos, if there are both; else the client uses a ticket or a token."""
    has_keytab = access.secured and access.principal and os.path.isfile(access.keytab)
    return (access.principal, access.keytab) if has_keytab else ("", "")


@functools.lru_cache(maxsize=16)
def _client(address: str, settings: tuple[tuple[str, str], ...], principal: str, keytab: str, _process: int) -> Client:
    """Makes one client for each cluster and process: a fork cannot use its threads and connections."""
    from hdfs_native import Client

    return Client(address, dict(settings), kerberos_principal=principal or None, kerberos_keytab=keytab or None)


class HdfsHandler(fs.FileSystemHandler):  # type: ignore[misc]
    """The methods of a file system in Python that pyarrow calls."""

    def __init__(self, client: Client, address: str) -> None:
        self._client = client
        self._address = address

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HdfsHandler) and other._client is self._client

    def __hash__(self) -> int:
        return id(self._client)

    def get_type_name(self) -> str:
        return "hdfs-native"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        base = selector.base_dir
        try:
            statuses = self._call(lambda: list(self._client.list_status(base, selector.recursive)))
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        if [status.path for status in statuses] == [base] and not statuses[0].isdir:
            raise NotADirectoryError(base)
        return [_file_info(status.path, status) for status in statuses]

    def create_dir(self, path: str, recursive: bool) -> None:
        self._call(lambda: self._client.mkdirs(path, create_parent=recursive))

    def delete_dir(self, path: str) -> None:
        self._delete(path, recursive=True)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        for info in self.get_file_info_selector(fs.FileSelector(path, allow_not_found=missing_dir_ok)):
            self._delete(info.path, recursive=True)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError("the sink never deletes the root directory")

    def delete_file(self, path: str) -> None:
        if self._info(path).type is fs.FileType.Directory:
            raise IsADirectoryError(path)
        self._delete(path, recursive=False)

    def move(self, src: str, dest: str) -> None:
        self._call(lambda: self._client.rename(src, dest, overwrite=False))

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError("HDFS cannot copy files")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(_HdfsReader(self._call(lambda: self._client.read(path)), self._address), mode="r")

    def open_output_stream(self, path: str, _metadata: object = None) -> pa.NativeFile:
        from hdfs_native import WriteOptions

        options = WriteOptions(overwrite=True, create_parent=True)
        return pa.PythonFile(_Writer(self._call(lambda: self._client.create(path, options)), self._address), mode="w")

    def open_append_stream(self, path: str, _metadata: object = None) -> pa.NativeFile:
        raise NotImplementedError("Hudi's files are written once")

    def _info(self, path: str) -> fs.FileInfo:
        try:
            return _file_info(path, self._call(lambda: self._client.get_file_info(path)))
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)

    def _delete(self, path: str, recursive: bool) -> None:
        if not self._call(lambda: self._client.delete(path, recursive)):
            raise FileNotFoundError(path)

    def _call(self, request: Callable[[], Answer]) -> Answer:
        with _translated(self._address):
            return request()


@contextmanager
def _translated(address: str) -> Iterator[None]:
    """Turns the client's errors into OSError."""
    try:
        yield
    except (RuntimeError, ValueError, OSError) as error:
        raise _as_os_error(error, address) from error


class _HdfsReader(io.RawIOBase):
    """A file to read from datanodes; the client knows the locations of its blocks since it opened the file."""

    def __init__(self, file: Any, address: str) -> None:
        self._file = file
        self._address = f"{address}: of a datanode"

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self.tell()

    def read(self, size: int | None = -1) -> bytes:
        with _translated(self._address):
            return bytes(self._file.read(-1 if size is None else size))


class _Writer(io.RawIOBase):
    """A file to write. It is complete once `close` returns."""

    def __init__(self, file: Any, address: str) -> None:
        self._file = file
        self._written = 0
        self._address = f"{address}: of a datanode"

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, data: Any) -> int:
        with _translated(self._address):
            self._file.write(data)
        self._written += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            with _translated(self._address):
                self._file.close()


def _file_info(path: str, status: FileStatus) -> fs.FileInfo:
    if status.isdir:
        return fs.FileInfo(path, fs.FileType.Directory)
    return fs.FileInfo(path, fs.FileType.File, size=status.length, mtime_ns=status.modification_time * 1_000_000)


def _as_os_error(error: Exception, address: str) -> OSError:
    """Converts an error to an OSError with one sentence: Hadoop's answer without its stack trace."""
    summary = str(error)
    if isinstance(error, (FileNotFoundError, FileExistsError, IsADirectoryError)):
        return error
    remote = _REMOTE.search(summary)
    if remote is None:
        if refused := _KERBEROS.search(summary):
            return PermissionError(f"{address} asks for Kerberos: {refused['text'].split(': ', 1)[-1]}")
        if _NO_HOST.search(summary):
            name = address.partition("://")[2].partition(":")[0]
            return OSError(
                f"{address}: {name} is neither a host nor a name service that HADOOP_CONF_DIR or"
                f" spark.hadoop.dfs.ha.namenodes.{name} describe"
            )
        kind = ConnectionError if isinstance(error, ConnectionError) or "onnection" in summary else OSError
        return kind(f"{address}: {summary}")
    java_class, detail = remote["kind"].rpartition(".")[2], remote["text"].partition("\\n")[0].replace('\\"', '"')
    if java_class in _NO_ACTIVE_NAMENODE:
        return OSError(f"{address}: no namenode is active ({java_class}: {detail})")
    if java_class == "AccessControlException":
        return PermissionError(f"{address}: {detail}")
    if java_class == "FileNotFoundException":
        return FileNotFoundError(detail)
    return OSError(f"{address}: {java_class}: {detail}")
