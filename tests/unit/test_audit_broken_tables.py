"""The audit must be able to fail: each test breaks a sound table in one way, and the audit names it."""

from __future__ import annotations

import base64
import json
import shutil
import zlib
from pathlib import Path
from random import Random

import pytest

from coordination.errors import TableError
from sink import cli
from sink.audit.audit import audit
from sink.audit.failures import CannotAudit, TryAgain
from sink.audit.report import FindingKind
from sink.audit.timeline import active_names, read_timeline
from sink.storage.table_files import open_table
from tests.handmade import SINK, AddedFile, HandmadeTable, kinds, sentences, span


@pytest.fixture
def table(tmp_path: Path) -> HandmadeTable:
    """Three transactions over two partitions; offset 25 of partition 0 never was a record."""
    table = HandmadeTable(tmp_path / "table")
    table.commit(span(0, 0, 10), span(1, 0, 5))
    table.commit(AddedFile(0, [*range(10, 25), *range(26, 40)], 10, 40))
    table.commit(span(0, 40, 50), span(1, 5, 20))
    return table


def test_a_sound_table_holds_and_is_counted_to_the_row(table: HandmadeTable) -> None:
    report = table.audit()
    assert report.held, report.failures
    assert [
        (partition.partition, partition.rows, partition.first, partition.last, partition.end, partition.gaps)
        for partition in report.partitions
    ] == [
        (0, 49, 0, 49, 50, 1),
        (1, 20, 0, 19, 20, 0),
    ]
    assert (report.rows, report.commits, report.duplicates, report.missing) == (69, 3, 0, 0)


def test_a_dropped_file_is_missing_and_so_are_its_rows(table: HandmadeTable) -> None:
    instant = sorted(table.timeline.glob("*_*.commit"))[1].name[:17]
    [file] = table.files_of(instant)
    file.unlink()
    report = table.audit()
    assert kinds(report) >= {FindingKind.FILE_MISSING, FindingKind.MISSING}
    assert file.name in sentences(report, FindingKind.FILE_MISSING)
    assert "orders-0[10, 40)" in sentences(report, FindingKind.MISSING)
    assert report.missing == 29


def test_a_file_copied_under_another_file_id_is_duplicates(table: HandmadeTable) -> None:
    file = sorted(table.path.glob("file-3-1-*"))[0]
    copy = file.with_name(file.name.replace("file-3-1-0", "copied-0"))
    shutil.copy(file, copy)
    report = table.audit()
    assert kinds(report) == {FindingKind.DUPLICATE, FindingKind.FILE_UNNAMED}
    assert report.duplicates == 15
    assert "orders-1 offset 5 to 19" in sentences(report, FindingKind.DUPLICATE)
    assert copy.name in sentences(report, FindingKind.DUPLICATE)
    assert file.name in sentences(report, FindingKind.DUPLICATE)


def test_a_copy_under_an_instant_that_never_completed_is_only_noted(table: HandmadeTable) -> None:
    file = sorted(table.path.glob("file-3-1-*"))[0]
    instant = table.tick()
    (table.timeline / f"{instant}.commit.requested").touch()
    shutil.copy(file, table.path / f"copied-0_0-0-0_{instant}.parquet")
    report = table.audit()
    assert report.held, report.failures
    assert "did not complete" in sentences(report, FindingKind.STRAY)


def test_an_added_row_file_is_rows_outside_every_range(table: HandmadeTable) -> None:
    instant = sorted(table.timeline.glob("*_*.commit"))[2].name[:17]
    table.write_file(f"added-0_0-0-0_{instant}.parquet", [(0, 77), (7, 3)])
    report = table.audit()
    assert kinds(report) == {FindingKind.OUTSIDE, FindingKind.FILE_UNNAMED}
    assert "orders-0 offset 77 is in the table, but in no committed range" in sentences(report, FindingKind.OUTSIDE)
    assert "orders-7 offset 3" in sentences(report, FindingKind.OUTSIDE)


def test_a_truncated_file_is_named(table: HandmadeTable) -> None:
    file = sorted(table.path.glob("file-3-0-*"))[0]
    file.write_bytes(file.read_bytes()[:-20])
    report = table.audit()
    assert kinds(report) == {FindingKind.FILE_SIZE, FindingKind.MISSING}
    assert file.name in sentences(report, FindingKind.FILE_SIZE)


def test_a_file_of_the_same_size_whose_bytes_are_gone_is_unreadable(table: HandmadeTable) -> None:
    file = sorted(table.path.glob("file-3-0-*"))[0]
    file.write_bytes(b"x" * file.stat().st_size)
    assert FindingKind.FILE_UNREADABLE in kinds(table.audit())


