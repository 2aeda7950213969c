"""The errors table has each record that the auditor's decoders refuse, as it is in the log, and no other one."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from sink.audit.chain import CommittedRange
from sink.audit.checkpoints import AuditedResult, AuditedSlice, LogPartition
from sink.audit.content.bad_rows import COLUMNS, DecodedRanges, ErrorsTableRows
from sink.audit.content.cells import Unread
from sink.audit.content.expected import BAD_SCHEMA, Range
from sink.audit.content.owners import Coordinates
from sink.audit.coverage import Coverage
from sink.audit.log_records import LogRecords
from sink.audit.report import LEFT_OUT, AuditFindings, ContentCount, FindingKind
from tests.mutations.edit import Edited
from tests.mutations.kept import KeptTable, unpack

SINK, OLD_ID, ID = "orders", "old", "id"
SOURCE = LogPartition("orders", 0)
SOURCE_PLACE = SOURCE.topic, SOURCE.partition
FIRST, SECOND, OPERATORS = "20260101000000000", "20260102000000000", "20260103000000000"
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MOMENT = 1_767_225_600_001
"""The timestamp of every record, in milliseconds."""


@dataclass
class Known:
    """Offsets 0 to 9 are of the first commit, 10 to 19 of the second; the operator's has replayed some. All of the log
    was read but what `expired`."""

    refused: Sequence[tuple[int, int]]
    """Offsets of bad records, with the numbers of their commits."""
    ranges: Sequence[Range] = (Range(0, 10, 0, 0), Range(10, 20, 1, 0))
    refusals: Mapping[int, str] = field(default_factory=dict)
    left_out: Sequence[tuple[int, int]] = ()
    expired: int = 0
    topic_id: str = ID
    timestamp: int = MOMENT
    since: str = ""

    def compared(self, directory: Path, *rows: Mapping[str, Any]) -> tuple[list[str], Mapping[str, int]]:
        """Compares rows of the errors table. Returns sentences, and what was not compared."""
        slices = (AuditedSlice(*SOURCE_PLACE, start, start + 10, self.topic_id, 0) for start in (0, 10))
        results = (AuditedResult(piece, 8, 0, 2) for piece in slices)
        ranges = [CommittedRange(*entry) for entry in zip(results, (1, 2), (FIRST, SECOND), strict=True)]
        numbers = {FIRST: 0, SECOND: 1, OPERATORS: 2}
        coverage = Coverage(since=self.since)
        bad = ErrorsTableRows(SINK, ranges, {SOURCE.topic: ID}, Coordinates({SOURCE: 0}, numbers, {}), coverage)
        bad.read([errors_rows(*rows)] if rows else [])
        offsets = range(self.expired, 20)
        moment = (TIMESTAMP_CREATE_TIME, self.timestamp)
        messages = [Message(*SOURCE_PLACE, offset, b"k", b"v%d" % offset, None, None, moment) for offset in offsets]
        bad.receive(SOURCE, LogRecords(messages, offsets))
        refused = [{"_sink_source": 0, "_sink_offset": o, "_sink_commit": c, "reason": "why"} for o, c in self.refused]
        folder = directory / "expected"
        folder.mkdir()
        pq.write_table(pa.Table.from_pylist(refused, BAD_SCHEMA), folder / "bad-0.parquet")
        findings = AuditFindings()
        decoded = DecodedRanges(folder, {SOURCE: self.ranges}, self.refusals, {0: 0, 1: 0, 2: 0})
        unread = Unread({0: self.expired}, lambda *_: "for no known reason", self.left_out)
        reasons = bad.compare(decoded, unread, findings)
        assert all(finding.kind is FindingKind.ERRORS_ROW for finding in findings.all())
        return [finding.sentence for finding in findings.all()], reasons


def errors_rows(*rows: Mapping[str, Any]) -> pa.RecordBatch:
    kinds = {
        "_kafka_partition": pa.int32(),
        "_kafka_offset": pa.int64(),
        "_kafka_timestamp": pa.timestamp("us", "UTC"),
        "_kafka_key": pa.binary(),
        "value": pa.binary(),
        "generation": pa.int32(),
    }
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in COLUMNS])
    return pa.RecordBatch.from_pylist(list(rows), schema)


def row(offset: int, instant: str = FIRST, **columns: Any) -> dict[str, Any]:
    """A row of the errors table, as the sink writes it."""
    place = {"_kafka_topic": "orders", "_kafka_partition": 0, "_kafka_offset": offset}
    own = {"sink": SINK, "topic_id": ID, "generation": 0, "instant": instant}
    moment = EPOCH + timedelta(milliseconds=MOMENT)
    record = {"_kafka_timestamp": moment, "_kafka_key": b"k", "value": b"v%d" % offset}
    return {**place, **own, **record, **columns}


def test_each_bad_record_has_a_row_and_each_row_a_bad_record(tmp_path: Path) -> None:
    assert Known([(3, 0), (12, 1)]).compared(tmp_path, row(3), row(12, SECOND)) == ([], {})


def test_a_bad_record_without_a_row_is_found_with_its_reason(tmp_path: Path) -> None:
    found, _ = Known([(3, 0), (12, 1)]).compared(tmp_path, row(3))
    assert found == ["orders-0 offset 12: its record is bad, and the errors table does not have it: why"]


def test_a_row_that_is_left_out_may_be_of_a_log_that_lost_its_end(tmp_path: Path) -> None:
    known = Known([(12, 1)], ranges=(Range(10, 20, 1, 0),), left_out=[(0, 0)], since=SECOND)
    assert known.compared(tmp_path, row(3, value=b"before"), row(12, SECOND)) == ([], {LEFT_OUT: 1})


def test_a_row_of_a_good_record_is_found(tmp_path: Path) -> None:
    found, _ = Known([(3, 0)]).compared(tmp_path, row(3), row(4))
    assert found == ["orders-0 offset 4: the errors table has its record, which is good"]


@pytest.mark.parametrize(
    "changed",
    [
        {"value": b"other"},
        {"_kafka_key": None},
        {"_kafka_timestamp": None},
        pytest.param({"_kafka_timestamp": EPOCH + timedelta(milliseconds=MOMENT, microseconds=999)}, id="microseconds"),
    ],
)
def test_a_row_with_another_key_value_or_timestamp_is_found(changed: Mapping[str, Any], tmp_path: Path) -> None:
    found, _ = Known([(3, 0)]).compared(tmp_path, row(3, **changed))
    assert found == ["orders-0 offset 3: key, value or timestamp in the errors table differs from the log's"]


@pytest.mark.parametrize("timestamp", [-1, MOMENT * 1_000_000, 253_402_300_800_000, -62_135_596_800_001])
def test_a_timestamp_that_no_reader_shows_is_null(timestamp: int, tmp_path: Path) -> None:
    known = Known([(3, 0)], timestamp=timestamp)
    assert known.compared(tmp_path, row(3, _kafka_timestamp=None)) == ([], {})


@pytest.mark.parametrize("moment", [datetime.min, datetime.max.replace(microsecond=999_000)])
def test_the_first_and_the_last_moment_of_all_are_shown(moment: datetime, tmp_path: Path) -> None:
    moment = moment.replace(tzinfo=timezone.utc)
    known = Known([(3, 0)], timestamp=(moment - EPOCH) // timedelta(milliseconds=1))
    assert known.compared(tmp_path, row(3, _kafka_timestamp=moment)) == ([], {})


def test_rows_without_a_record_are_counted_by_reason(tmp_path: Path) -> None:
    known = Known([], ranges=[Range(0, 10, 0, 0)], left_out=[(0, 1)], expired=5)
    assert known.compared(tmp_path, row(3), row(12, SECOND)) == ([], {"expired from the log": 1, "left out": 1})


def test_rows_of_a_topic_that_was_created_again_are_counted_not_compared(tmp_path: Path) -> None:
    known = Known([], topic_id=OLD_ID)
    assert known.compared(tmp_path, row(3, topic_id=OLD_ID, value=b"other")) == ([], {"for no known reason": 1})


def test_rows_whose_records_cannot_be_decoded_are_counted(tmp_path: Path) -> None:
    known = Known([], refusals={0: "their commit has no specification"})
    found, reasons = known.compared(tmp_path, row(3))
    assert (found, reasons) == ([], {"their commit has no specification": 1})
    assert not ContentCount(1, 1, 0, 0, 0, errors_not_compared=reasons).complete
    assert ContentCount(1, 1, 0, 0, 0, errors_not_compared={"expired from the log": 1}).complete


def test_the_count_of_contents_says_how_many_rows_of_the_errors_table_were_not_compared() -> None:
    count = ContentCount(9, 9, 0, 0, 0, not_compared={"left out": 1}, errors_not_compared={"left out": 2})
    assert str(count).endswith("; not compared: 1 left out; not compared of the errors table: 2 left out.")


def test_a_record_that_was_landed_again_may_be_good_by_the_later_specification(tmp_path: Path) -> None:
    known = Known([(12, 1)], ranges=[Range(0, 5, 0, 1), Range(5, 10, 0, 0), Range(10, 20, 1, 0)])
    found, reasons = known.compared(tmp_path, row(3), row(6), row(12, SECOND))
    assert (found, reasons) == (["orders-0 offset 6: the errors table has its record, which is good"], {})
    aside = pq.read_table(tmp_path / "expected" / "aside-0.parquet").to_pylist()
    assert aside == [{"_sink_source": 0, "_sink_offset": 3, "_sink_commit": 0}]


def test_a_replayed_record_has_the_row_of_the_commit_that_found_it_bad(tmp_path: Path) -> None:
    known = Known([(3, 0), (3, 2)], ranges=[Range(0, 10, 0, 0), Range(3, 4, 2, 0)])
    assert known.compared(tmp_path, row(3)) == ([], {})


def test_a_bad_record_that_a_row_of_an_upsert_table_hides_is_found(tmp_path: Path) -> None:
    """The sink took it for a good one, and it is older than the row of its key: no row shows it."""
    edited = Edited(unpack("copied", tmp_path))
    log = edited.directory / "log.jsonl"
    head, *records = map(json.loads, log.read_text().splitlines())
    late = next(record for record in records if _is_late(record))
    late["value"] = base64.b64encode(b'{"id": "x"}').decode()
    log.write_text("\n".join(map(json.dumps, (head, *records))))
    report = KeptTable(edited.directory).audit()
    found = [finding.sentence for finding in report.findings if finding.kind is FindingKind.ERRORS_ROW]
    place = f"orders-{late['partition']} offset {late['offset']}"
    assert found == [f"{place}: its record is bad, and the errors table does not have it: no number"]


def _is_late(record: Mapping[str, Any]) -> bool:
    return record["value"] is not None and json.loads(base64.b64decode(record["value"])).get("at") == -1
