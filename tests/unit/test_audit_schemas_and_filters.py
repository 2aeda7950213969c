"""The audit says of which columns and Bloom filters it knows nothing."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from sink.audit.columns import check_columns
from sink.audit.content.bloom import DYNAMIC, SIMPLE, missing_keys
from sink.audit.report import AuditFindings, FindingKind
from sink.audit.timeline import Commit

HEAD, DYNAMIC_HEAD = struct.Struct(">iibi"), struct.Struct(">iii")


def commit(number: int, schema: str, sink: str = "orders") -> Commit:
    checkpoints: dict[str, Any] = {sink: None} if sink else {}
    return Commit(f"2026010100000{number}000", "", "commit", "INSERT", (), frozenset(), checkpoints, {}, schema=schema)


@pytest.fixture
def findings() -> AuditFindings:
    return AuditFindings()


def kinds(findings: AuditFindings) -> list[FindingKind]:
    return [finding.kind for finding in findings.all()]


@pytest.mark.parametrize("schema", ["{", "[]", '{"fields": 1}', '{"fields": [{"name": 1, "type": "int"}]}'])
def test_a_schema_that_cannot_be_read_is_a_finding(findings: AuditFindings, schema: str) -> None:
    check_columns("orders", [commit(1, schema)], ["id"], findings)
    assert kinds(findings) == [FindingKind.UNREADABLE_INSTANT]


def test_a_type_that_changed_is_found_whatever_the_case_of_the_columns_name(findings: AuditFindings) -> None:
    of_sink = '{"fields": [{"name": "Amount", "type": "long"}]}'
    of_rewrite = '{"fields": [{"name": "amount", "type": "int"}]}'
    check_columns("orders", [commit(1, of_sink), commit(2, of_rewrite, "")], ["amount"], findings)
    assert kinds(findings) == [FindingKind.OTHERS]


@pytest.mark.parametrize(
    ("content", "kind", "reason"),
    [
        (HEAD.pack(-1, 1, 1, 8) + b"\xff", "CUCKOO", "unknown kind"),
        (HEAD.pack(-1, 1, 1, 8) + DYNAMIC_HEAD.pack(10, 0, 0), DYNAMIC, "without a filter"),
        (HEAD.pack(-1, 1, 0, 8) + b"\xff", SIMPLE, "not a Bloom filter"),
        (HEAD.pack(-1, 1, 1, 16) + b"\xff", SIMPLE, "fewer bits"),
    ],
    ids=["another kind", "none in it", "another hash", "cut short"],
)
def test_a_filter_that_says_nothing_of_its_keys_is_refused(content: bytes, kind: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        missing_keys(base64.b64encode(content).decode(), kind, ["a", "b"])


def test_keys_of_a_filter_without_them_are_missing() -> None:
    nothing = HEAD.pack(-1, 1, 1, 8) + b"\x00"
    assert missing_keys(base64.b64encode(nothing).decode(), SIMPLE, ["a", "b"]) == ["a", "b"]
