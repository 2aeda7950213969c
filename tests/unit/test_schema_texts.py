"""A table keeps the schemas with which records were decoded."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from settings_kit import minimal_settings

from sink.config.record_formats import value_format
from sink.decode.file_schema import file_schema
from sink.decode.fingerprints import fingerprint
from sink.decode.registry.client import RegisteredSchema, RegistryAccess
from sink.hudi.schema_texts import document
from sink.write.rows.row_spec import table_schema

ITEM = 'syntax = "proto3"; package shop; message Item { string sku = 1; }'
ORDER = """syntax = "proto3"; package shop; import "item.proto"; import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; Item item = 2; google.protobuf.Timestamp placed_at = 3; }"""


def schemas_in(content: bytes) -> list[dict[str, Any]]:
    return json.loads(gzip.decompress(content))["schemas"]  # type: ignore[no-any-return]


def test_a_schema_is_kept_with_each_one_that_it_refers_to_once() -> None:
    base = RegisteredSchema(1, "AVRO", '"base"')
    left = RegisteredSchema(2, "AVRO", '"left"', (("Base", base),))
    right = RegisteredSchema(3, "AVRO", '"right"', (("Base", base),))
    root = RegisteredSchema(4, "AVRO", '"root"', (("Left", left), ("Right", right)))
    assert schemas_in(document(root)) == [
        {"kind": "AVRO", "text": '"base"', "references": {}},
        {"kind": "AVRO", "text": '"left"', "references": {"Base": 0}},
        {"kind": "AVRO", "text": '"right"', "references": {"Base": 0}},
        {"kind": "AVRO", "text": '"root"', "references": {"Left": 1, "Right": 2}},
    ]
    assert document(root) == document(root)


def test_the_schema_of_a_protobuf_file_is_that_of_a_registry(tmp_path: Path) -> None:
    (tmp_path / "item.proto").write_text(ITEM)
    file = tmp_path / "order.proto"
    file.write_text(ORDER)
    settings = minimal_settings(
        tmp_path,
        schema__ddl="id bigint",
        value__format="protobuf",
        value__schema__file=str(file),
        value__message="shop.Order",
    )
    found = file_schema(value_format(settings))
    assert found is not None
    registered = RegisteredSchema(7, "PROTOBUF", ORDER, (("item.proto", RegisteredSchema(6, "PROTOBUF", ITEM)),))
    assert found[0] == fingerprint(found[1]) == fingerprint(registered)
    assert [schema["references"] for schema in schemas_in(document(found[1]))] == [{}, {"item.proto": 0}]
    assert json.loads(table_schema(settings.table, settings.records).specification)["value.schema.file"] == found[0]


def test_values_that_name_their_schema_have_none_of_a_file(tmp_path: Path) -> None:
    settings = minimal_settings(tmp_path, schema__ddl="id bigint")
    assert file_schema(value_format(settings)) is None
    assert "value.schema.file" not in json.loads(table_schema(settings.table, settings.records).specification)


@pytest.mark.parametrize("name", ["", "eu", "1"])
@pytest.mark.parametrize("schema_id", [0, 12, "5a1b7c1e-0000-4000-8000-3f6de5a0c1d2"])
def test_an_id_is_found_again_in_what_is_recorded(name: str, schema_id: int | str) -> None:
    access = RegistryAccess(("http://registry:8081",), name=name)
    assert access.id_of(access.qualified(schema_id)) == schema_id
