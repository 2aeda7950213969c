"""Which offsets may be landed again: pure decisions, each refusal with its sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordination.errors import ConfigError
from coordination.planning.relanding import (
    CommittedSlice,
    OffsetRange,
    Surveyed,
    differences,
    merged,
    plan_relanding,
)
from coordination.state.model import (
    Checkpoint,
    LogView,
    PartitionCheckpoint,
    PartitionLog,
    Slice,
    SliceResult,
    TopicPartition,
)
from sink.audit.report import AuditFindings
from sink.commands.reland import _print, parse_ranges
from sink.relanding.repair import Preview
from sink.telemetry.terminal import console

SOURCE = TopicPartition("orders", 3)
CHECKPOINT = Checkpoint("s", "k", "c", 1, 3, 2, "", {"orders": "id"}, {SOURCE: PartitionCheckpoint(300, 0)})
LOG = LogView("c", {SOURCE: PartitionLog("id", 0, 500)})


def committed(start: int, end: int, number: int, generation: int = 0, topic_id: str = "id") -> CommittedSlice:
    piece = Slice("orders", 3, start, end, topic_id, generation)
    return CommittedSlice(number, SliceResult(piece, end - start, 7 * number))


COMMITTED = [committed(0, 100, 1), committed(100, 200, 2), committed(200, 300, 3)]


def wanted(start: int, end: int) -> list[OffsetRange]:
    return [OffsetRange("orders", 3, start, end)]


def test_a_range_is_landed_in_pieces_and_needs_the_slices_that_it_meets() -> None:
    plan = plan_relanding(wanted(150, 250), COMMITTED, CHECKPOINT, LOG)
    assert [(piece.start, piece.end) for piece in plan.pieces] == [(150, 250)]
    assert [entry.number for entry in plan.needed] == [2, 3]
    assert (plan.refusals, plan.cut) == ((), frozenset())


def test_by_key_the_whole_log_is_needed() -> None:
    plan = plan_relanding(wanted(150, 151), COMMITTED, CHECKPOINT, LOG, by_key=True)
    assert [entry.number for entry in plan.needed] == [1, 2, 3]
    cut = replace(LOG, partitions={SOURCE: PartitionLog("id", 1, 500)})
    [refusal] = plan_relanding(wanted(150, 151), COMMITTED, CHECKPOINT, cut, by_key=True).refusals
    assert refusal == "orders-3: the log begins at 1, and its records from 0 on are needed"
    assert not plan_relanding(wanted(150, 151), COMMITTED, CHECKPOINT, cut).refusals


@pytest.mark.parametrize(
    ("start", "end", "log", "sentence"),
    [
        (290, 310, LOG, "orders:3=300..309 is in no committed range"),
        (10, 20, replace(LOG, partitions={SOURCE: PartitionLog("id", 15, 500)}), "the log begins at 15"),
        (10, 20, replace(LOG, partitions={SOURCE: PartitionLog("other", 0, 500)}), "was created again since"),
        (10, 20, replace(LOG, partitions={}), "orders-3 is no longer in Kafka"),
        (10, 20, replace(LOG, partitions={SOURCE: PartitionLog("id", 0, 12)}), "the log ends at 12"),
        (10, 20, replace(LOG, cluster="d"), "the Kafka cluster c, and this is d"),
    ],
)
def test_a_repair_is_refused_where_the_log_lacks_what_it_needs(
    start: int, end: int, log: LogView, sentence: str
) -> None:
    [refusal] = plan_relanding(wanted(start, end), COMMITTED, CHECKPOINT, log).refusals
    assert sentence in refusal


def test_offsets_that_were_loaded_twice_or_from_an_earlier_topic_are_refused() -> None:
    twice = [*COMMITTED, committed(50, 80, 4, generation=1)]
    [refusal] = plan_relanding(wanted(60, 70), twice, CHECKPOINT, LOG).refusals
    assert refusal == "orders:3=60..69 was loaded again after a reset: its rows are not told apart"
    earlier = [committed(0, 100, 1, topic_id="earlier")]
    [refusal] = plan_relanding(wanted(60, 70), earlier, CHECKPOINT, LOG).refusals
    assert refusal == "orders:3=60..69 was read from an earlier topic of this name, which is gone"


def test_replayed_records_are_refused() -> None:
    replayed = [OffsetRange("orders", 3, 65, 66)]
    [refusal] = plan_relanding(wanted(60, 70), COMMITTED, CHECKPOINT, LOG, replayed).refusals
    assert refusal.startswith("orders:3=65 was a bad record, and a replay has put another value")
    assert not plan_relanding(wanted(70, 80), COMMITTED, CHECKPOINT, LOG, replayed).refusals
    assert plan_relanding(wanted(70, 80), COMMITTED, CHECKPOINT, LOG, replayed, by_key=True).refusals


def test_the_log_is_compared_with_what_was_committed() -> None:
    plan = plan_relanding(wanted(150, 160), COMMITTED, CHECKPOINT, LOG)
    [needed] = plan.needed
    same = Surveyed(needed.result, {})
    assert differences(plan, {needed.slice: same}, {}) == []
    fewer = Surveyed(replace(needed.result, records=99), {})
    assert "100 records were committed, and the log has 99" in differences(plan, {needed.slice: fewer}, {})[0]
    others = Surveyed(replace(needed.result, digest=8), {})
    assert "other keys or values" in differences(plan, {needed.slice: others}, {})[0]
    bad = Surveyed(replace(needed.result, records=98, errors=2), {155: "no number", 199: "no number"})
    [reason] = differences(plan, {needed.slice: bad}, {})
    assert reason == "orders-3 offset 155: the record is bad by the present settings: no number"
    assert differences(plan, {needed.slice: bad}, {needed.slice: {155}}) == []


def test_ranges_are_merged_and_written_as_they_are_read() -> None:
    found = parse_ranges(["orders:3=120..130", "orders:3=131", "orders:0=7"])
    assert list(map(str, found)) == ["orders:0=7", "orders:3=120..131"]
    assert merged([OffsetRange("t", 0, 0, 2), OffsetRange("t", 0, 1, 5)]) == (OffsetRange("t", 0, 0, 5),)
    for text in ("orders", "orders:3", "orders:3=", "orders:3=5..4", "orders:x=1", "orders:3=1..2x"):
        with pytest.raises(ConfigError):
            parse_ranges([text])


def test_the_auditor_names_what_to_land_again() -> None:
    findings = AuditFindings()
    for low, high in ((5, 6), (3, 5), (9, 12)):
        findings.repair("orders", 3, low, high)
    assert findings.repairs() == ("orders:3=3..5", "orders:3=9..11")
    assert parse_ranges(findings.repairs()) == (OffsetRange("orders", 3, 3, 6), OffsetRange("orders", 3, 9, 12))


def test_a_preview_says_how_much_of_each_list_it_leaves_out(capsys) -> None:
    ranges = tuple(Slice("orders", 3, start, start + 1, "id", 0) for start in range(0, 60, 2))
    groups = tuple((f"day={number}", "file") for number in range(21))
    preview = Preview(ranges, groups=groups, notes=tuple(f"note {number}" for number in range(22)))
    _print(console(), preview, is_done=False, is_upsert=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if " more " in line] == [
        "and 10 more ranges",
        "and 1 more file groups",
        "and 2 more notes",
    ]
    assert ("orders:3=38" in lines, "orders:3=40" in lines) == (True, False)
