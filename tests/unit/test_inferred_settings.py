"""`sink infer` proposes columns and settings by which the sink's own decoder lands the sample."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from message_kit import record_columns
from settings_kit import minimal_settings
from test_inference import DOCUMENTS

from sink.operations.inference import Inference, inference_of
from sink.operations.record_fields import RecordFields
from sink.operations.sampled_records import look
from sink.operations.samples import Sample
from sink.write.rows.row_spec import spec_of, table_schema
from tests.registry_kit import RegistryRequest, RegistryResponse, StubRegistry

SOURCE = {"connector": "postgresql", "lsn": 9000, "ts_ms": 1714979280000}


def sample_of(*records: tuple[Any, Any]) -> Sample:
    """Returns a sample of keys and values."""
    return Sample((("orders", record_columns(*records)),))


def inferred(directory: Path, *records: tuple[Any, Any], **settings: str) -> Inference:
    return inference_of(minimal_settings(directory, **settings), ("orders",), sample_of(*records))


def require_landed(sample: Sample, rows: list[dict[str, Any]]) -> None:
    """Checks that the sample lands with the columns and settings that are inferred from it, with each field that has a
    value and a column."""
    with TemporaryDirectory() as directory:
        inference = inference_of(minimal_settings(Path(directory)), ("orders",), sample)
        settings = {name.replace(".", "__"): value for name, value in inference.settings.items()}
        proposed = minimal_settings(Path(directory), schema__ddl=inference.ddl.replace("\n", " "), **settings)
    spec = spec_of(proposed.table, proposed.records, table_schema(proposed.table, proposed.records))
    ((topic, records),) = sample.batches
    seen = look(spec, topic, records, RecordFields(spec.format.columns(inference.columns)))
    assert (inference.bad, seen.bad) == ((), ())
    present = {name for row in rows for name, value in row.items() if value is not None}
    named = {column for column, source in proposed.field_names if "." not in column and source[0] in present}
    assert named | present.intersection(inference.columns.names) <= seen.filled


def event(op: str, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, "source": SOURCE, "op": op, "ts_ms": 1714979280123}


def test_change_events_get_the_columns_of_their_rows_and_the_settings_of_upserts(tmp_path: Path) -> None:
    inference = inferred(
        tmp_path,
        ({"id": 1}, event("c", after={"id": 1, "name": "a", "at": 1714979280000})),
        ({"id": 1}, event("u", after={"id": 1, "name": None, "at": 1714979280000})),
        ({"id": 1}, event("d", before={"id": 1, "name": "a", "at": None})),
        ({"id": 1}, event("d", before=None)),
        ({"id": 1}, None),
    )
    assert inference.ddl == "id BIGINT,\nname STRING,\nat BIGINT"
    assert inference.bad == ()
    assert inference.settings == {
        "write.operation": "upsert",
        "value.envelope": "debezium",
        "record.key.fields": "id",
        "delete.key.format": "json",
    }


def test_settings_that_are_set_are_not_proposed(tmp_path: Path) -> None:
    settings = {
        "write__operation": "upsert",
        "value__envelope": "debezium",
        "record__key__fields": "id",
        "delete__key__format": "json",
    }
    assert inferred(tmp_path, ({"id": 1}, event("c", after={"id": 1})), **settings).settings == {}


def test_keys_that_do_not_name_their_fields_are_left_to_the_reader(tmp_path: Path) -> None:
    inference = inferred(tmp_path, (b"A-17", event("c", after={"id": "A-17"})))
    assert inference.settings == {"write.operation": "upsert", "value.envelope": "debezium"}
    assert "record.key.fields is not set" in inference.warnings[-1]
    inference = inferred(
        tmp_path,
        (b"A-17", event("c", after={"id": "A-17"})),
        (b"A-17", event("d")),
        write__operation="upsert",
        record__key__fields="id",
    )
    assert inference.settings == {"value.envelope": "debezium", "delete.key.format": "string"}
    assert inference.bad == ()


def test_what_is_no_change_event_among_them_is_bad(tmp_path: Path) -> None:
    inference = inferred(
        tmp_path,
        ({"id": 1}, event("c", after={"id": 1})),
        ({"id": 1}, event("c", after={"id": 2})),
        (None, {"ts_ms": 1714979280000}),
    )
    assert inference.ddl == "id BIGINT"
    assert [text.partition(":")[0] for text in inference.bad] == ["orders-0 offset 2"]


def test_a_change_event_among_plain_rows_decides_nothing(tmp_path: Path) -> None:
    inference = inferred(tmp_path, (None, {"id": 1}), (None, {"id": 2}), (None, event("c", after={"x": 1})))
    assert "value.envelope" not in inference.settings
    assert inference.ddl.startswith("id BIGINT")


def test_tombstones_of_an_upsert_table_land_with_the_format_of_their_keys(tmp_path: Path) -> None:
    records = (({"id": 1}, {"id": 1, "name": "a"}), ({"id": 1}, None))
    inference = inferred(tmp_path, *records, write__operation="upsert", record__key__fields="id")
    assert (inference.settings, inference.bad) == ({"delete.key.format": "json"}, ())
    appended = inferred(tmp_path, *records)
    assert (appended.settings, len(appended.bad)) == ({}, 1)


def test_fields_with_names_that_no_column_can_have_get_one_and_their_keys_too(tmp_path: Path) -> None:
    row = {
        "order-id": 1,
        "@timestamp": "2024-05-06T07:08:00Z",
        "place": {"größe, Stadt": "Bern", "zip": "3000"},
        "lines": [{"sku no": "s"}, {"n": 1}],
        "a.b": 1,
        "a-b": 2,
        "a_b": 3,
        "1st": True,
        "\n": "of a name that no configuration can have there is no column",
    }
    inference = inferred(tmp_path, ({"order-id": 1}, event("c", after=row)), ({"order-id": 1}, None))
    assert inference.bad == ()
    assert inference.ddl.splitlines() == [
        "order_id BIGINT,",
        "timestamp TIMESTAMP,",
        "place STRUCT<gro_e_Stadt: STRING, zip: STRING>,",
        "lines ARRAY<STRUCT<sku_no: STRING, n: BIGINT>>,",
        "a_b_2 BIGINT,",
        "a_b_3 BIGINT,",
        "a_b BIGINT,",
        "_1st BOOLEAN",
    ]
    assert inference.settings["field.names"] == (
        "_1st=1st, a_b_2=`a.b`, a_b_3=a-b, lines.sku_no=lines.`sku no`, order_id=order-id,"
        " place.gro_e_Stadt=place.`größe, Stadt`, timestamp=@timestamp"
    )
    assert inference.settings["record.key.fields"] == "order_id"
    require_landed(sample_of((None, row)), [row])


def test_names_that_are_set_are_kept(tmp_path: Path) -> None:
    row = {"order-id": 1, "meta": {"msg-id": "m", "at": 1}}
    names = {"field__names": "id=order-id, message=meta.msg-id"}
    inference = inferred(tmp_path, (None, row), **names)
    assert inference.ddl == "id BIGINT,\nmeta STRUCT<msg_id: STRING, at: BIGINT>,\nmessage STRING"
    assert inference.bad == ()
    assert inference.settings == {"field.names": "id=order-id, message=meta.msg-id, meta.msg_id=meta.msg-id"}


def plain(rows: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
    return [(None, {**row, "id": number}) for number, row in enumerate(rows)]


def events(rows: list[dict[str, Any]], schema: Any = None) -> list[tuple[Any, Any]]:
    """Returns an insert, an update and a delete of each row, with the tombstone after it. `schema` is the member that
    Connect's envelope has beside the events."""
    records: list[tuple[Any, Any]] = []
    for number, row in enumerate(rows):
        full = {**row, "id": number}
        changes: list[Any] = [event("c", None, full), event("u", None, full), event("d", {"id": number})]
        if schema is not None:
            changes = [{**schema, "payload": change} for change in changes]
        records += [({"id": number}, change) for change in (*changes, None)]
    return records


