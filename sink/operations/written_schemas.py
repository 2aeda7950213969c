"""Finds the schemas that the values of a sample were written with: those of a registry, and that of value.schema.file.

Raises ConfigError for a schema that cannot be used, and the errors of the registry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.config import Settings
from sink.decode.column_records import message_paths, schema_ids
from sink.decode.cursors import Cursors
from sink.decode.debezium import row_of_event
from sink.decode.formats import WIRE, ValueFormat
from sink.decode.records import TOMBSTONE
from sink.decode.registry.client import UnknownSchema, registry
from sink.infer.protobuf import columns_of_message
from sink.infer.registered import SchemaSelection, columns_of_avro, columns_of_registered
from sink.schema.warnings import OmittedField, SchemaWarning

SchemaIds = Counter[tuple[int, tuple[int, ...]]]
"""Numbers of records by schema id and message indexes."""


def ids_of(values: Sequence[bytes | None], with_paths: bool = False) -> tuple[SchemaIds, dict[int, str]]:
    """Counts the values by the schema that their header names. Returns also the error of each value whose header is
    invalid. A schema that is named by its GUID is not counted."""
    cursors, rows, ids = _headers(values)
    paths, codes = message_paths(cursors, rows) if with_paths else ([(0,)], np.zeros(len(rows), np.int64))
    valid = ~cursors.failed & (ids >= 0)
    counts = Counter((int(id_), paths[code]) for id_, code in zip(ids[valid], codes[valid].tolist(), strict=True))
    return counts, cursors.reasons


def without_headers(values: Sequence[bytes | None]) -> list[bytes | None]:
    """Returns what is behind the header of each value; None for one whose header is invalid."""
    cursors, rows, _ = _headers(values)
    contents = cursors.binary(*cursors.spans(rows, cursors.bytes_left(rows))).to_pylist()
    return [None if failed else content for content, failed in zip(contents, cursors.failed.tolist(), strict=True)]


def _headers(values: Sequence[bytes | None]) -> tuple[Cursors, np.ndarray, np.ndarray]:
    array = pa.array(values, pa.binary())
    cursors, rows = Cursors(array), np.arange(len(values))
    cursors.fail(rows[array.is_null().to_numpy(zero_copy_only=False)], TOMBSTONE)
    ids, _ = schema_ids(cursors, rows)
    return cursors, rows, ids


def columns_of_file(settings: Settings, form: ValueFormat) -> tuple[str, T.StructType, Sequence[SchemaWarning]]:
    """Returns name and columns of the schema of plain Avro or Protobuf, with warnings of what no column holds."""
    if form.name == "avro":
        warnings: list[SchemaWarning] = []
        return "record", columns_of_avro(form.writer.decode(), (), warnings, settings.schema_bounds), warnings
    return columns_of_message(form.writer, form.message, settings.schema_bounds)


def written_columns(
    settings: Settings, form: ValueFormat, values: Sequence[bytes | None]
) -> Iterator[tuple[T.StructType, Sequence[str], int]]:
    """Yields for each schema the columns of its fields, the paths of those that no column holds, and the number of
    values that were written with it. A schema that cannot be used is passed over: its values are bad."""
    if not form.is_wire:
        _, columns, warnings = columns_of_file(settings, form)
        yield columns, _omitted(warnings, ""), len(values)
        return
    assert form.access is not None
    kind = form.name.removesuffix(WIRE).upper()
    counts, _ = ids_of(values, with_paths=kind == "PROTOBUF")
    for (schema_id, path), records in counts.items():
        warnings = []
        try:
            selection = SchemaSelection(registry(form.access).schema(schema_id), path)
            origin, columns = columns_of_registered(selection, kind, warnings, settings.schema_bounds)
            if settings.value_envelope == "debezium":
                columns = row_of_event(columns, origin)
        except (ConfigError, UnknownSchema):
            continue
        yield columns, _omitted(warnings, "after." if settings.value_envelope == "debezium" else ""), records


def _omitted(warnings: Sequence[SchemaWarning], prefix: str) -> list[str]:
    omitted = [warning for warning in warnings if isinstance(warning, OmittedField)]
    return [field.path.removeprefix(prefix) for field in omitted if field.path.startswith(prefix)]