def test_a_removed_commit_breaks_the_chain_and_leaves_a_hole(table: HandmadeTable) -> None:
    sorted(table.timeline.glob("*_*.commit"))[1].unlink()
    report = table.audit()
    assert kinds(report) >= {FindingKind.BROKEN_CHAIN, FindingKind.RANGE_HOLE}
    assert "transaction 3" in sentences(report, FindingKind.BROKEN_CHAIN)
    assert "orders-0[40, 50) follows offset 10" in sentences(report, FindingKind.RANGE_HOLE)


def test_a_forged_end_is_found(table: HandmadeTable) -> None:
    instant = sorted(table.timeline.glob("*_*.commit"))[2].name[:17]
    table.rewrite_commit(instant, lambda checkpoint: checkpoint["ends"]["orders"].update({"0": [60, 0]}))
    report = table.audit()
    assert kinds(report) == {FindingKind.END_MISMATCH}
    assert "orders-0 ends at 60, its ranges at 50" in sentences(report, FindingKind.END_MISMATCH)


def test_a_forged_range_and_end_do_not_match_the_rows(table: HandmadeTable) -> None:
    def forge(checkpoint: dict) -> None:  # type: ignore[type-arg]
        checkpoint["ends"]["orders"]["0"] = [60, 0]
        checkpoint["results"][0] = ["orders", 0, 40, 60, 0, 20, "0", 0]

    table.rewrite_commit(sorted(table.timeline.glob("*_*.commit"))[2].name[:17], forge)
    report = table.audit()
    assert kinds(report) == {FindingKind.COMMIT_COUNT, FindingKind.MISSING}
    assert report.missing == 10


def test_a_row_too_many_in_a_range_is_a_surplus(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "table")
    table.commit(AddedFile(0, range(10), 0, 10, records=9))
    assert kinds(table.audit()) == {FindingKind.SURPLUS, FindingKind.COMMIT_COUNT}


def test_a_garbled_checkpoint_is_unreadable_and_never_taken_for_a_foreign_commit(
    table: HandmadeTable,
) -> None:
    [path] = sorted(table.timeline.glob("*_*.commit"))[1:2]
    table.rewrite_commit(path.name[:17], lambda checkpoint: checkpoint.update(number="two"))
    report = table.audit()
    assert FindingKind.UNREADABLE_CHECKPOINT in kinds(report)
    assert path.name in sentences(report, FindingKind.UNREADABLE_CHECKPOINT)


def test_a_truncated_commit_file_is_named(table: HandmadeTable) -> None:
    path = sorted(table.timeline.glob("*_*.commit"))[1]
    path.write_bytes(path.read_bytes()[:200])
    report = table.audit()
    assert path.name in sentences(report, FindingKind.UNREADABLE_INSTANT)


def test_a_commit_file_with_bytes_changed_anywhere_is_read_or_named(table: HandmadeTable) -> None:
    path, random = sorted(table.timeline.glob("*_*.commit"))[1], Random(1)
    sound, files = path.read_bytes(), open_table(str(table.path))
    unread = 0
    for _ in range(3000):
        spoiled = bytearray(sound)
        for _ in range(random.choice((1, 1, 2, 5))):
            spoiled[random.randrange(len(sound))] = random.randrange(256)
        path.write_bytes(spoiled if random.random() < 0.8 else spoiled[: random.randrange(len(sound))])
        problems = read_timeline(files, active_names(files)).problems
        unread += any(path.name in problem.sentence for problem in problems)
    assert unread > 500


def test_archived_checkpoints_are_part_of_the_chain(table: HandmadeTable) -> None:
    first, second, _ = (path.name[:17] for path in sorted(table.timeline.glob("*_*.commit")))
    table.archive(first)
    table.archive(second)
    report = table.audit()
    assert report.held, report.failures
    assert report.commits == 3


def test_a_lost_archive_file_breaks_the_chain(table: HandmadeTable) -> None:
    table.archive(sorted(table.timeline.glob("*_*.commit"))[0].name[:17])
    next((table.timeline / "history").glob("*.parquet")).unlink()
    report = table.audit()
    assert kinds(report) >= {FindingKind.UNREADABLE_INSTANT, FindingKind.BROKEN_CHAIN}


def test_one_number_in_two_commits_is_found(table: HandmadeTable) -> None:
    table.number -= 1
    table.commit(span(0, 50, 60))
    assert FindingKind.REPEATED_NUMBER in kinds(table.audit())


def test_a_checkpoint_published_again_without_rows_is_legal(table: HandmadeTable) -> None:
    table.complete(table.tick(), [], json.dumps(table.checkpoint | {"results": []}))
    assert table.audit().held


