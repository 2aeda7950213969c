"""Tries the store of a table like a worker and the auditor: each library writes or reads a probe.

The probe is an object below the base path: pyarrow writes, lists and reads it, hudi-rs reads it, and Java's file system
writes, reads and deletes its own. On HDFS Python's client takes the place of pyarrow and hudi-rs, and the probe is in
the nearest directory that exists. Guarantee: it leaves no object, unless the store refuses to delete it, or Java does
not start: then pyarrow's empty directory objects stay. Raises nothing of its own: a failure is an `ProbeResult`.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from hudi import HudiTableBuilder
from py4j.java_gateway import JavaGateway
from pyarrow import fs

from coordination.errors import SinkError, Unavailable
from sink.clients.java.errors import JAVA_ERRORS, message
from sink.clients.spark.session import bare_jvm
from sink.clients.spark.specification import SessionSpecification
from sink.storage.access import (
    HDFS_SCHEMES,
    S3_SCHEMES,
    Access,
    bucket_of,
    failover_options,
    hadoop_options,
    rust_options,
    scheme_of,
    schemes_of,
)
from sink.storage.faults import fault_in
from sink.storage.files import PROBE_PREFIX, open_storage, require_answer

_PROPERTIES = ".hoodie/hoodie.properties"
_CONTENT = b"".join(
    b"hoodie.%s\n" % line
    for line in (b"table.name=probe", b"table.type=COPY_ON_WRITE", b"table.version=9", b"timeline.layout.version=2")
)
"""The least content that hudi-rs accepts as a table."""

_CHANGED = "reading the probe gives other bytes than were written: the store keeps more than it is given"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a library. `problem` is one sentence, empty if the probe succeeded."""

    library: str
    problem: str = ""


class SharedJvms:
    """A JVM for each kind of store, started at its first use, for any number of threads and tables."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = ExitStack()
        self._gateways: dict[frozenset[str], JavaGateway] = {}

    def __enter__(self) -> SharedJvms:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @contextmanager
    def running(self, session: SessionSpecification) -> Iterator[JavaGateway]:
        """Yields a JVM as `bare_jvm` does, and keeps it running."""
        with self._lock:
            store_schemes = schemes_of(session.base_paths)
            if store_schemes not in self._gateways:
                self._gateways[store_schemes] = self._running.enter_context(bare_jvm(session))
        yield self._gateways[store_schemes]


Jvm = Callable[[SessionSpecification], AbstractContextManager[JavaGateway]]


def probed(base_path: str, session: SessionSpecification, jvm: Jvm = bare_jvm) -> Iterator[ProbeResult]:
    """Yields the answers of Python, the auditor and Java. If Python fails, it yields only that answer. `session` is the
    one of the table's sink alone."""
    probe = _Probe(base_path, session.sinks[0].access, f"{PROBE_PREFIX}{uuid.uuid4().hex}")
    is_hdfs = scheme_of(base_path) in HDFS_SCHEMES
    library, by_python = ("hdfs-native", probe.by_hdfs_native) if is_hdfs else ("pyarrow", probe.by_pyarrow)
    python_answer = probe.answer(library, by_python)
    yield python_answer
    if python_answer.problem:
        return
    if not is_hdfs:
        # On HDFS the auditor uses Python's client.
        yield probe.answer("hudi-rs", probe.by_rust)
    directory = probe.nearest_address() if is_hdfs else base_path
    yield probe.answer("Java", lambda: probe.by_java(f"{directory}/{probe.directory}-java", session, jvm))


