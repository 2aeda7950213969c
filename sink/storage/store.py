"""The place of one table: its base path, and the access to it at each moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sink.storage.access import Access
from sink.storage.files import Storage, is_reachable, open_storage
from sink.storage.table_files import TableFiles, open_table


@dataclass(frozen=True, slots=True)
class Store:
    """`current_access` may look for keys, which change in a long life. It raises Unavailable if a source gives none."""

    base_path: str
    current_access: Callable[[], Access]

    @property
    def access(self) -> Access:
        """The access at this moment."""
        return self.current_access()

    def is_reachable(self) -> bool:
        """Returns whether Python can reach the base path; else Spark alone does."""
        return is_reachable(self.base_path, self.access)

    def open(self) -> Storage:
        """Opens the directory. Raises ConfigError."""
        return open_storage(self.base_path, self.access)

    def table(self) -> TableFiles:
        """Opens the table's files, for a reader. Raises what `open_table` raises."""
        return open_table(self.base_path, self.access)
