"""Columns from plain JSON values, as `sink infer` derives them without a topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sink.decode.json.values import document
from sink.decode.records import BadValue
from sink.infer.json_samples import NO_TYPES, Inferred, infer_objects, refusals, with_valid_names


def infer_json(values: Sequence[bytes | None], coordinates_of: Callable[[int], str] = str) -> Inferred:
    """Infers the columns. `coordinates_of` returns a value's coordinates by its index. No good values: no columns."""
    bad = refusals(NO_TYPES, dict(enumerate(values)))
    documents = {
        index: document(value.decode()) for index, value in enumerate(values) if value is not None and index not in bad
    }

    parsed = {index: values[index] for index in documents}
    inferred = infer_objects(documents, lambda columns: refusals(columns, parsed), coordinates_of)
    reasons = sorted([*bad.items(), *((value.index, value.reason) for value in inferred.bad)])
    warnings = [*inferred.warnings]
    columns = with_valid_names(inferred.columns, warnings)
    bad_values = tuple(BadValue(index, reason) for index, reason in reasons)
    return replace(inferred, columns=columns, warnings=tuple(warnings), bad=bad_values)
