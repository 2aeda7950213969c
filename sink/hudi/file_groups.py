"""The file groups of a table after its commits: their newest base files, and which have rows in log files.

Pure. Raises LookupError and TypeError for metadata that is none of a commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter

from sink.hudi.commits import StoredCommit

Group = tuple[str, str]
"""Table partition path and file id."""


@dataclass(frozen=True, slots=True)
class NewestBaseFile:
    """The newest base file of a group, and the commit that wrote it."""

    path: str
    size: int
    rows: int
    commit: str


@dataclass
class FileGroups:
    """Call `add` with each commit, in the order of completion."""

    base_files: dict[Group, NewestBaseFile] = field(default_factory=dict)
    _logs: dict[Group, list[str]] = field(default_factory=dict)
    """When the log files of each group were completed whose rows are in no base file."""

    @property
    def logged(self) -> frozenset[Group]:
        """The groups with rows in log files."""
        return frozenset(group for group, completed in self._logs.items() if completed)

    def add(self, commit: StoredCommit) -> tuple[int, int]:
        """Returns how many rows the commit inserted, and how many it deleted, those of replaced groups included."""
        inserted = deleted = 0
        for folder, stats in (commit.metadata["partitionToWriteStats"] or {}).items():
            for stat in filter(itemgetter("path"), stats):
                group = folder, stat["fileId"]
                inserted += stat["numInserts"] or 0
                deleted += stat["numDeletes"] or 0
                if stat["path"].rpartition("/")[2].startswith("."):
                    self._logs.setdefault(group, []).append(commit.completed)
                    continue
                size, rows = stat["fileSizeInBytes"] or 0, stat["numWrites"] or 0
                self.base_files[group] = NewestBaseFile(stat["path"], size, rows, commit.instant)
                # A base file holds the rows of logs that had completed when its instant was requested.
                self._logs[group] = [completed for completed in self._logs.get(group, ()) if completed > commit.instant]
        for folder, file_ids in (commit.metadata.get("partitionToReplaceFileIds") or {}).items():
            for file_id in file_ids:
                gone = self.base_files.pop((folder, file_id), None)
                deleted += gone.rows if gone else 0
                self._logs.pop((folder, file_id), None)
        return inserted, deleted
