"""Checks the last records of a sink's topics against its configuration, for `sink validate`.

The decoders are a worker's, from the same settings, and read the same columns. Raises what `sink.operations.samples`
and the decoders raise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from sink.clients.kafka.log import topics_of
from sink.config import Settings
from sink.decode.formats import RAW, WIRE, ValueFormat
from sink.decode.header_ids import wire_column
from sink.operations.check_results import CheckResult
from sink.operations.record_fields import RecordFields
from sink.operations.sampled_records import PART, findings, look
from sink.operations.samples import SampleRequest, read_sample
from sink.operations.written_schemas import without_headers, written_columns
from sink.schema.table_schema import TableSchema
from sink.write.rows.changes import ChangeSpec
from sink.write.rows.record_columns import RowSpec
from sink.write.rows.row_spec import spec_of

SAMPLE = SampleRequest(records=1000, bytes_max=16 * 1024**2, seconds=10.0)
REGISTRY_SECONDS = 5.0
"""The time-out of a question to a schema registry."""


def check_records(settings: Settings, schema: TableSchema) -> Iterator[CheckResult]:
    topics = topics_of(settings.kafka_native, settings.topics, settings.topic_pattern)
    if not topics:
        return
    sample = read_sample(settings, topics, SAMPLE)
    if not sample.batches:
        yield CheckResult(PART, f"no record to look at{': ' if sample.waiting else ''}{sample.waiting}")
        return
    spec = _impatient(spec_of(settings.table, settings.records, schema))
    looks = [look(spec, topic, records, _fields(settings, spec, records)) for topic, records in sample.batches]
    yield from findings(looks, spec, settings.tolerant)


def _impatient(spec: RowSpec) -> RowSpec:
    """Returns the same settings, which wait for a schema registry as long as a command should."""
    spec = replace(spec, format=_asks_briefly(spec.format))
    if isinstance(spec, ChangeSpec) and spec.key_format is not None:
        return replace(spec, key_format=_asks_briefly(spec.key_format))
    return spec


def _asks_briefly(form: ValueFormat) -> ValueFormat:
    access = form.access
    return form if access is None else replace(form, access=replace(access, patience_seconds=REGISTRY_SECONDS))


def _fields(settings: Settings, spec: RowSpec, records: pa.RecordBatch) -> RecordFields:
    form = spec.format
    fields = RecordFields(form.fields_of(spec.schema.value_struct))
    values = [value for value in wire_column(records, "value", form).to_pylist() if value is not None]
    if form.name.removesuffix(WIRE) == "json":
        fields.add_json(without_headers(values) if form.is_wire else values, settings.value_envelope)
    elif form.name not in RAW:
        fields.add_written(written_columns(settings, form, values))
    return fields
