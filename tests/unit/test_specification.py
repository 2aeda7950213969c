"""The specification that a commit has of how its records were decoded."""

from __future__ import annotations

import json
from pathlib import Path

from settings_kit import minimal_settings

from sink.decode.fingerprints import fingerprint
from sink.decode.registry.client import RegisteredSchema
from sink.schema.table_schema import TableSchema
from sink.write.rows.row_spec import table_schema

DDL = "id bigint, ts timestamp, message string"


def test_it_has_the_settings_that_are_no_defaults_and_the_format(tmp_path: Path) -> None:
    plain = table_schema(
        minimal_settings(tmp_path, schema__ddl=DDL).table, minimal_settings(tmp_path, schema__ddl=DDL).records
    )
    assert json.loads(plain.specification_json) == {"value.format": "json"}
    settings = {"time__unit": "us, ts=ms", "field__names": "message=meta.`msg id`", "decimal__rounding": "half_up"}
    chosen = table_schema(
        minimal_settings(tmp_path, schema__ddl=DDL, **settings).table,
        minimal_settings(tmp_path, schema__ddl=DDL, **settings).records,
    )
    assert json.loads(chosen.specification_json) == {
        "value.format": "json",
        "time.unit": [["", "us"], ["ts", "ms"]],
        "field.names": [["message", ["meta", "msg id"]]],
        "decimal.rounding": "half_up",
    }


def test_a_schema_file_is_named_by_its_fingerprint(tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text('{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}')
    schema = table_schema(
        minimal_settings(tmp_path, schema__ddl="id bigint", value__format="avro", value__schema__file=str(file)).table,
        minimal_settings(
            tmp_path, schema__ddl="id bigint", value__format="avro", value__schema__file=str(file)
        ).records,
    )
    registered = RegisteredSchema(1, "AVRO", file.read_text())
    assert json.loads(schema.specification)["value.schema.file"] == fingerprint(registered)


def test_a_commit_says_what_its_transaction_began_with(tmp_path: Path) -> None:
    begun = table_schema(
        minimal_settings(tmp_path, schema__ddl=DDL, time__unit="ms").table,
        minimal_settings(tmp_path, schema__ddl=DDL, time__unit="ms").records,
    )
    newest = table_schema(
        minimal_settings(tmp_path, schema__ddl=DDL, time__unit="us").table,
        minimal_settings(tmp_path, schema__ddl=DDL, time__unit="us").records,
    )
    committed = newest.with_columns(begun.columns_json)
    assert committed.specification_json == begun.specification_json
    typed = TableSchema(begun.value_struct, types=("shop.Order",))
    assert json.loads(newest.with_columns(typed.columns_json).specification_json) == {"types": ["shop.Order"]}