@pytest.mark.parametrize("records_of", [plain, events, partial(events, schema={"schema": None})])
@given(rows=st.lists(DOCUMENTS, min_size=1, max_size=5))
def test_the_proposal_lands_the_records_that_it_was_inferred_from(
    records_of: Callable[[list[dict[str, Any]]], list[tuple[Any, Any]]], rows: list[dict[str, Any]]
) -> None:
    require_landed(sample_of(*records_of(rows)), rows)


ROW = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}, {"name": "odd", "type": "null"}]}
CHANGE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": "long"}]}},
    ],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
SCHEMAS = {7: CHANGE, 8: KEY}


def registered(request: RegistryRequest) -> RegistryResponse:
    schema_id = request.path.partition("?")[0].rpartition("/")[2]
    return RegistryResponse(200, {"schema": json.dumps(SCHEMAS[int(schema_id)])})


def test_change_events_in_avro_get_the_columns_of_their_rows_and_the_settings_of_upserts(tmp_path: Path) -> None:
    insert = bytes([0, 0, 0, 0, 7, 0, 2, 2, 2]) + b"c" + bytes([2])
    key = bytes([0, 0, 0, 0, 8, 2])
    with StubRegistry(registered) as registry:
        inference = inferred(
            tmp_path,
            (key, insert),
            (key, None),
            value__format="avro-confluent",
            schema__registry__url=registry.url,
        )
    assert (inference.ddl, inference.bad) == ("id BIGINT", ())
    assert inference.settings == {
        "write.operation": "upsert",
        "value.envelope": "debezium",
        "record.key.fields": "id",
        "delete.key.format": "avro-confluent",
    }