def test_a_large_checkpoint_is_read_compressed(table: HandmadeTable) -> None:
    packed = base64.b64encode(
        zlib.compress(json.dumps(table.checkpoint | {"number": 4, "base": 3, "results": []}).encode())
    )
    table.complete(table.tick(), [], f"zlib:{packed.decode()}")
    report = table.audit()
    assert report.held, report.failures
    assert report.commits == 4


def test_a_missing_partition_metafile_is_found(table: HandmadeTable) -> None:
    (table.path / ".hoodie_partition_metadata").unlink()
    assert kinds(table.audit()) == {FindingKind.PARTITION_METAFILE}


def test_rows_deleted_by_others_are_named_and_not_held_against_us(table: HandmadeTable) -> None:
    [old_file] = table.path.glob("file-3-1-*")
    instant = table.tick()
    path = table.write_file(f"file-3-1-0_1-1-1_{instant}.parquet", ((1, offset) for offset in range(5, 18)))
    table.complete(instant, [table.stat("file-3-1-0", path, 0, writes=13, deletes=2)], operation="DELETE")
    old_file.unlink()
    report = table.audit()
    assert report.held, report.failures
    assert report.missing == 0
    assert f"2 rows are gone; commits of other writers deleted them: {instant} (DELETE)" in sentences(
        report, FindingKind.OTHERS
    )


def test_more_rows_gone_than_others_deleted_is_missing(table: HandmadeTable) -> None:
    instant = table.tick()
    path = table.write_file(f"file-3-1-0_1-1-1_{instant}.parquet", ((1, offset) for offset in range(5, 15)))
    table.complete(instant, [table.stat("file-3-1-0", path, 0, writes=10, deletes=2)], operation="DELETE")
    report = table.audit()
    assert kinds(report) == {FindingKind.MISSING}
    assert report.missing == 5


def test_a_clustering_by_others_moves_rows_and_loses_none(table: HandmadeTable) -> None:
    replaced_ids = [path.name.partition("_")[0] for path in sorted(table.path.glob("file-*.parquet"))]
    rows = [(0, offset) for offset in range(50) if offset != 25] + [(1, offset) for offset in range(20)]
    instant = table.tick()
    path = table.write_file(f"clustered-0_1-1-1_{instant}.parquet", reversed(rows))
    table.complete(instant, [table.stat("clustered-0", path, len(rows))], operation="CLUSTER", replaced=replaced_ids)
    report = table.audit()
    assert report.held, report.failures
    assert (report.rows, report.others) == (69, 0)


def test_a_clustering_that_lost_a_row_is_found(table: HandmadeTable) -> None:
    replaced_ids = [path.name.partition("_")[0] for path in sorted(table.path.glob("file-*.parquet"))]
    rows = [(0, offset) for offset in range(50) if offset != 25] + [(1, offset) for offset in range(19)]
    instant = table.tick()
    path = table.write_file(f"clustered-0_1-1-1_{instant}.parquet", rows)
    table.complete(instant, [table.stat("clustered-0", path, len(rows))], operation="CLUSTER", replaced=replaced_ids)
    assert kinds(table.audit()) == {FindingKind.MISSING}


def test_rows_written_under_a_replaced_file_id_are_missed(table: HandmadeTable) -> None:
    """The trap of a reused id: the commit is complete and its file is there, yet no reader sees it."""
    file = sorted(table.path.glob("file-3-0-*"))[0]
    instant = table.tick()
    path = table.write_file(f"clustered-0_1-1-1_{instant}.parquet", [])
    table.complete(instant, [table.stat("clustered-0", path, 0)], operation="CLUSTER", replaced=["file-3-0-0"])
    assert file.exists()
    report = table.audit()
    assert kinds(report) == {FindingKind.MISSING}
    assert report.missing == 10


def test_a_replay_in_a_new_generation_may_repeat_offsets_once(table: HandmadeTable) -> None:
    table.commit(span(1, 10, 20, generation=1))
    report = table.audit()
    assert report.held, report.failures
    assert "orders-1 offset 10 to 19 was committed 2 times" in sentences(report, FindingKind.REPLAYED)


def test_a_replay_in_the_same_generation_is_an_overlap(table: HandmadeTable) -> None:
    table.commit(span(1, 10, 20))
    assert FindingKind.RANGE_OVERLAP in kinds(table.audit())


