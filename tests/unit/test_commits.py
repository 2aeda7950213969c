"""The tools' reader of commits gives each commit once, or an error; where rows are is read from what commits say."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from coordination.errors import TableError
from sink.hudi.commits import active_names, completed_commits, read_commits
from sink.hudi.existing_rows import rows_conflict
from sink.hudi.file_groups import FileGroups
from sink.storage.table_files import open_table
from tests.handmade import SINK, HandmadeTable, span
from tests.one_sink import load
from tests.unit.test_audit_log_files import LoggedTable


@pytest.fixture
def table(tmp_path: Path) -> HandmadeTable:
    """A table of three commits, the first of which is archived."""
    table = HandmadeTable(tmp_path / "table")
    for start in (0, 10, 20):
        table.commit(span(0, start, start + 10))
    return table


def archive_first(table: HandmadeTable) -> str:
    instant = min(table.timeline.glob("*_*.commit")).name[:17]
    table.archive(instant)
    return instant


def test_each_commit_comes_once_though_one_is_archived_after_the_listing(table: HandmadeTable) -> None:
    files = open_table(str(table.path))
    listed = active_names(files)
    first = archive_first(table)
    for names in (listed, active_names(files)):
        commits = list(read_commits(files, names))
        assert [commit.is_archived for commit in commits] == [False, False, True]
        assert commits[-1].instant == first
        assert len({commit.instant for commit in commits}) == 3
        assert all(commit.checkpoints.keys() == {SINK} for commit in commits)


def test_a_commit_that_is_archived_after_it_was_read_does_not_come_again(table: HandmadeTable) -> None:
    files = open_table(str(table.path))
    reading = read_commits(files, active_names(files))
    instants = [next(reading).instant]
    assert archive_first(table) == instants[0]
    instants += [commit.instant for commit in reading]
    assert len(instants) == len(set(instants)) == 3


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda path: next(path.glob("history/manifest_*")).unlink(), "manifest_1"),
        (lambda path: next(path.glob("history/manifest_*")).write_text("{"), "JSONDecodeError"),
        (lambda path: next(path.glob("history/*.parquet")).unlink(), "/history/"),
        (lambda path: next(path.glob("history/*.parquet")).write_bytes(b"PAR1"), "Parquet"),
        (lambda path: max(path.glob("*_*.commit")).write_bytes(b"Obj"), r"\d{17}_\d{17}\.commit"),
    ],
)
def test_a_timeline_that_cannot_be_read_whole_is_refused(
    table: HandmadeTable, damage: Callable[[Path], None], named: str
) -> None:
    archive_first(table)
    damage(table.timeline)
    files = open_table(str(table.path))
    with pytest.raises(TableError, match=f"the timeline cannot be read whole .*{named}.*. See `sink audit`"):
        list(read_commits(files, active_names(files)))


def groups_of(table: HandmadeTable) -> FileGroups:
    groups = FileGroups()
    for commit in completed_commits(open_table(str(table.path))):
        groups.add(commit)
    return groups


def conflict(path: Path) -> str | None:
    """Says why `index.type=bloom` would miss rows of the table."""
    config = path.with_name("sink.properties")
    settings = {
        "zookeeper.connect": "zk:2181",
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.topic.names": "orders",
        "target.base.path": str(path),
        "target.table.name": "orders",
        "schema.ddl": "id long",
        "write.operation": "upsert",
        "record.key.fields": "id",
        "index.type": "bloom",
    }
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return rows_conflict(load(config, {}).table, nullcontext())


def test_rows_of_log_files_are_in_a_base_file_once_a_compaction_that_began_later_is_complete(tmp_path: Path) -> None:
    logged = LoggedTable(tmp_path / "table")
    assert groups_of(logged.table).logged == {("", "group-0")}
    instant = logged.table.tick()
    base = logged.table.write_file(f"group-0_0-0-0_{instant}.parquet", [(0, 1)])
    logged.table.complete(instant, [logged.table.stat("group-0", base, 1)], operation="COMPACT")
    groups = groups_of(logged.table)
    assert not groups.logged
    assert groups.base_files["", "group-0"].path == base.name
    logged.table.complete(logged.table.tick(), [], operation="CLUSTER", replaced=["group-0"])
    assert not groups_of(logged.table).base_files


def test_rows_that_a_sink_appended_are_refused(table: HandmadeTable) -> None:
    assert f"rows that sink {SINK} has appended" in str(conflict(table.path))
