"""A row of a kept table that names what has not written it is found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sink.audit.checkpoints import NO_TRANSACTION, AuditedCheckpoint, AuditedResult, AuditedSlice, LogPartition
from sink.audit.content.owners import OTHER_WRITERS, OwnedRange, numbers_beside, owned_beside
from sink.audit.report import FindingKind, Report
from sink.audit.timeline import Commit, Relanded, ReplayedRun
from tests.mutations.edit import Edited, rows_of, with_cell
from tests.mutations.kept import KeptTable, unpack

Kept = Callable[[str], Edited]
Lie = Callable[[Edited, Mapping[str, Any]], Mapping[str, Any]]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    directory = tmp_path_factory.mktemp("kept")
    tables = {name: Edited(unpack(name, directory)) for name in ("appends", "copied")}
    return tables.__getitem__


def _newest(edited: Edited) -> Path:
    return max(edited.files(), key=lambda path: path.name.rpartition("_")[2])


def _change_first_row(edited: Edited, cells: Mapping[str, Any]) -> None:
    for name, value in cells.items():
        edited.change_rows(_newest(edited), lambda rows, name=name, value=value: with_cell(rows, 0, name, value))


def _without_the_beginning(edited: Edited, first: int) -> None:
    """Has the log begin at this offset."""
    log = edited.directory / "log.jsonl"
    head, *records = log.read_text().splitlines()
    kept = [record for record in records if json.loads(record)["offset"] >= first]
    log.write_text("\n".join([head, *kept]) + "\n")


def audited(edited: Edited) -> tuple[Report, set[FindingKind]]:
    report = KeptTable(edited.directory).audit()
    return report, {finding.kind for finding in report.failures}


def _another_own(edited: Edited, row: Mapping[str, Any]) -> Mapping[str, Any]:
    instants = [path.name[:17] for path in edited.own_commits()]
    return {"_hoodie_commit_time": next(each for each in instants if each != row["_hoodie_commit_time"])}


def _a_rewrite(edited: Edited, _: Mapping[str, Any]) -> Mapping[str, Any]:
    """The instant of a clustering, where there is one."""
    own = {*edited.own_commits()}
    found = [path.name[:17] for path in edited.commits() if path not in own]
    return {"_hoodie_commit_time": [*found, "20200101000000000"][0]}


LIES: dict[str, Lie] = {
    "an offset behind all that landed": lambda _, __: {"_kafka_offset": 1_000_000},
    "an offset of another commit": lambda _, row: {"_kafka_offset": 0 if row["_kafka_offset"] else 1_000},
    "a partition that nobody reads": lambda _, __: {"_kafka_partition": 9},
    "no topic": lambda _, __: {"_kafka_topic": None},
    "another commit of the sink": _another_own,
    "a commit that moved rows, or that nobody made": _a_rewrite,
}


@pytest.mark.parametrize("table", ["appends", "copied"])
@pytest.mark.parametrize("lie", LIES)
def test_a_row_that_its_commit_has_not_written_is_found(lie: str, table: str, kept: Kept, tmp_path: Path) -> None:
    edited = kept(table).copy("broken", tmp_path)
    edited.without_metadata_table()
    row = rows_of(_newest(edited)).to_pylist()[0]
    _change_first_row(edited, {"price": -7.25, **LIES[lie](edited, row)})
    report, found = audited(edited)
    assert {FindingKind.OUTSIDE, FindingKind.ABSENT} <= found
    assert report.content is not None
    assert report.content.not_compared == {}


def test_a_row_of_another_commit_is_found_though_its_record_has_expired(kept: Kept, tmp_path: Path) -> None:
    edited = kept("appends").copy("broken", tmp_path)
    edited.without_metadata_table()
    _without_the_beginning(edited, 8)
    assert KeptTable(edited.directory).audit().held
    path, number, row = next(
        (path, number, row)
        for path in edited.files()
        for number, row in enumerate(rows_of(path).to_pylist())
        if row["_kafka_offset"] < 8
    )
    other = _another_own(edited, row)["_hoodie_commit_time"]
    edited.change_rows(path, lambda rows: with_cell(rows, number, "_hoodie_commit_time", other))
    report, found = audited(edited)
    assert found == {FindingKind.OUTSIDE}
    [sentence] = [finding.sentence for finding in report.failures]
    place = f"orders-{row['_kafka_partition']} offset {row['_kafka_offset']}"
    assert sentence.startswith(f"{place} is in the table, and commit {other} of its row has not written it (")


@pytest.mark.parametrize(("changed", "is_held"), [(1, True), (2, False)])
def test_another_writer_has_as_many_rows_as_it_has_changed(
    changed: int, is_held: bool, kept: Kept, tmp_path: Path
) -> None:
    edited = kept("copied").copy("broken", tmp_path)
    edited.without_metadata_table()
    newest = edited.commits()[-1]
    instant = f"{int(newest.name[:17]) + 1}"
    theirs = newest.with_name(f"{instant}_{int(newest.name[18:35]) + 1}.commit")
    shutil.copy(newest, theirs)

    def with_one_update(document: dict[str, Any]) -> None:
        document["extraMetadata"] = {"schema": document["extraMetadata"]["schema"]}
        stats = [stat for found in document["partitionToWriteStats"].values() for stat in found]
        for number, stat in enumerate(stats):
            stat.update(numInserts=0, numUpdateWrites=int(number == 0), numDeletes=0)

    edited.change_commit(theirs, with_one_update)
    for number in range(changed):
        for name, value in (("_hoodie_commit_time", instant), ("price", -9.0)):
            edited.change_rows(
                _newest(edited), lambda rows, at=number, name=name, value=value: with_cell(rows, at, name, value)
            )
    report, found = audited(edited)
    assert (report.held, report.content and report.content.not_compared) == (
        (True, {"rows of other writers": 1}) if is_held else (False, {})
    )
    assert found == (set() if is_held else {FindingKind.OUTSIDE, FindingKind.ABSENT, FindingKind.SURPLUS})


@pytest.mark.parametrize("value", [True, None])
def test_the_column_by_which_hudi_deletes_rows_is_compared(value: bool | None, kept: Kept, tmp_path: Path) -> None:
    edited = kept("copied").copy("broken", tmp_path)
    edited.without_metadata_table()
    _change_first_row(edited, {"_hoodie_is_deleted": value})
    report, found = audited(edited)
    assert found == {FindingKind.CELL}
    assert "column _hoodie_is_deleted: the table has" in report.failures[0].sentence


def test_another_sinks_commit_owns_its_slices_replays_and_repairs_alone() -> None:
    piece = AuditedSlice("clicks", 1, 5, 9, "id", 0)
    run = ReplayedRun("clicks", "id", 1, 0, 2, 3)
    theirs = AuditedCheckpoint(
        "theirs", "cluster", 1, 1, NO_TRANSACTION, {"clicks": "id"}, {}, (AuditedResult(piece, 4, 0),)
    )
    ours = AuditedCheckpoint("ours", "cluster", 1, 1, NO_TRANSACTION, {}, {})
    instant, own = "20260101000000000", "20260102000000000"
    commits = [
        Commit(
            instant,
            instant,
            "commit",
            "UPSERT",
            (),
            frozenset(),
            {"theirs": theirs},
            {},
            {"theirs": (run,)},
            relanded={"theirs": Relanded(1, (run,))},
        ),
        Commit(own, own, "commit", "UPSERT", (), frozenset(), {"ours": ours}, {}),
    ]
    numbers = numbers_beside("ours", commits)
    assert numbers == {instant: OTHER_WRITERS}
    source = LogPartition("clicks", 1)
    assert {*owned_beside("ours", commits, numbers)} == {
        OwnedRange(source, OTHER_WRITERS, 5, 9),
        OwnedRange(source, OTHER_WRITERS, 2, 3),
    }
