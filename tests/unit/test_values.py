"""`docs/values.tsv` is true: each row, through the writer's decoder and through the auditor's."""

from __future__ import annotations

import base64
import csv
import io
import json
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from settings_kit import minimal_settings

from coordination.errors import ConfigError
from sink.audit.decode.avro_values import avro_reader
from sink.audit.decode.json_values import json_row
from sink.audit.decode.protobuf_values import protobuf_reader
from sink.audit.decode.rules import Bad, Rules
from sink.config import Settings
from sink.config.record_formats import value_rules
from sink.decode.fields import NO_RULES, ValueRules
from sink.decode.formats import ValueFormat
from sink.decode.protobuf.files import descriptor_set_of_file
from sink.decode.registry.client import RegisteredSchema
from sink.infer.json_schema import columns_of_json_schema
from sink.schema.ddl import to_ddl
from sink.schema.table_schema import parse_ddl
from sink.schema.warnings import SchemaWarning, sentences

FACTS = Path(__file__).parents[2] / "docs" / "values.tsv"
BAD = "bad"


@dataclass(frozen=True)
class Fact:
    """A row: what is written for a column of a type becomes a value, or is bad."""

    kind: str
    setting: str
    written: str
    becomes: str

    def __str__(self) -> str:
        return f"{self.kind} {self.setting} {self.written}"

    def rules(self, directory: Path) -> tuple[ValueRules, Rules]:
        """Returns the writer's rules and the auditor's, by the settings of the row."""
        if not self.setting:
            return NO_RULES, Rules()
        name, _, value = self.setting.partition("=")
        settings = minimal_settings(directory, **{name: value})
        return value_rules(settings), audit_rules(settings)


def facts(form: str) -> list[Fact]:
    """Returns the rows of a format."""
    with FACTS.open(newline="") as file:
        rows = [Fact(*row[1:]) for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row[0] == form]
    assert rows
    return rows


@pytest.mark.parametrize("fact", facts("json"), ids=str)
def test_json_becomes_what_the_page_says(fact: Fact, tmp_path: Path) -> None:
    rules, auditors = fact.rules(tmp_path)
    require_json(fact, f'{{"c":{fact.written}}}'.encode(), rules, auditors)


@pytest.mark.parametrize("fact", facts("connect"), ids=str)
def test_json_in_connects_envelope_becomes_what_the_page_says(fact: Fact) -> None:
    name, _, scale = fact.setting.partition(", scale ")
    column = {"field": "c", "type": "int64", "name": name, "parameters": {"scale": scale}}
    schema = json.dumps({"type": "struct", "fields": [column]})
    value = f'{{"schema":{schema},"payload":{{"c":{fact.written}}}}}'.encode()
    require_json(fact, value, NO_RULES, Rules())


def require_json(fact: Fact, value: bytes, rules: ValueRules, auditors: Rules) -> None:
    struct = parse_ddl(f"c {fact.kind}").value_struct
    decoded = ValueFormat("json", rules=rules).decoder(struct).decode(pa.array([value] * 300, pa.binary()))
    assert len(decoded.bad) == (300 if fact.becomes == BAD else 0), decoded.bad[:1]
    assert {text_of(row["c"]) for row in decoded.rows.to_pylist()} == (set() if decoded.bad else {fact.becomes})
    try:
        audited = text_of(json_row(value, json.loads(struct.json()), auditors)["c"])
    except Bad:
        audited = BAD
    assert audited == fact.becomes


@pytest.mark.parametrize("fact", facts("avro"), ids=str)
def test_avro_becomes_what_the_page_says(fact: Fact, tmp_path: Path) -> None:
    rules, auditors = fact.rules(tmp_path)
    schema, value = avro_record(fact.written)
    struct = parse_ddl(f"c {fact.kind}").value_struct
    try:
        decoded = (
            ValueFormat("avro", schema.encode(), rules=rules)
            .decoder(struct)
            .decode(pa.array([value] * 300, pa.binary()))
        )
        becomes = {text_of(row["c"]) for row in decoded.rows.to_pylist()} or {BAD}
    except ConfigError:
        becomes = {BAD}
    assert becomes == {fact.becomes}
    try:
        audited = text_of(avro_reader([schema], json.loads(struct.json()), auditors)(value)["c"])
    except Bad:
        audited = BAD
    assert audited == fact.becomes


def avro_record(written: str) -> tuple[str, bytes]:
    """Returns the schema and the bytes of a record with a field `c`, from its type and its value in Avro's JSON."""
    if written.startswith(("{", "[")):
        kind, end = json.JSONDecoder().raw_decode(written)
    else:
        end = written.index(":")
        kind = written[:end]
    schema = {"type": "record", "name": "Fact", "fields": [{"name": "c", "type": kind}]}
    # fastavro refuses what is invalid beside the types, and converts by logical types.
    bare = fastavro.parse_schema(without_meaning(schema))
    [record] = fastavro.json_reader(io.StringIO(f'{{"c":{written[end + 1 :]}}}'), bare)
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, bare, record)
    return json.dumps(schema), stream.getvalue()


