"""Lists the data files of a table's partitions by the cheaper of two ways.

Guarantee: every committed file is named; other files may be. With the metadata table a look costs four requests for
each of its commits since it was compacted: on an object store, partitions that are known to be small are listed
instead.
Raises what py4j and pyarrow raise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from sink.hudi.client import HudiClient
from sink.storage.access import S3_SCHEMES, Access, scheme_of
from sink.storage.files import cached_storage

_LISTED = 16
_COUNTED = 64
"""Partitions whose files are asked for at once."""
_PAGE = 1000
"""Entries that an object store lists at once."""
_INSTANT = re.compile(r"_(\d+)\.(?:parquet|log)")
_FILE_NAME = re.compile(r"[^/,{}\[\]\s'=]+\.parquet")


def files_of(hudi: HudiClient, instants: Collection[str]) -> dict[str, list[str]]:
    """Lists storage, all partitions of it, for data files and log files of these instants. Returns their paths,
    relative to the table, by instant."""
    pattern = re.compile(rf"[\w.-]+_({'|'.join(sorted(instants))})\.(?:parquet|log\.[\w-]+)(?![\w.-])")
    found: dict[str, list[str]] = {}
    config = hudi.java.common.config.HoodieMetadataConfig.newBuilder().enable(False).build()
    with closing(_metadata(hudi, config)) as listing:
        for partition, files in _files_by_partition(hudi, listing):
            for match in pattern.finditer(str(files.toString())):
                found.setdefault(match[1], []).append(f"{partition}/{match[0]}".lstrip("/"))
    return found


def instants_of(paths: Collection[str]) -> list[str]:
    """Returns the instants of these data files and log files."""
    return sorted({match[1] for match in map(_INSTANT.search, paths) if match})


def listed_by_metadata(hudi: HudiClient, paths: Collection[str]) -> set[str]:
    """Returns those of these files, relative to the table, that its metadata table lists. The table has one."""
    partitions = {path: path.rpartition("/")[0] for path in paths}
    full = hudi.java_list(str(hudi.path(partition).toString()) for partition in sorted(set(partitions.values())))
    config = hudi.java.common.config.HoodieMetadataConfig.newBuilder().enable(True).build()
    with closing(_metadata(hudi, config)) as metadata:
        listing = str(metadata.getAllFilesInPartitions(full).toString())
    return {path for path in paths if path.rpartition("/")[2] in listing}


def _metadata(hudi: HudiClient, config: Any) -> Any:
    """Opens the metadata table, or what lists storage where the config has none."""
    factory = hudi.java.metadata.NativeTableMetadataFactory.getInstance()
    return factory.create(hudi.engine_context, hudi.storage(), config, hudi.base_path, False)


def _files_by_partition(hudi: HudiClient, metadata: Any) -> Iterator[tuple[str, Any]]:
    """Yields each partition with Java's list of its files, some partitions at a time: a list of all files might not
    fit into the heap."""
    partitions = [str(partition) for partition in metadata.getAllPartitionPaths()]
    for start in range(0, len(partitions), _COUNTED):
        paths = {str(hudi.path(partition).toString()): partition for partition in partitions[start : start + _COUNTED]}
        for path, files in metadata.getAllFilesInPartitions(hudi.java_list(paths)).items():
            yield paths[str(path)], files


class DataFiles:
    """The data files of one table. Remembers which of its partitions are small."""

    def __init__(self, hudi: HudiClient, access: Callable[[], Access] | None) -> None:
        """`access` is given if Python reaches the table, too; it is called each time, for keys may expire."""
        self._hudi = hudi
        self._access = access
        self._on_object_store = scheme_of(hudi.base_path) in S3_SCHEMES
        self._small: frozenset[str] = frozenset()

    def names(self, partitions: Sequence[str]) -> list[str]:
        """Returns the names of the files in these partitions."""
        if len(partitions) <= _LISTED and self._small.issuperset(partitions):
            names = self._listed(partitions)
        else:
            names = self._by_metadata(partitions)
        if self._on_object_store:
            small = len(names) < _PAGE
            self._small = self._small.union(partitions) if small else self._small.difference(partitions)
        return names

    def count(self) -> int | None:
        """Counts committed data files, older versions included; None without a metadata table."""
        if not self._hudi.has_metadata_table:
            return None
        with closing(_metadata(self._hudi, self._hudi.config.getMetadataConfig())) as metadata:
            return sum(int(files.size()) for _, files in _files_by_partition(self._hudi, metadata))

    def _listed(self, partitions: Sequence[str]) -> list[str]:
        if self._access is None:
            storage = self._hudi.storage()
            listings = [storage.listDirectEntries(self._hudi.path(partition)).toString() for partition in partitions]
            return [name for listing in listings for name in _FILE_NAME.findall(str(listing))]
        # Python's client lists many at a time.
        storage = cached_storage(self._hudi.base_path, self._access())
        with ThreadPoolExecutor(max(1, len(partitions))) as listing:
            names = [name for listed in listing.map(storage.names, partitions) for name in listed]
        return [name for name in names if _FILE_NAME.fullmatch(name)]

    def _by_metadata(self, partitions: Sequence[str]) -> list[str]:
        """Lists the committed files with the metadata table, else all files."""
        with closing(_metadata(self._hudi, self._hudi.config.getMetadataConfig())) as metadata:
            return _FILE_NAME.findall(str(metadata.getAllFilesInPartitions(self._paths(partitions)).toString()))

    def _paths(self, partitions: Sequence[str]) -> Any:
        return self._hudi.java_list(str(self._hudi.path(partition).toString()) for partition in partitions)
