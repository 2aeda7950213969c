"""Made-up schema ids, message indexes and references cost few requests, and no good record."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from protobuf_kit import Proto

from sink.decode import formats
from sink.decode.column_records import WireDecoder
from sink.decode.formats import ValueFormat
from sink.decode.registry import client as registry_module
from sink.decode.registry.client import BrokenSchema, RegisteredSchema, Registry, RegistryAccess, UnknownSchema
from sink.decode.registry.unknown_ids import MOST_IDS, SECONDS, UnknownIds
from sink.schema.table_schema import parse_ddl
from tests.columns_kit import columns
from tests.registry_kit import RegistryRequest, RegistryResponse, StubRegistry

NO_SCHEMA = RegistryResponse(404, {"error_code": 40403, "message": "Schema not found"})
RECORD = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}'
SCHEMA = parse_ddl("id int")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def record(schema_id: int, content: bytes = b"\x02") -> bytes:
    return struct.pack(">bI", 0, schema_id) + content


def known(*ids: int) -> Any:
    paths = {f"/schemas/ids/{schema_id}" for schema_id in ids}
    return lambda request: RegistryResponse(200, {"schema": RECORD}) if request.path in paths else NO_SCHEMA


@pytest.fixture
def registries() -> Iterator[None]:
    yield
    registry_module._REGISTRIES.clear()


@pytest.mark.usefixtures("registries")
def test_a_flood_of_made_up_ids_is_bad_records_and_the_good_ones_land() -> None:
    flood = [record(1_000_000 + number) for number in range(8_000)]
    values = [*flood[:4_000], record(7), record(7), *flood[4_000:], record(9)]
    with StubRegistry(known(7, 9)) as server:
        decoder = ValueFormat("avro-confluent", access=RegistryAccess((server.url,))).decoder(SCHEMA.value_struct)
        start = time.process_time()
        first = decoder.decode(pa.array(values[:4_002], pa.binary()))
        second = decoder.decode(pa.array(values, pa.binary()))
        seconds = time.process_time() - start
        asked = [request.path for request in server.requests]
    assert first.rows.num_rows == 2
    assert len(first.bad) == 4_000
    # Id 9 is a single record among the flood's: it is not asked for, which its reason says.
    assert second.rows.num_rows == 2
    assert "9 was not asked for, because 100 other ids" in second.bad[-1].reason
    assert "sink errors replay" in second.bad[-1].reason
    assert len(asked) == MOST_IDS + 1
    assert seconds < 5


@pytest.mark.usefixtures("registries")
def test_a_new_schema_of_several_records_is_asked_for_before_ids_of_one_record() -> None:
    values = [record(500 + number) for number in range(300)] + [record(9_999)] * 2
    with StubRegistry(known(9_999)) as server:
        decoder = ValueFormat("avro-confluent", access=RegistryAccess((server.url,))).decoder(SCHEMA.value_struct)
        decoded = decoder.decode(pa.array(values, pa.binary()))
    assert decoded.rows.num_rows == 2
    assert [bad.index for bad in decoded.bad] == [*range(300)]


def test_an_unknown_id_is_asked_for_again_after_a_while() -> None:
    clock = Clock()
    unknown = UnknownIds(clock)
    unknown.add(7, "registry has no schema id 7")
    clock.now = SECONDS - 1
    with pytest.raises(UnknownSchema, match="has no schema id 7"):
        unknown.check(7)
    unknown.check(8)
    clock.now = SECONDS
    unknown.check(7)


def test_the_registry_is_asked_again_once_unknown_ids_are_old() -> None:
    clock = Clock()
    unknown = UnknownIds(clock)
    for number in range(MOST_IDS):
        unknown.add(number, "unknown")
    with pytest.raises(UnknownSchema, match=f"id {MOST_IDS} was not asked for"):
        unknown.check(MOST_IDS)
    clock.now = SECONDS
    unknown.check(MOST_IDS)
    assert len(unknown._asked) == 0


def test_made_up_message_indexes_compile_a_schema_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[int | str] = []
    descriptors = Proto().message("M", "int32 id = 1").bytes()
    source = RegisteredSchema(7, "PROTOBUF", "message M {}")

    def compile_it(schema: RegisteredSchema) -> bytes:
        compiled.append(schema.id)
        return descriptors

    monkeypatch.setattr(formats, "descriptor_set", compile_it)
    form = ValueFormat("protobuf-confluent")
    decoder = WireDecoder(
        columns(SCHEMA), lambda _, path: form.reader(columns(SCHEMA), source, path), has_message_indexes=True
    )
    made_up = [record(7, bytes([4, number % 64 * 2, number // 64 * 2, 8, 1])) for number in range(3_000)]
    decoded = decoder.decode(pa.array([record(7, b"\x00\x08\x05"), *made_up], pa.binary()))
    assert compiled == [7]
    assert decoded.rows.column("id").to_pylist() == [5]
    assert len(decoder._reasons) <= 1_000


def chain(request: RegistryRequest, width: int, most: int) -> RegistryResponse:
    """Answers as a registry in which schema n refers `width` times to schema n + 1."""
    path = request.path.partition("?")[0]
    if path.startswith("/subjects/"):
        number = int(path.split("/")[2])
        return RegistryResponse(200, {"id": number, "version": 1, "subject": str(number), "schema": RECORD})
    number = int(path.rpartition("/")[2])
    references = [{"name": f"n{position}", "subject": str(number + 1), "version": 1} for position in range(width)]
    return RegistryResponse(200, {"schema": RECORD, "references": references if number < most else []})


@pytest.mark.parametrize(
    ("width", "most", "reason"),
    [(2, 30, "refers to more than 500 schemas"), (1, 60, "refers to others by way of more than 50")],
    ids=["doubling", "long"],
)
def test_references_that_unfold_without_end_make_a_schema_unusable(width: int, most: int, reason: str) -> None:
    with StubRegistry(lambda request: chain(request, width, most)) as server:
        with pytest.raises(BrokenSchema, match=reason):
            Registry(RegistryAccess((server.url,))).schema(0)
        assert len(server.requests) < 500


def test_references_within_the_bounds_are_resolved() -> None:
    with StubRegistry(lambda request: chain(request, 2, 5)) as server:
        schema = Registry(RegistryAccess((server.url,))).schema(0)
    assert schema.parts == 2**6 - 1


@pytest.mark.usefixtures("registries")
def test_records_of_a_schema_of_an_unknown_kind_are_bad() -> None:
    with StubRegistry(lambda _: RegistryResponse(200, {"schema": "x", "schemaType": "XSD"})) as server:
        decoder = ValueFormat("avro-confluent", access=RegistryAccess((server.url,))).decoder(SCHEMA.value_struct)
        decoded = decoder.decode(pa.array([record(7)], pa.binary()))
    assert "is of kind XSD" in decoded.bad[0].reason


def test_a_process_keeps_a_bounded_number_of_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "_MOST_KEPT", 3)
    with StubRegistry(lambda _: RegistryResponse(200, {"schema": RECORD})) as server:
        client = Registry(RegistryAccess((server.url,)))
        for number in range(10):
            assert client.schema(number).id == number
        assert list(client._schemas) == [7, 8, 9]
        monkeypatch.setattr(registry_module, "_MOST_CHARACTERS_KEPT", 1)
        client.schema(10)
        assert list(client._schemas) == [10]