def test_without_provenance_counts_are_all_that_is_held(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "table", provenance=False)
    table.commit(span(0, 0, 10), span(1, 0, 5))
    report = table.audit()
    assert report.held, report.failures
    assert not report.provenance
    assert "no provenance columns" in sentences(report, FindingKind.UNPROVEN)
    next(table.path.glob("file-1-1-*")).unlink()
    assert kinds(table.audit()) >= {FindingKind.MISSING, FindingKind.FILE_MISSING}


def test_an_empty_table_is_said_to_be_empty_and_not_to_hold_every_record(tmp_path: Path) -> None:
    report = HandmadeTable(tmp_path / "table").audit()
    assert (report.held, report.empty) == (True, True)
    assert [finding.kind for finding in report.findings] == [FindingKind.EMPTY]
    assert "exactly once" not in report.verdict()
    assert json.loads(report.to_json())["empty"] is True


def test_files_without_a_single_commit_are_a_failure(table: HandmadeTable, tmp_path: Path) -> None:
    for path in table.timeline.glob("2*"):
        path.unlink()
    report = table.audit()
    assert kinds(report) == {FindingKind.NO_COMMIT}
    assert not report.empty
    assert "Held" not in report.verdict()
    assert "file-1-0-0" in sentences(report, FindingKind.NO_COMMIT)
    config = tmp_path / "sink.properties"
    config.write_text(
        "zookeeper.connect=zk\nkafka.bootstrap.servers=b:1\ntopics=orders\nschema.ddl=id BIGINT\n"
        f"target.table.name=orders\ntarget.base.path={table.path}\n"
    )
    assert cli.main(["audit", "--config", str(config), "--no-log"]) == 1


def test_log_files_without_a_single_commit_are_a_failure(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "table")
    (table.path / ".file-1-0_20260101000000000.log.1_0-0-0").write_bytes(b"#HUDI#")
    report = table.audit()
    assert kinds(report) == {FindingKind.NO_COMMIT}
    assert "file-1-0" in sentences(report, FindingKind.NO_COMMIT)


def test_files_of_instants_that_did_not_complete_are_no_answer_while_nothing_is_committed(
    table: HandmadeTable,
) -> None:
    """The first transaction may be under way, or completed instants were deleted: neither held nor broken."""
    for path in table.timeline.glob("2*_*"):
        path.unlink()
    with pytest.raises(TryAgain, match="nothing is committed, and 5 files belong to instants that did not"):
        table.audit()


def test_a_deleted_timeline_is_a_failure_though_its_archive_is_left(table: HandmadeTable) -> None:
    table.archive(sorted(table.timeline.glob("*_*.commit"))[0].name[:17])
    for path in table.timeline.glob("2*"):
        path.unlink()
    report = table.audit()
    assert kinds(report) == {FindingKind.NO_COMMIT}
    assert "1 commits are archived and none is active" in sentences(report, FindingKind.NO_COMMIT)


ODD_NAMES = ["with blank", "per%20cent", "hash#mark", "what?=1&2", "a[b]c", "a*b", "ümläut", "a=b,c"]


@pytest.mark.parametrize("directory_name", ODD_NAMES)
@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_table_path_may_have_odd_characters(tmp_path: Path, directory_name: str, scheme: str) -> None:
    table = HandmadeTable(tmp_path / directory_name / "table")
    table.commit(span(0, 0, 10))
    report = audit(f"{scheme}{table.path}", SINK)
    assert report.held, report.failures
    assert report.rows == 10
    table.files_of(table.commit(span(0, 10, 30)))[0].unlink()
    assert kinds(audit(f"{scheme}{table.path}", SINK)) >= {FindingKind.FILE_MISSING, FindingKind.MISSING}


@pytest.mark.parametrize("content", [None, "folder", "version 6"])
def test_what_is_no_table_is_one_clear_sentence(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "place"
    expected = "it does not exist"
    if content == "folder":
        path.mkdir()
        expected = "not a Hudi table"
    elif content:
        (path / ".hoodie").mkdir(parents=True)
        (path / ".hoodie" / "hoodie.properties").write_text("hoodie.table.version=6\n")
        expected = "table version 6"
    with pytest.raises(TableError, match=expected):
        audit(str(path))


def test_a_sink_that_never_wrote_is_named_with_those_that_did(table: HandmadeTable) -> None:
    with pytest.raises(CannotAudit, match=r"no commit carries a checkpoint of sink other \(found: orders\)"):
        audit(str(table.path), "other")


def test_the_report_as_json_says_the_same(table: HandmadeTable) -> None:
    next(table.path.glob("file-2-*")).unlink()
    report = table.audit()
    document = json.loads(report.to_json())
    assert (document["held"], document["missing"]) == (False, 29)
    assert {finding["kind"] for finding in document["findings"] if finding["fails"]} == {
        kind.name for kind in kinds(report)
    }
