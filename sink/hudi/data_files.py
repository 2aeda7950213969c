"""Lists the data files of a table's partitions by the cheaper of two ways.

Guarantee: every committed file is named; other files may be. With the metadata table a look costs four requests for
each of its commits since it was compacted: on an object store, partitions that are known to be small are listed
instead.
Raises what py4j and pyarrow raise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sink.hudi.client import HudiClient
from sink.storage.access import S3_SCHEMES, Access, scheme_of
from sink.storage.files import cached_storage

_LISTED = 16
_COUNTED = 64
_PAGE = 1000
"""Entries that an object store lists at once."""
_FILE_NAME = re.compile(r"[^/,{}\[\]\s'=]+\.parquet")


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
        """Counts committed data files, older versions included; None without a metadata table. Partition by partition:
        a list of all files might not fit into the heap.
        """
        hudi: Any = self._hudi
        if not hudi.has_metadata_table:
            return None
        metadata = self._metadata()
        try:
            partitions = list(metadata.getAllPartitionPaths())
            counted = 0
            for start in range(0, len(partitions), _COUNTED):
                paths = hudi.jvm.java.util.ArrayList()
                for partition in partitions[start : start + _COUNTED]:
                    paths.add(str(hudi.path(str(partition)).toString()))
                counted += sum(files.size() for files in metadata.getAllFilesInPartitions(paths).values())
            return counted
        finally:
            metadata.close()

    def _listed(self, partitions: Sequence[str]) -> list[str]:
        if self._access is None:
            return [name for partition in partitions for name in _FILE_NAME.findall(self._entries(partition))]
        # Python's client lists many at a time.
        storage = cached_storage(self._hudi.base_path, self._access())
        with ThreadPoolExecutor(max(1, len(partitions))) as listing:
            names = [name for listed in listing.map(storage.names, partitions) for name in listed]
        return [name for name in names if _FILE_NAME.fullmatch(name)]

    def _entries(self, partition: str) -> str:
        return str(self._hudi.storage().listDirectEntries(self._hudi.path(partition)).toString())

    def _by_metadata(self, partitions: Sequence[str]) -> list[str]:
        """Lists the committed files with the metadata table, else all files."""
        hudi: Any = self._hudi
        paths = hudi.jvm.java.util.ArrayList()
        for partition in partitions:
            paths.add(str(hudi.path(partition).toString()))
        metadata = self._metadata()
        try:
            return _FILE_NAME.findall(str(metadata.getAllFilesInPartitions(paths).toString()))
        finally:
            metadata.close()

    def _metadata(self) -> Any:
        hudi: Any = self._hudi
        return hudi.java.metadata.NativeTableMetadataFactory.getInstance().create(
            hudi.engine_context, hudi.storage(), hudi.config.getMetadataConfig(), hudi.base_path, False
        )
