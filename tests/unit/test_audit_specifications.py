"""A specification or a schema that is broken stops no audit: it is a finding, and its rows are not compared."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from sink.audit.checkpoints import LogPartition
from sink.audit.content import records
from sink.audit.content.expected import Chunk, ExpectedForm, LogColumns, write_chunk
from sink.audit.content.places import Places
from sink.audit.content.specification import (
    NotComparable,
    Schemas,
    UnreadableSpecification,
    check_specifications,
    specification_of,
)
from sink.audit.content.widening import widened
from sink.audit.log_records import RecordColumns
from sink.audit.report import AuditFindings, FindingKind
from sink.audit.timeline import Commit
from sink.storage.table_files import TableFiles

BROKEN = [
    "{",
    "[]",
    "5",
    '{"value.format": 5}',
    '{"value.format": "json", "value.schema.file": {}}',
    '{"value.format": "json", "decimal.format": 5}',
    '{"value.format": "json", "field.names": [["a"]]}',
    '{"value.format": "json", "columns": {"fields": [5]}}',
    '{"value.format": "json", "columns": {"fields": [{"name": "a"}]}}',
]
COLUMNS = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": ["null", "long"]}]}'


def commit(specification: str) -> Commit:
    instant = "20260101000001000"
    return Commit(instant, "", "commit", "INSERT", (), frozenset(), {}, {}, specifications={"orders": specification})


def files(directory: Path) -> TableFiles:
    return TableFiles(str(directory), pafs.LocalFileSystem(), str(directory), "", {})


@pytest.mark.parametrize("text", BROKEN)
def test_a_specification_that_cannot_be_read_is_a_finding_and_makes_its_rows_not_comparable(
    text: str, tmp_path: Path
) -> None:
    findings = AuditFindings()
    check_specifications([commit(text)], findings)
    (finding,) = findings.all()
    assert finding.kind is FindingKind.UNREADABLE_INSTANT
    assert finding.sentence.endswith("the specification of sink orders cannot be read")
    with pytest.raises(UnreadableSpecification):
        specification_of(text, COLUMNS, {}, files(tmp_path))


@pytest.mark.parametrize("text", ["{}", '{"value.format": "json", "time.unit": [["", "ms"]]}'])
def test_a_specification_that_can_be_read_is_no_finding(text: str) -> None:
    findings = AuditFindings()
    check_specifications([commit(text)], findings)
    assert not findings.all()


@pytest.mark.parametrize(
    "schema", ["{", '"null"', '{"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null"]}]}']
)
def test_rows_of_a_commit_whose_columns_cannot_be_read_are_not_comparable(schema: str, tmp_path: Path) -> None:
    with pytest.raises(NotComparable, match="no columns"):
        specification_of('{"value.format": "json"}', schema, {}, files(tmp_path))


@pytest.mark.parametrize(
    "content",
    [b"", b"x", gzip.compress(b"{"), gzip.compress(b"{}"), gzip.compress(b'{"schemas": [{}]}')[:-3]],
    ids=["empty", "no gzip", "no JSON", "another shape", "cut short"],
)
def test_a_kept_schema_that_is_damaged_is_not_comparable(content: bytes) -> None:
    with pytest.raises(NotComparable, match="their schema in the table cannot be read"):
        Schemas({"abc": content}).texts("abc")


def test_a_record_on_which_the_auditor_fails_is_counted_and_stops_no_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = specification_of('{"value.format": "json"}', COLUMNS, {}, files(tmp_path))
    target = ExpectedForm(pa.schema([("id", pa.int64())]), Places.of({"hoodie.table.recordkey.fields": "id"}))
    (tmp_path / "spec-3").write_bytes(pickle.dumps((spec, target, [LogPartition("orders", 0)])))
    chunk = LogColumns()
    chunk.add(0, 0, RecordColumns([7], [0], [None], [json.dumps({"id": 1}).encode()], [()]))

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(records, "json_row", fail)
    refused = write_chunk(tmp_path, 0, Chunk(3, chunk))
    assert refused == (3, "the auditor cannot decode the record of offset 7 (ZeroDivisionError: a defect)")


def test_a_column_of_doubles_is_widened_in_the_commits_that_had_floats(tmp_path: Path) -> None:
    fields = '{"name": "real", "type": ["null", "float"]}, {"name": "small", "type": "float"}'
    schema = COLUMNS.replace("]}]}", f"]}}, {fields}]}}")
    old = specification_of('{"value.format": "json"}', schema, {}, files(tmp_path))
    new = specification_of('{"value.format": "json"}', schema.replace("float", "double"), {}, files(tmp_path))
    columns = pa.schema([("id", pa.int64()), ("real", pa.float64()), ("small", pa.float32())])
    assert widened(columns, {0: old, 1: new, 2: "a reason", 3: old}) == {"real": [0, 3]}
