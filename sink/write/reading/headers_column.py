"""The headers of records as a column of Arrow. A record whose headers the client cannot read has one without a name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sink.write.reading.record_headers import UNREADABLE, Headers

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def headers_column(headers: Sequence[Headers]) -> pa.ListArray:
    if not any(headers):
        return pa.nulls(len(headers), HEADERS_TYPE)
    return pa.array([[{"key": k, "value": v} for k, v in pairs] if pairs else None for pairs in headers], HEADERS_TYPE)


def unreadable_headers(batch: pa.RecordBatch) -> dict[int, str]:
    """Returns why records of a batch are bad whose headers could not be read, by their row."""
    if "headers" not in batch.schema.names:
        return {}
    headers = batch.column("headers")
    names = headers.flatten().field("key")
    if not names.null_count:
        return {}
    nameless = np.flatnonzero(names.is_null().to_numpy(zero_copy_only=False))
    return dict.fromkeys(pc.list_parent_indices(headers).take(pa.array(nameless)).to_pylist(), UNREADABLE)