@dataclass
class _Probe:
    """One probe of a table's store, in `directory` below the base path. `missing_directories` are the directories in
    the bucket that did not exist before."""

    base_path: str
    access: Access
    directory: str
    missing_directories: list[str] = field(default_factory=list)

    def answer(self, library: str, probe: Callable[[], None]) -> ProbeResult:
        try:
            probe()
        except SinkError as error:
            reason = str(error)
        except JAVA_ERRORS as error:
            reason = message(error)
        except Exception as error:  # noqa: BLE001
            # hudi-rs does not export its error class, and pyarrow has several.
            reason = f"{type(error).__name__}: {error}"
        else:
            return ProbeResult(library)
        fault = fault_in(reason, self.base_path, self.access)
        return ProbeResult(library, fault.sentence if fault else f"{self.base_path}: {reason[:600]}")

    def by_pyarrow(self) -> None:
        """Writes, reads and deletes the probe."""
        require_answer(self.base_path, self.access)
        storage = open_storage(self.base_path, self.access)
        path = f"{self.directory}/{_PROPERTIES}"
        directory = storage.locate(path)
        while "/" in (directory := directory.rpartition("/")[0]):
            if storage.files.get_file_info(directory).type is fs.FileType.NotFound:
                self.missing_directories.append(directory.partition("/")[2])
        with storage.create(path) as stream:
            stream.write(_CONTENT)
        try:
            with storage.files.open_input_stream(storage.locate(path)) as stream:
                if stream.read() != _CONTENT:
                    raise OSError(_CHANGED)
        finally:
            storage.delete(path)
        if storage.exists(path):
            raise OSError(f"{path} still exists after it was deleted")

    def by_hdfs_native(self) -> None:
        """Writes, reads and deletes the probe in the nearest directory that exists. Creates no directory above its
        own."""
        storage = open_storage(self.base_path, self.access).nearest
        path = f"{self.directory}/probe"
        try:
            with storage.create(path) as stream:
                stream.write(_CONTENT)
            with storage.files.open_input_stream(storage.locate(path)) as stream:
                if stream.read() != _CONTENT:
                    raise OSError("reading the probe gives other bytes than were written")
        finally:
            if storage.exists(self.directory):
                storage.files.delete_dir(storage.locate(self.directory))
        if storage.exists(self.directory):
            raise OSError(f"{self.directory} still exists after it was deleted")

    def nearest_address(self) -> str:
        """Returns Hudi's address of the table's directory, or of the nearest one above it that exists."""
        scheme, _, rest = self.base_path.partition("://")
        return f"{scheme}://{rest.partition('/')[0]}{open_storage(self.base_path, self.access).nearest.root}"

    def by_rust(self) -> None:
        storage = open_storage(self.base_path, self.access)
        path = f"{self.directory}/{_PROPERTIES}"
        with storage.create(path) as stream:
            stream.write(_CONTENT)
        try:
            base = re.sub(r"^s3n?://", "s3a://", self.base_path)
            builder = HudiTableBuilder.from_base_uri(f"{quote(base, safe=':/@')}/{self.directory}")
            builder.with_storage_options(rust_options(self.base_path, self.access)).build()
        finally:
            with suppress(OSError, pa.ArrowException):
                storage.delete(path)

    def by_java(self, address: str, session: SessionSpecification, jvm: Jvm) -> None:
        with jvm(session) as gateway:
            try:
                self._write_by_java(gateway, address, session.options)
            except JAVA_ERRORS as error:
                # Read the message while the JVM runs.
                raise Unavailable(message(error)) from None

    def _write_by_java(self, gateway: JavaGateway, address: str, user_options: Mapping[str, str]) -> None:
        jvm: Any = gateway.jvm
        conf = jvm.org.apache.hadoop.conf.Configuration()
        options = {**hadoop_options(self.access), **failover_options(self.access.hdfs), **user_options}
        for name, value in options.items():
            if name.startswith("spark.hadoop."):
                conf.set(name.removeprefix("spark.hadoop."), value)
        path = jvm.org.apache.hadoop.fs.Path(address)
        files = path.getFileSystem(conf)
        files.exists(path)
        stream = files.create(path, True)
        stream.write(bytearray(_CONTENT))
        stream.close()
        try:
            if int(files.getFileStatus(path).getLen()) != len(_CONTENT):
                raise OSError(_CHANGED)
        finally:
            files.delete(path, False)
            if scheme_of(address) in S3_SCHEMES:
                # pyarrow and Hadoop leave an empty object for each directory from which they delete a file.
                store, bucket = files.getAmazonS3ClientForTesting("sink validate"), bucket_of(address)
                for key in self.missing_directories:
                    store.deleteObject(bucket, f"{key}/")
