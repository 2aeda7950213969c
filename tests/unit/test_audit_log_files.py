"""The audit judges the log files of a merge-on-read table: those that commits name, and those that none names."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from sink.audit.checkpoints import AuditedCheckpoint
from sink.audit.files import check_storage, named_files
from sink.audit.report import AuditFinding, FindingKind
from sink.audit.timeline import Commit, WrittenFile, active_names, read_timeline
from sink.storage.table_files import open_table
from tests.handmade import HandmadeTable
from tests.mutations.edit import LogBlock

BLOCK = LogBlock(3, struct.pack(">iii", 1, 3, 0), b"rows", struct.pack(">i", 0)).packed()


class LoggedTable:
    """A table of one file group: a base file, a log file, and another one that came while a compaction ran."""

    def __init__(self, path: Path) -> None:
        self.table = HandmadeTable(path)
        first_base = self.table.write_file(f"group-0_0-0-0_{(first := self.table.tick())}.parquet", [(0, 1)])
        self.table.complete(first, [self.table.stat("group-0", first_base, 1)])
        self.merged_log = self.log()
        self.compaction = self.table.tick()
        self.newest_log = self.log()
        base = self.table.write_file(f"group-0_0-0-0_{self.compaction}.parquet", [(0, 1)])
        self.table.complete(self.compaction, [self.table.stat("group-0", base, 1)], operation="COMPACT")

    def log(self, in_commit: bool = True, instant: str = "", file_id: str = "group-0", content: bytes = BLOCK) -> Path:
        instant = instant or self.table.tick()
        path = self.table.path / f".{file_id}_{instant}.log.{1 if in_commit else 2}_0-0-0"
        path.write_bytes(content)
        if in_commit:
            self.table.complete(instant, [self.table.stat(file_id, path, 1)], operation="UPSERT")
        return path

    def findings(self) -> dict[str, FindingKind]:
        """Returns the kind of each finding by the name of its file."""
        return {_name(finding): finding.kind for finding in self.found()}

    def found(self) -> Sequence[AuditFinding]:
        table = open_table(str(self.table.path))
        timeline = read_timeline(table, active_names(table))
        return check_storage(table, timeline, named_files(timeline.commits)).findings


def _name(finding: AuditFinding) -> str:
    return finding.sentence.split()[0]


@pytest.fixture
def logged(tmp_path: Path) -> LoggedTable:
    return LoggedTable(tmp_path / "table")


def test_files_that_commits_name_are_sound_and_what_a_compaction_merged_may_be_cleaned(logged: LoggedTable) -> None:
    assert logged.findings() == {}
    logged.merged_log.unlink()
    assert logged.findings() == {}


def test_a_log_file_that_came_while_a_compaction_ran_is_missed(logged: LoggedTable) -> None:
    logged.newest_log.unlink()
    assert logged.findings() == {logged.newest_log.name: FindingKind.FILE_MISSING}


def test_a_log_file_that_no_commit_names_is_told_from_one_that_no_reader_takes(logged: LoggedTable) -> None:
    newest_instant = logged.newest_log.name.split("_")[1][:17]
    merged_instant = logged.merged_log.name.split("_")[1][:17]
    merged = logged.log(in_commit=False, instant=newest_instant)
    alone = logged.log(in_commit=False, instant=newest_instant, file_id="other-0")
    before_every_instant = logged.log(in_commit=False, instant="2025" + newest_instant[4:], file_id="third-0")
    hidden = logged.log(in_commit=False, instant=merged_instant)
    pending = logged.log(in_commit=False)
    changes = logged.table.path / f"{merged.name}.cdc"
    changes.touch()
    assert logged.findings() == {
        merged.name: FindingKind.FILE_UNNAMED,
        alone.name: FindingKind.FILE_UNNAMED,
        before_every_instant.name: FindingKind.FILE_UNNAMED,
        hidden.name: FindingKind.STRAY,
        pending.name: FindingKind.STRAY,
    }


def test_rows_that_others_deleted_are_those_of_other_writers_and_other_sinks_but_of_no_compaction() -> None:
    def commit(number: int, operation: str, *sinks: str) -> Commit:
        file = WrittenFile("group-0", f"group-0_0-0-0_{number}.parquet", "", 5, 0, number, 1)
        checkpoints = {sink: AuditedCheckpoint(sink, "", 1, number, 0, {}, {}) for sink in sinks}
        return Commit(str(number), str(number), "commit", operation, (file,), frozenset(), checkpoints, {})

    files = named_files(
        [commit(1, "UPSERT", "ours"), commit(2, "UPSERT", "theirs"), commit(4, "COMPACT"), commit(8, "DELETE")]
    )
    assert [(str(deleting.instant), most) for deleting, most in files.removals] == [("8", 8)]
    assert (files.removed_beside("ours"), files.removed_beside("theirs")) == (2 + 8, 1 + 8)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "has no block"),
        (BLOCK[:-1], "bytes, and"),
        (BLOCK + b"\0", f"no block of a log begins at byte {len(BLOCK)}"),
        (b"#HUDI?" + BLOCK[6:], "no block of a log begins at byte 0"),
        (BLOCK[:6] + struct.pack(">q", 1 << 62) + BLOCK[14:], "bytes, and"),
        (BLOCK[:6] + struct.pack(">q", -1) + BLOCK[14:], "bytes, and"),
        (BLOCK[:-8] + struct.pack(">q", 5), "bytes by its head, -1 by its end"),
    ],
    ids=["empty", "cut short", "more", "another magic", "too long", "negative", "two lengths"],
)
def test_a_log_file_that_is_not_whole_is_named(logged: LoggedTable, content: bytes, reason: str) -> None:
    path = logged.log(content=content)
    [finding] = logged.found()
    assert finding.kind is FindingKind.FILE_UNREADABLE
    assert finding.sentence.startswith(path.name)
    assert reason in finding.sentence
