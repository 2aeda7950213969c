"""Each record key has one row, unless a writer that looked up no key inserted more; a commit has as many rows as it
wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from sink.audit.checkpoints import NO_TRANSACTION, AuditedCheckpoint
from sink.audit.keys import check_keys
from sink.audit.report import AuditFindings, FindingKind
from sink.audit.timeline import Commit, WrittenFile

FIRST, BLIND, UPSERT = "20260101000000000", "20260102000000000", "20260103000000000"
CHECKPOINT = AuditedCheckpoint("orders", "cluster", 1, 1, NO_TRANSACTION, {}, {})
Row = tuple[str, str, int | None]
"""Record key, instant and offset."""


def commit(
    instant: str, operation: str, by_sink: bool, groups: str = "ab", inserts: int = 2, updates: int = 0
) -> Commit:
    files = tuple(
        WrittenFile(f"{group}-0", f"{group}-0_0-0-0_{instant}.parquet", "", 9, inserts, 0, 1, updates=updates)
        for group in groups
    )
    checkpoints = {"orders": CHECKPOINT} if by_sink else {}
    return Commit(instant, instant, "commit", operation, files, frozenset(), checkpoints, {})


COMMITS = (commit(FIRST, "UPSERT", True), commit(BLIND, "INSERT", False, inserts=1), commit(UPSERT, "UPSERT", True))


def checked(
    directory: Path, files: Sequence[Sequence[Row]], commits: Sequence[Commit] = COMMITS
) -> list[tuple[FindingKind, str]]:
    """Checks rows in a file of each of the file groups `a`, `b` and so on."""

    def batch(rows: Sequence[Row]) -> pa.RecordBatch:
        columns = {
            "_hoodie_record_key": pa.array([key for key, _, _ in rows], pa.string()),
            "_hoodie_commit_time": pa.array([instant for _, instant, _ in rows], pa.string()),
            "_kafka_topic": pa.array(["orders"] * len(rows), pa.string()),
            "_kafka_partition": pa.array([0] * len(rows), pa.int32()),
            "_kafka_offset": pa.array([offset for _, _, offset in rows], pa.int64()),
        }
        return pa.RecordBatch.from_pydict(columns)

    streams = [
        ("", f"{group}-0_0-0-0_{UPSERT}.parquet", lambda rows=rows: iter([batch(rows)]))
        for group, rows in zip("abcdef", files, strict=False)
    ]
    findings = AuditFindings()
    assert check_keys(streams, (), commits, directory, findings, global_keys=False) == sum(map(len, files))
    return [(finding.kind, finding.sentence) for finding in findings.all()]


def test_a_key_that_was_inserted_again_is_only_noted(tmp_path: Path) -> None:
    [(kind, sentence)] = checked(tmp_path, [[("k", FIRST, 0)], [("k", BLIND, None)]])
    assert (kind, sentence) == (
        FindingKind.OTHERS,
        f"1 record keys have several rows; these commits inserted rows and looked up no key: {BLIND} (INSERT)",
    )


def test_a_change_of_a_key_with_rows_in_two_file_groups_is_in_each_of_them(tmp_path: Path) -> None:
    assert [kind for kind, _ in checked(tmp_path, [[("k", UPSERT, 5)], [("k", UPSERT, 5)]])] == [FindingKind.OTHERS]


def test_a_row_that_is_twice_in_a_file_group_of_its_commit_is_found_beside_an_insert(tmp_path: Path) -> None:
    [(kind, sentence)] = checked(tmp_path, [[("k", UPSERT, 5), ("k", UPSERT, 5)]])
    assert kind is FindingKind.DUPLICATE
    assert sentence.startswith("record key 'k' has 2 rows in table partition (root): a-0_")


def test_rows_of_a_key_that_a_clustering_brought_together_are_only_noted(tmp_path: Path) -> None:
    clustered = "c"
    files: list[list[Row]] = [[], [], [("k", UPSERT, 5), ("k", UPSERT, 5)]]
    moved = commit("20260104000000000", "CLUSTER", False, clustered)
    assert [kind for kind, _ in checked(tmp_path, files, [*COMMITS, moved])] == [FindingKind.OTHERS]


def test_a_key_with_two_rows_of_before_the_insert_is_found(tmp_path: Path) -> None:
    found = checked(tmp_path, [[("k", FIRST, 0)], [("k", FIRST, 1), ("again", FIRST, 2), ("again", BLIND, None)]])
    assert [kind for kind, _ in found] == [FindingKind.DUPLICATE, FindingKind.OTHERS]
    assert found[0][1].startswith("record key 'k' has 2 rows in table partition (root): a-0_")
    assert found[1][1].startswith("1 record keys have several rows")


def test_more_rows_too_many_than_were_inserted_are_found(tmp_path: Path) -> None:
    keys = ("k", "l", "m")
    files = [[(key, UPSERT, at) for at, key in enumerate(keys)], [(key, BLIND, None) for key in keys[:2]]]
    files[1].append(("m", UPSERT, 2))
    found = checked(tmp_path, files)
    assert {kind for kind, _ in found} == {FindingKind.DUPLICATE}
    assert found[0][1] == f"3 record keys have 3 rows too many; 2 were inserted by {BLIND} (INSERT)"
    assert len(found) == 1 + len(keys)


def test_more_rows_of_a_commit_than_it_wrote_are_found(tmp_path: Path) -> None:
    commits = [
        commit(FIRST, "UPSERT", True, "a", inserts=1, updates=1),
        commit(BLIND, "COMPACT", False, "a", updates=9),
    ]
    assert checked(tmp_path, [[("k", FIRST, 0), ("l", FIRST, 1)]], commits) == []
    directory = tmp_path / "more"
    directory.mkdir()
    found = checked(directory, [[("k", FIRST, 0), ("l", FIRST, 1), ("m", FIRST, 2), ("n", BLIND, 3)]], commits)
    assert found == [
        (
            FindingKind.SURPLUS,
            f"commit {FIRST} (UPSERT) inserted or changed 2 rows, and 3 rows of the table name it",
        ),
        (
            FindingKind.SURPLUS,
            f"commit {BLIND} (COMPACT) inserted or changed 0 rows, and 1 rows of the table name it",
        ),
    ]
