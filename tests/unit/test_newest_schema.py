"""Columns come from the newest schema of `schema.subject`, unless another registry gives it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import types as T

from coordination.planning.planner import _open
from coordination.state.failures import Halt
from coordination.state.model import LogView
from sink.decode.fingerprints import fingerprint
from sink.decode.registry.client import RegisteredSchema
from sink.hudi.table import Table
from sink.operations.remedies import halt_remedy
from sink.write.rows import row_spec
from sink.write.rows.row_spec import ColumnResolver
from tests.unit.change_kit import settings_of


def avro(*names: str) -> str:
    fields = [{"name": name, "type": ["null", "long"], "default": None} for name in names]
    return json.dumps({"type": "record", "name": "orders", "fields": fields})


OURS = RegisteredSchema(7, "AVRO", avro("id", "amount"))
THEIRS = RegisteredSchema(7, "AVRO", avro("id", "salary"))


@dataclass
class FakeRegistry:
    newest: RegisteredSchema

    def latest(self, _: str) -> RegisteredSchema:
        return self.newest


@dataclass
class FakeTable:
    known_schemas: Mapping[str, str] = field(default_factory=dict)
    columns: T.StructType = field(default_factory=lambda: T.StructType().add("id", "long").add("amount", "long"))


def resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: RegisteredSchema, known: Mapping[str, str], **more: str
) -> LogView:
    monkeypatch.setattr(row_spec, "registry", lambda _: FakeRegistry(newest))
    settings = settings_of(
        tmp_path,
        schema__ddl="",
        schema__subject="orders-value",
        schema__registry__url="http://registry:8081",
        value__format="avro-confluent",
        write__operation="",
        record__key__fields="",
        **more,
    )
    return ColumnResolver(settings.table, settings.records, cast(Table, FakeTable(known))).resolve(
        LogView("cluster", {})
    )


def test_the_newest_schema_of_another_registry_changes_no_column_and_halts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = resolved(tmp_path, monkeypatch, THEIRS, {"7": fingerprint(OURS)})
    assert log.columns == ""
    assert fingerprint(OURS) in log.schema_conflict.reason
    assert fingerprint(THEIRS) in log.schema_conflict.reason
    assert "orders-value" in log.schema_conflict.reason
    assert halt_remedy(log.schema_conflict.kind).section == "halt-schema-changed"
    assert isinstance(_open(1, 1, cast(Any, ("a task",)), {}, log), Halt)


@pytest.mark.parametrize("known", [{}, {"7": fingerprint(OURS)}, {"6": "0"}])
def test_the_newest_schema_of_the_same_registry_gives_the_columns(
    known: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = resolved(tmp_path, monkeypatch, OURS, known)
    assert log.schema_conflict is None
    assert T.StructType.fromJson(json.loads(log.columns)).names == ["id", "amount"]


def test_the_registrys_name_is_a_part_of_the_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"7": fingerprint(OURS), "new/7": fingerprint(THEIRS)}
    log = resolved(tmp_path, monkeypatch, THEIRS, known, schema__registry__name="new")
    assert log.schema_conflict is None
