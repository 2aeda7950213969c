"""Changes of two writers conflict if one would undo the other's, or if both may have added one key."""

from __future__ import annotations

import json

import pytest

from sink.hudi.conflicts import TableChanges, table_changes


def stat(file_id: str, partition: str, inserts: int = 0, earlier: str | None = "20260101000000000") -> str:
    return json.dumps({"fileId": file_id, "partitionPath": partition, "numInserts": inserts, "prevCommit": earlier})


@pytest.mark.parametrize(
    ("theirs", "key_is_global", "conflicts"),
    [
        (TableChanges(frozenset({"a"})), False, True),
        (TableChanges(frozenset({"other"})), True, False),
        (TableChanges(grown=frozenset({"day=mon"})), False, True),
        (TableChanges(grown=frozenset({"day=tue"})), False, True),
        (TableChanges(grown=frozenset({"day=wed"})), False, False),
        (TableChanges(grown=frozenset({"day=wed"})), True, True),
        (TableChanges(grown=frozenset({"day=thu"})), False, False),
        (TableChanges(replaces=True), True, True),
        (TableChanges(replaces=True), False, False),
        (TableChanges(undone=frozenset({"20260101000000000"})), False, True),
        (TableChanges(undone=frozenset({"20260102000000000"})), True, False),
        (TableChanges(), True, False),
    ],
)
def test_a_change_of_the_same_files_and_new_keys_in_one_partition_conflict(
    theirs: TableChanges, key_is_global: bool, conflicts: bool
) -> None:
    stats = [
        stat("a", "day=wed"),
        stat("b", "day=mon", inserts=1),
        # A delete of a key that is not there makes a file group, too, which a bucket has only once.
        stat("c", "day=tue", earlier="null"),
    ]
    assert table_changes(stats, looks_keys_up=True).conflicts_with(theirs, key_is_global) is conflicts


@pytest.mark.parametrize(("partition", "conflicts"), [("", False), ("day=mon", True)])
def test_a_row_may_have_moved_while_file_groups_were_replaced_where_there_are_table_partitions(
    partition: str, conflicts: bool
) -> None:
    added = table_changes([stat("a", partition, inserts=1, earlier=None)], looks_keys_up=True)
    assert added.conflicts_with(TableChanges(replaces=True), key_is_global=True) is conflicts
    updated = table_changes([stat("a", partition)], looks_keys_up=True)
    assert not updated.conflicts_with(TableChanges(replaces=True), key_is_global=True)


def test_rows_that_are_inserted_without_looking_keys_up_conflict_with_no_new_keys() -> None:
    changes = table_changes([stat("a", "", inserts=1), stat("b", "", inserts=1, earlier=None)], looks_keys_up=False)
    assert changes == TableChanges(frozenset({"a"}), built_on=frozenset({"20260101000000000"}))
