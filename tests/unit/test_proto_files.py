"""Descriptor sets of Protobuf schemas: complete, in order, from sources and descriptors alike."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from coordination.errors import ConfigError
from sink.decode.protobuf import files as proto_files
from sink.decode.protobuf.files import descriptor_set, descriptor_set_of_file
from sink.decode.registry.client import RegisteredSchema

MONEY = 'syntax = "proto3"; package shop; message Money { int64 units = 1; string currency = 2; }'
PRICE = 'syntax = "proto3"; package shop; import "shop/money.proto"; message Price { Money money = 1; }'
ORDER = """
syntax = "proto3";
package shop;
import "price.proto";
import "shop/money.proto";
import "google/protobuf/timestamp.proto";
import "google/type/date.proto";
import "confluent/type/decimal.proto";
message Order {
  Price price = 1;
  Money tip = 2;
  google.protobuf.Timestamp placed_at = 3;
  google.type.Date due = 4;
  confluent.type.Decimal weight = 5;
}
"""


def source(number: int, text: str, **references: RegisteredSchema) -> RegisteredSchema:
    named_references = tuple((name.replace("__", "/") + ".proto", schema) for name, schema in references.items())
    return RegisteredSchema(number, "PROTOBUF", text, named_references)


def described(schema: RegisteredSchema) -> RegisteredSchema:
    """Returns the schema as a registry that keeps descriptors gives it: under a name of its own."""
    last = FileDescriptorSet.FromString(descriptor_set(schema)).file[-1]
    last.name = "default.proto"
    return RegisteredSchema(
        schema.id, schema.kind, base64.b64encode(last.SerializeToString()).decode(), schema.references
    )


MONEY_SOURCE = source(1, MONEY)
PRICE_SOURCE = source(2, PRICE, shop__money=MONEY_SOURCE)
ORDER_SOURCE = source(3, ORDER, price=PRICE_SOURCE, shop__money=MONEY_SOURCE)


def assert_is_order(serialized: bytes, name: str) -> None:
    """Checks that the set is complete: the pool takes a file only after all of its imports."""
    files = FileDescriptorSet.FromString(serialized).file
    pool = DescriptorPool()
    for file in files:
        pool.Add(file)
        pool.FindFileByName(file.name)
    assert files[-1].name == name
    order = GetMessageClass(pool.FindMessageTypeByName("shop.Order"))()
    order.price.money.units = 7
    order.placed_at.seconds = 9
    assert type(order).FromString(order.SerializeToString()).price.money.units == 7


def test_sources_with_references_become_one_complete_set() -> None:
    assert_is_order(descriptor_set(ORDER_SOURCE), "schema-3.proto")


def test_descriptors_need_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    money = described(MONEY_SOURCE)
    price = described(source(2, PRICE, shop__money=money))
    order = described(source(3, ORDER, price=price, shop__money=money))
    monkeypatch.setattr(proto_files, "COMPILER", "no_such_compiler")
    assert_is_order(descriptor_set(order), "schema-3.proto")
    with pytest.raises(ConfigError, match=r"schema id 3 is a \.proto source.*pip install grpcio-tools"):
        descriptor_set(ORDER_SOURCE)


def test_a_descriptor_may_refer_to_sources_and_a_source_to_descriptors() -> None:
    order = described(ORDER_SOURCE)
    assert_is_order(descriptor_set(order), "schema-3.proto")
    money = described(MONEY_SOURCE)
    price = source(2, PRICE, shop__money=money)
    assert_is_order(descriptor_set(source(3, ORDER, price=price, shop__money=money)), "schema-3.proto")


def test_a_registered_file_is_taken_before_the_one_that_everybody_has() -> None:
    date = source(1, 'syntax = "proto3"; package google.type; message Date { int64 day = 9; }')
    schema = source(2, 'syntax = "proto3"; import "google/type/date.proto"; message D { google.type.Date d = 1; }')
    schema = RegisteredSchema(2, "PROTOBUF", schema.text, (("google/type/date.proto", date),))
    first = FileDescriptorSet.FromString(descriptor_set(schema)).file[0]
    assert [(field.name, field.number) for field in first.message_type[0].field] == [("day", 9)]


@pytest.mark.parametrize(
    "name",
    ["../escape.proto", "/tmp/escape.proto", "a/../../b.proto", "a\\b.proto", ".", "a\0b.proto", "a\ud800.proto"],
)
def test_a_reference_leads_nowhere_outside(name: str) -> None:
    schema = RegisteredSchema(2, "PROTOBUF", f'syntax = "proto3"; import "{name}";', ((name, MONEY_SOURCE),))
    with pytest.raises(ConfigError, match=r"schema id 2: .* is not a valid import name"):
        descriptor_set(schema)


@pytest.mark.parametrize("option", ["--python_out={}", "-{}", "@{}/options"])
def test_a_reference_whose_name_looks_like_an_option_is_a_file_to_the_compiler(tmp_path: Path, option: str) -> None:
    name = option.format(tmp_path)
    order = RegisteredSchema(2, "PROTOBUF", f'import "{name}"; message M {{}}', ((name, MONEY_SOURCE),))
    assert [file.name for file in FileDescriptorSet.FromString(descriptor_set(order)).file] == [name, "schema-2.proto"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a"), ("schema-2.proto/a",), ("a" * 300,)])
def test_references_whose_names_cannot_be_files_are_refused(names: tuple[str, ...]) -> None:
    references = tuple((name, MONEY_SOURCE) for name in names)
    with pytest.raises(ConfigError, match=r"schema id 2: '.*' cannot be written as a file \(.*\)\. Register "):
        descriptor_set(RegisteredSchema(2, "PROTOBUF", "message M {}", references))


def test_a_source_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"schema id 1: 'schema-1\.proto' cannot be written as a file \(surrogates"):
        descriptor_set(source(1, "message M {} // \ud800"))


def test_an_import_that_is_not_utf_8_is_named() -> None:
    with pytest.raises(ConfigError, match=r"schema id 1 imports \ufffd\.proto, which is missing"):
        descriptor_set(source(1, 'import "\\377.proto"; message M {}'))


def test_an_import_that_is_not_registered_is_named() -> None:
    with pytest.raises(ConfigError, match=r"schema id 2.*shop/money\.proto"):
        descriptor_set(source(2, PRICE))
    with pytest.raises(ConfigError, match=r"schema id 2 imports shop/money\.proto, which is missing"):
        descriptor_set(RegisteredSchema(2, "PROTOBUF", described(PRICE_SOURCE).text))


BEHAVIOUR = """
syntax = "proto3";
package shop;
import "google/api/field_behavior.proto";
import "buf/validate/validate.proto";
option (buf.validate.file) = { rules: [1, 2], text: "];" };
// [(not an option)
message Order {
  option (buf.validate.message).disabled = true;
  int64 id = 1 [(google.api.field_behavior) = REQUIRED, deprecated = true, (buf.validate.field).int64 = { in: [1, 2] }];
  string name = 2 [(buf.validate.field).string.pattern = "[,]"]; /* [ */
  repeated int32 sizes = 3 [packed = false];
}
"""


def test_an_import_that_only_options_need_may_be_missing() -> None:
    behaviour = source(4, BEHAVIOUR)
    files = FileDescriptorSet.FromString(descriptor_set(behaviour)).file
    fields = files[-1].message_type[0].field
    assert [(field.name, field.number, field.options.deprecated) for field in fields] == [
        ("id", 1, True),
        ("name", 2, False),
        ("sizes", 3, False),
    ]
    assert fields[2].options.HasField("packed")
    for schema in (behaviour, described(behaviour)):
        pool = DescriptorPool()
        for file in FileDescriptorSet.FromString(descriptor_set(schema)).file:
            pool.AddSerializedFile(file.SerializeToString())
        assert pool.FindMessageTypeByName("shop.Order").fields_by_name["id"].number == 1


def test_an_import_that_a_field_needs_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"schema id 4 imports buf/validate/validate\.proto, which is missing\. Register"
    ):
        descriptor_set(source(4, BEHAVIOUR.replace("int64 id", "buf.validate.Rule id")))


def test_the_well_known_options_need_no_reference() -> None:
    text = (
        'import "google/api/field_behavior.proto"; message M { int64 id = 1 [(google.api.field_behavior) = REQUIRED]; }'
    )
    assert b"field_behavior" in descriptor_set(source(5, f'syntax = "proto3"; {text}'))


def test_what_does_not_compile_is_told_with_line_and_reason() -> None:
    with pytest.raises(ConfigError, match=r"schema id 1 does not compile: schema-1\.proto:2:\d+: "):
        descriptor_set(source(1, 'syntax = "proto3";\nmessage Order { Missing it = 1; }'))


def test_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="kind AVRO, not PROTOBUF"):
        descriptor_set(RegisteredSchema(1, "AVRO", '"long"'))


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "money.proto").write_text(MONEY)
    (tmp_path / "price.proto").write_text(PRICE)
    (tmp_path / "order.proto").write_text(ORDER)
    (tmp_path / "shop" / "refund.proto").write_text(PRICE.replace("Price", "Refund"))
    return tmp_path


def test_a_source_on_disk_is_compiled_with_what_lies_beside_it(sources: Path) -> None:
    assert_is_order(descriptor_set_of_file(sources / "order.proto"), "order.proto")


def test_imports_may_count_from_a_directory_above(sources: Path) -> None:
    files = FileDescriptorSet.FromString(descriptor_set_of_file(str(sources / "shop" / "refund.proto"))).file
    assert [file.name for file in files] == ["shop/money.proto", "shop/refund.proto"]


def test_a_complete_descriptor_set_is_taken_as_it_is(tmp_path: Path) -> None:
    for name in ("order.desc", "order.pb"):
        serialized = descriptor_set(ORDER_SOURCE)
        (tmp_path / name).write_bytes(serialized)
        assert descriptor_set_of_file(tmp_path / name) == serialized


def test_a_descriptor_set_without_its_imports_is_refused(tmp_path: Path) -> None:
    last = FileDescriptorSet.FromString(descriptor_set(ORDER_SOURCE)).file[-1]
    path = tmp_path / "order.desc"
    path.write_bytes(FileDescriptorSet(file=[last]).SerializeToString())
    with pytest.raises(ConfigError, match=r"order\.desc imports price\.proto and 4 more, which are missing"):
        descriptor_set_of_file(path)


@pytest.mark.parametrize("content", [b"", b"\xff\xff\xff", b"hello", FileDescriptorProto().SerializeToString()])
def test_a_file_that_is_no_descriptor_set_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "order.desc"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"order\.desc is not a descriptor set. Make one: protoc"):
        descriptor_set_of_file(path)


@pytest.mark.parametrize("name", ["gone.proto", "gone.desc"])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} cannot be read"):
        descriptor_set_of_file(tmp_path / name)
