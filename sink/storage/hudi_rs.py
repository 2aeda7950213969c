"""Opens a table with hudi-rs, through a mirror in a local directory if hudi-rs does not support its store.

The mirror is a copy of timeline and metadata table. Data files are empty until hudi-rs reads them: then it fetches one
file slice at a time. So hudi-rs lists the slices and reads the rows, as on other stores, and the local disk holds one
slice.

Guarantee: hudi-rs reads the bytes of the store. Voided by a table that changes during the copy; the caller then looks
again. Raises what pyarrow raises, and `NotFetched` for a file that cannot be fetched.
"""

from __future__ import annotations

import posixpath
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.fs as pafs
from hudi import HudiFileGroupReader, HudiFileSlice, HudiReadOptions, HudiTable, HudiTableBuilder

from sink.storage.access import rust_options
from sink.storage.table_files import TableFiles

_HUDIS_OWN = ".hoodie"
_PROPERTIES = f"{_HUDIS_OWN}/hoodie.properties"
_METADATA_TABLE = f"{_HUDIS_OWN}/metadata"
_FILES_OF_THE_TABLE = f"{_METADATA_TABLE}/files"
"""The only partition of the metadata table that hudi-rs reads."""
_CHUNK = 4 << 20


def rust_table(files: TableFiles, properties: Mapping[str, str] = MappingProxyType({})) -> HudiTable | MirroredTable:
    """Opens the table with hudi-rs. `properties` take the place of the table's own: in a mirror, because hudi-rs lets
    no option do so."""
    if not files.uri or properties:
        return MirroredTable(files, properties)
    builder = HudiTableBuilder.from_base_uri(files.uri)
    return builder.with_storage_options(rust_options(files.base_path, files.access)).build()


def raised_by_hudi(error: Exception) -> bool:
    """Returns whether hudi-rs raised the error, whose class it does not export."""
    return type(error).__name__ == "HudiCoreError" or isinstance(error, NotFetched)


class NotFetched(Exception):
    """A file of the table could not be fetched to the local disk."""


class MirroredTable:
    """The methods of hudi-rs's table that the audit uses. Its directory is deleted with it."""

    def __init__(self, files: TableFiles, properties: Mapping[str, str] = MappingProxyType({})) -> None:
        self._files = files
        self._directory = tempfile.TemporaryDirectory(prefix="sink-mirror-")
        self.directory = Path(self._directory.name)
        self._copy()
        own = self.directory / _PROPERTIES
        lines = own.read_text().splitlines()
        kept = [line for line in lines if line.partition("=")[0] not in properties]
        own.write_text("".join(f"{line}\n" for line in (*kept, *(f"{k}={v}" for k, v in properties.items()))))
        self._table: HudiTable = HudiTableBuilder.from_base_uri(self.directory.as_uri()).build()

    def get_schema(self) -> pa.Schema:
        return self._table.get_schema()

    def get_schema_with_meta_fields(self) -> pa.Schema:
        return self._table.get_schema_with_meta_fields()

    def get_file_slices(self, options: HudiReadOptions) -> Sequence[HudiFileSlice]:
        slices: Sequence[HudiFileSlice] = self._table.get_file_slices(options)
        return slices

    def create_file_group_reader_with_options(self, options: HudiReadOptions) -> MirroredReader:
        return MirroredReader(self, self._table.create_file_group_reader_with_options(options))

    @contextmanager
    def filled(self, paths: Iterable[str]) -> Iterator[None]:
        """Fetches these files, and empties them at the end. Raises NotFetched."""
        filled = []
        try:
            for path in paths:
                filled.append(path)
                try:
                    self._fetch(path)
                except (OSError, pa.ArrowException) as error:
                    raise NotFetched(f"{path} cannot be read: {error}") from error
            try:
                yield
            except (OSError, pa.ArrowException) as error:
                raise NotFetched(f"{', '.join(filled)} cannot be read: {error}") from error
        finally:
            for path in filled:
                # A file that could not be fetched may not even have its directory here.
                if (self.directory / path).exists():
                    (self.directory / path).write_bytes(b"")

    def _copy(self) -> None:
        """Copies timeline and metadata table, without files that are deleted meanwhile."""
        copied = [
            _PROPERTIES,
            *self._paths_in(posixpath.relpath(self._files.timeline_path, self._files.root)),
        ]
        if "files" in self._files.properties.get("hoodie.table.metadata.partitions", "").split(","):
            metadata_directory = f"{_METADATA_TABLE}/{_HUDIS_OWN}"
            copied += [
                f"{metadata_directory}/hoodie.properties",
                *self._paths_in(f"{metadata_directory}/timeline"),
                *self._paths_in(_FILES_OF_THE_TABLE),
            ]
        else:
            self._create_stand_ins()
        for path in copied:
            try:
                self._fetch(path)
            except FileNotFoundError:
                (self.directory / path).unlink(missing_ok=True)

    def _paths_in(self, directory: str) -> list[str]:
        """Returns the paths of the files in the directory."""
        return [
            posixpath.join(directory, posixpath.basename(info.path)) for info in self._listed(directory) if info.is_file
        ]

    def _listed(self, directory: str) -> list[pafs.FileInfo]:
        selector = pafs.FileSelector(posixpath.join(self._files.root, directory), allow_not_found=True)
        infos: list[pafs.FileInfo] = self._files.filesystem.get_file_info(selector)
        return infos

    def _create_stand_ins(self) -> None:
        """Creates sparse files with the names and lengths of the table's files, for hudi-rs to list them."""
        pending = [""]
        while pending:
            for info in self._listed(pending.pop()):
                path = posixpath.relpath(info.path, self._files.root)
                if info.is_file:
                    with self._local_path(path).open("wb") as file:
                        file.truncate(info.size)
                elif path != _HUDIS_OWN:
                    pending.append(path)

    def _local_path(self, path: str) -> Path:
        target = self.directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def _fetch(self, path: str) -> None:
        source = posixpath.join(self._files.root, path)
        with self._files.filesystem.open_input_file(source) as stream, self._local_path(path).open("wb") as target:
            shutil.copyfileobj(stream, target, _CHUNK)


class MirroredReader:
    """hudi-rs's reader of slices, whose files are fetched first."""

    def __init__(self, table: MirroredTable, reader: HudiFileGroupReader) -> None:
        self._table = table
        self._reader = reader

    def read_file_slice_from_paths_stream(
        self, base: str, logs: Sequence[str], options: HudiReadOptions
    ) -> Iterator[pa.RecordBatch]:
        with self._table.filled(filter(None, (base, *logs))):
            yield from self._reader.read_file_slice_from_paths_stream(base, list(logs), options)