def without_meaning(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: without_meaning(part) for name, part in schema.items() if name not in ("default", "logicalType")}
    return [without_meaning(part) for part in schema] if isinstance(schema, list) else schema


@pytest.fixture(scope="module")
def protobuf_facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[bytes, str]]:
    """Compiles all messages of the page at once. Returns the descriptors and the name of each by its declaration."""
    directory = tmp_path_factory.mktemp("protobuf")
    found: dict[str, tuple[bytes, str]] = {}
    for syntax in ("proto2", "proto3", "edition 2023", "edition 2024"):
        own = [fact.written.split("←")[0] for fact in facts("protobuf")]
        own = [text for text in dict.fromkeys(own) if _syntax(text)[0] == syntax]
        header = f'edition = "{syntax[8:]}";' if syntax.startswith("edition") else f'syntax = "{syntax}";'
        imports = "".join(f'import "{name}.proto";' for name in IMPORTS)
        messages = [f"message M{number} {{ {_syntax(text)[1]} }}" for number, text in enumerate(own)]
        source = directory / f"{syntax.replace(' ', '')}.proto"
        source.write_text("\n".join([header, imports, *messages]))
        descriptors = descriptor_set_of_file(source)
        found |= {text: (descriptors, f"M{number}") for number, text in enumerate(own)}
    return found


IMPORTS = [
    *(f"google/protobuf/{name}" for name in ("any", "duration", "field_mask", "struct", "timestamp", "wrappers")),
    *("google/type/date", "google/type/decimal", "confluent/type/decimal"),
]


def _syntax(declared: str) -> tuple[str, str]:
    """Returns the syntax of a message and its fields."""
    syntax, colon, fields = declared.partition(": ")
    return (syntax, fields) if colon and syntax in ("proto2", "edition 2023", "edition 2024") else ("proto3", declared)


@pytest.mark.parametrize("fact", facts("protobuf"), ids=str)
def test_protobuf_becomes_what_the_page_says(
    fact: Fact, tmp_path: Path, protobuf_facts: dict[str, tuple[bytes, str]]
) -> None:
    rules, auditors = fact.rules(tmp_path)
    declared, _, written = fact.written.partition("←")
    descriptors, message = protobuf_facts[declared]
    value = _protobuf_value(descriptors, message, written.strip())
    struct = parse_ddl(f"c {fact.kind}").value_struct
    form = ValueFormat("protobuf", descriptors, message, rules=rules)
    try:
        decoded = form.decoder(struct).decode(pa.array([value] * 50, pa.binary()))
        rows = {text_of(row["c"]) for row in decoded.rows.to_pylist()} or {BAD}
    except ConfigError:
        rows = {BAD}
    assert rows == {fact.becomes}
    try:
        audited = text_of(protobuf_reader(descriptors, message, json.loads(struct.json()), auditors)(value)["c"])
    except Bad:
        audited = BAD
    assert audited == fact.becomes


def _protobuf_value(descriptors: bytes, message: str, written: str) -> bytes:
    """Returns the bytes of a value that is written in bytes, or as Protobuf's text."""
    if written.startswith("0x"):
        return bytes.fromhex(written[2:])
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(descriptors).file:
        pool.AddSerializedFile(file.SerializeToString())
    made: Any = GetMessageClass(pool.FindMessageTypeByName(message))
    return bytes(text_format.Parse(written, made()).SerializePartialToString())


@pytest.mark.parametrize("fact", facts("json-schema"), ids=str)
def test_a_property_of_a_json_schema_becomes_the_column_that_the_page_says(fact: Fact) -> None:
    warnings: list[SchemaWarning] = []
    text = f'{{"properties": {{"c": {fact.written}}}}}'
    columns = columns_of_json_schema(RegisteredSchema(7, "JSON", text), warnings)
    assert (to_ddl(columns), sentences(warnings)) == (f"c {fact.kind}", [fact.becomes] if fact.becomes else [])


def audit_rules(settings: Settings) -> Rules:
    return Rules(
        dict(settings.time_unit),
        dict(settings.date_unit),
        dict(settings.decimal_format),
        infinity=settings.time_infinity,
        rounds=settings.decimal_rounding == "half_up",
        exact_case=settings.field_case == "exact",
    )


def text_of(value: Any) -> str:
    """Returns a value as the page writes it."""
    if value is None:
        return "null"
    if isinstance(value, (list, dict)):
        pairs = isinstance(value, list) and value and isinstance(value[0], tuple)
        return json.dumps(dict(value) if pairs else value)
    if isinstance(value, datetime):
        whole, _, fraction = value.replace(tzinfo=None).isoformat(timespec="microseconds").partition(".")
        return f"{whole}.{fraction}".rstrip("0").rstrip(".") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return f"base64:{base64.b64encode(value).decode()}"
    if isinstance(value, float):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value), str(value))
    return str(value).lower() if isinstance(value, bool) else f"{value:f}" if isinstance(value, Decimal) else str(value)
